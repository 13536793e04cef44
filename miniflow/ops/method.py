"""`@method` above a public function makes it a method of Tensor too; `miniflow.methods` attaches them.

Pointwise operators are methods without it (see `ops.pointwise`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

METHODS: dict[str, Callable] = {}
IN_PLACE: list[str] = []  # those that have a sibling with a trailing underscore


def method(function: Callable | None = None, *, in_place: bool = False, aliases: Sequence[str] = ()) -> Callable:
    """Decorate a function whose first parameter is the tensor.

    Args:
        function: the function.
        in_place: whether there is a method with a trailing underscore too, which writes the result into the tensor.
        aliases: further names of the method.
    """
    if function is None:
        return lambda function: method(function, in_place=in_place, aliases=aliases)
    METHODS.update(dict.fromkeys((function.__name__, *aliases), function))
    if in_place:
        IN_PLACE.append(function.__name__)
    return function
