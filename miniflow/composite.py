"""Functions made of several operators that a recording may keep whole, for formats that have one operator for them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TypeVar

from miniflow.dispatch import Op
from miniflow.operands import takes_tensors
from miniflow.tape import modes

F = TypeVar("F", bound=Callable)


def composite(function: F, result: Callable | None = None) -> F:
    """Let a recording that asks for it, see `graph.trace.kept_whole`, keep a call of a function as one instruction; it
    `takes_tensors`.

    Args:
        function: made of several operators.
        result: makes tensors like the results, of the same arguments; by default the function, which then must not
            look at values.
    """
    name, signature = function.__name__, inspect.signature(function)
    op = type(name, (Op,), {"function_name": name, "__module__": "composite"})

    @functools.wraps(function)
    def call(*args, **kwargs):
        if modes.plain or modes.tracer is None or name not in modes.tracer.whole:
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return modes.tracer.keep_whole(op, result or function, bound)

    return takes_tensors(call)
