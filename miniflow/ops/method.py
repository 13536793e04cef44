"""`@method` above a public function makes it a method of Tensor too; `miniflow.autograd.methods` attaches them.

Pointwise operators are methods without it (see `ops.pointwise`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from miniflow.dispatch.call_errors import takes_tensors

METHODS: dict[str, Callable] = {}
IN_PLACE: list[str] = []  # those that have a sibling with a trailing underscore


def method(
    function: Callable | None = None, *, checked: bool = True, in_place: bool = False, aliases: Sequence[str] = ()
) -> Callable:
    """Decorate a function whose first parameter is the tensor.

    Args:
        function: the function.
        checked: whether to decorate it with `takes_tensors` as well. False if it only calls an op: `dispatch` itself
            refuses operands that are not tensors, and the call is faster.
        in_place: whether there is a method with a trailing underscore too, which writes the result into the tensor.
        aliases: further names of the method.
    """
    if function is None:
        return lambda function: method(function, checked=checked, in_place=in_place, aliases=aliases)
    if checked or "keepdim" in inspect.signature(function).parameters:
        function = takes_tensors(function)
    METHODS.update(dict.fromkeys((function.__name__, *aliases), function))
    if in_place:
        IN_PLACE.append(function.__name__)
    return function


def functions() -> dict[str, Callable]:
    """The methods that are functions of `flow` too: those whose first parameter is called `input`, not `self`."""
    callables = {name: f for name, f in METHODS.items() if callable(f)}
    return {name: f for name, f in callables.items() if next(iter(inspect.signature(f).parameters)) == "input"}
