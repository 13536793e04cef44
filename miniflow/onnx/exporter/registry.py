"""What each operator of miniflow becomes in ONNX.

    @handler("cumsum", since=11)
    def cumsum(g, x, *, dim):
        return g("CumSum", x, g.ints(dim))

A handler gets the writer `g`, the inputs of one instruction (`Value`s; numbers as constants; None where absent) and its
attributes, and returns the name of the result, or a tuple of names. Of several for one operator, the newest that is not
above the opset of the model is used. For a composite function it gets the arguments of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HANDLERS: dict[str, list[tuple[int, Callable[..., Any]]]] = {}


def handler(*names: str, since: int = 1) -> Callable:
    """Register a function for operators of miniflow, from an opset on."""

    def register(function: Callable) -> Callable:
        for name in names:
            HANDLERS.setdefault(name, []).append((since, function))
        return function

    return register


def find(name: str, opset: int) -> Callable[..., Any] | None:
    """The newest handler of an operator that is not above the opset; of equally new ones the last."""
    versions = [(since, function) for since, function in reversed(HANDLERS.get(name, ())) if since <= opset]
    return max(versions, key=lambda pair: pair[0], default=(0, None))[1]
