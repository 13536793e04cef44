"""`@method` above a public function makes it a method of Tensor too; `miniflow.methods` attaches them.

Pointwise operators are methods without it (see `ops.pointwise`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from miniflow.operands import takes_names, takes_tensors

METHODS: dict[str, Callable] = {}
IN_PLACE: list[str] = []  # those that have a sibling with a trailing underscore


def method(
    function: Callable | None = None, *, checked: bool = True, in_place: bool = False, aliases: Sequence[str] = ()
) -> Callable:
    """Decorate a function whose first parameter is the tensor.

    Args:
        function: the function.
        checked: whether it is decorated by `takes_tensors` too. False where all it does is to call an op: `dispatch`
            refuses operands that are not tensors itself, and the call is quicker.
        in_place: whether there is a method with a trailing underscore too, which writes the result into the tensor.
        aliases: further names of the method.
    """
    if function is None:
        return lambda function: method(function, checked=checked, in_place=in_place, aliases=aliases)
    if checked:
        function = takes_tensors(function)
    elif "keepdim" in inspect.signature(function).parameters:
        function = takes_names(function)
    METHODS.update(dict.fromkeys((function.__name__, *aliases), function))
    if in_place:
        IN_PLACE.append(function.__name__)
    return function


def variant(general: Callable, *given: Any) -> Callable[[Callable], Callable]:
    """Decorate the name and the docstring of a function that computes `general` of its name, of `given`, and of what it
    is called with.
    """

    def decorate(named: Callable) -> Callable:
        first = (named.__name__, *given)

        @functools.wraps(named)
        def function(*args: Any, **kwargs: Any) -> Any:
            return general(*first, *args, **kwargs)

        signature = inspect.signature(general)
        function.__signature__ = signature.replace(parameters=list(signature.parameters.values())[len(first) :])
        return function

    return decorate
