"""An identity that marks a loss to be computed in float32 under mixed precision."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch import Op, call
from miniflow.sbp import each_element
from miniflow.tape import modes
from miniflow.tensor import Tensor


class AmpBlackIdentity(Op):
    """y = x. Under autocast y is float32; in a graph, so is all that leads to it from the last matrix product on.

    Source: `amp_black_identity` of OneFlow.
    """

    amp = "black"
    view = True
    sbp = each_element

    def backward(ctx, dy):
        return call(AmpBlackIdentity, dy)


def in_float32(*operands: Any) -> tuple:
    """The operands of a loss, kept out of half precision where autocast or a graph might choose it; others unchanged.

    What is given in half precision outside of autocast stays so.
    """
    if modes.autocast is None and modes.tracer is None:
        return operands
    return tuple([call(AmpBlackIdentity, x) if _is_floating(x) else x for x in operands])


def _is_floating(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()
