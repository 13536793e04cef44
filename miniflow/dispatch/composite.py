"""Functions made of several operators that a recording may keep whole, for formats that have one operator for them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op
from miniflow.dispatch.tape import modes

F = TypeVar("F", bound=Callable)
# what a recording that keeps functions whole takes for sizes that depend on values, one after the other
sizes_of_values: ContextVar[Iterator[int]] = ContextVar("sizes_of_values")


def composite(function: F, result: Callable | None = None, shape_depends_on_values: bool = False) -> F:
    """Let a recording that asks for it (see `graph.trace.kept_whole`) keep each call of a function as one instruction.
    The function also `takes_tensors`.

    Args:
        function: made of several operators.
        result: makes tensors like the results, of the same arguments; by default the function, which then must not
            look at values.
        shape_depends_on_values: that of the result; `result` takes sizes from `sizes_of_values` then.
    """
    name, signature = function.__name__, inspect.signature(function)
    attributes = {"function_name": name, "shape_depends_on_values": shape_depends_on_values}
    op = type(name, (Op,), {**attributes, "__module__": "composite"})

    @functools.wraps(function)
    def call(*args, **kwargs):
        if modes.tracer is None or name not in modes.tracer.whole:
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return modes.tracer.keep_whole(op, result or function, bound)

    return takes_tensors(call)
