"""Losses in mixed precision: computed in float32 and scaled, and their gradients unscaled and checked.

Gradients below 6e-8 are zero in float16. A loss times 65536 has gradients that much larger; before the update they are
divided by the same number in float32. If one of them overflowed, the update is skipped. See `amp.GradScaler`.

Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from miniflow.device import by_device
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dispatch.tape import modes, no_grad
from miniflow.dtype import HALF
from miniflow.ops.inplace import write
from miniflow.ops.promotion import cast, to_device
from miniflow.sbp import all_by_rows, each_element
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
    """The operands of a loss, in float32 where autocast or a graph might choose half precision.

    Outside of autocast, operands in half precision stay so.
    """
    if modes.autocast is None and modes.tracer is None:
        return operands
    return tuple([call(AmpBlackIdentity, x) if _is_floating(x) else x for x in operands])


def _is_floating(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


class ScaleLoss(Op):
    """y = x * scale; `scale` may change from replay to replay of a graph."""

    sbp = each_element

    def backward(ctx, dy):
        return call(ScaleLoss, dy, scale=ctx.attrs["scale"])


class UnscaleGradient(Op):
    """y = x * (1 / scale), the reciprocal rounded to the dtype of x: exact where the scale is a power of two."""

    sbp = each_element

    def backward(ctx, dy):
        return call(UnscaleGradient, dy, scale=ctx.attrs["scale"])


class AnyNonFinite(Op):
    """Whether any element of any input is inf or nan: one 0-dim bool for all of them."""

    def infer(*gradients):
        return (), np.dtype(np.bool_)

    def sbp(*gradients, ranks):
        return all_by_rows(gradients, "maximum")


def scale_loss(loss: Tensor, scale: Any) -> Tensor:
    """loss * scale, in float32 for a half-precision loss, whose range the product would leave.

    Args:
        loss: floating.
        scale: a number, or a `Scalar` while a graph is recorded.
    """
    return call(ScaleLoss, cast(loss, np.float32) if loss._array.dtype in HALF else loss, scale=scale)


@no_grad
def unscale_gradients(gradients: Iterable[Tensor], scale: Any) -> None:
    """Multiply each gradient by 1 / scale, in place; `scale` is a number, or a `Scalar` while a graph is recorded."""
    for g in gradients:
        write(g, "unscale", lambda g=g: call(UnscaleGradient, g, scale=scale))


@no_grad
def any_non_finite(gradients: Sequence[Tensor]) -> Tensor:
    """Whether any element of any of the tensors is inf or nan: a 0-dim bool on the device of the first of them.

    >>> import miniflow as flow
    >>> any_non_finite([flow.zeros(3), flow.tensor([1.0, float("nan")])]).item()
    True
    """
    first, *others = [call(AnyNonFinite, *together) for together in by_device(gradients)]
    for flag in others:
        first = first | to_device(flag, first._device)
    return first
