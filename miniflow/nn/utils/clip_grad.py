"""Bounds on gradients, applied in place between `backward` and `step`."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from miniflow.device import by_device
from miniflow.dispatch import Op, call, update
from miniflow.errors import ArgumentError, ArgumentTypeError, AutogradError
from miniflow.ops.creation import tensor
from miniflow.ops.promotion import require_floating
from miniflow.tape import modes, no_grad
from miniflow.tensor import Tensor

FLOAT64 = np.dtype(np.float64)


class TotalNorm(Op):
    """The p-norm of all elements of all inputs as one vector: 0-dim, float32, or float64 if an input has that."""

    def infer(*gradients, norm_type):
        kinds = {g.dtype: g for g in gradients}
        for g in kinds.values():
            require_floating("clip_grad_norm_", g)
        return (), FLOAT64 if FLOAT64 in kinds else np.dtype(np.float32)

    def sbp(*gradients, ranks, norm_type):
        return []


class ClipGradNorm(Op):
    """gradient <- gradient * min(1, max_norm / (norm + 1e-6)), in place."""

    outputs = ("gradients",)
    groups = 2  # gradients, norms (0-dim)
    mutates = (0,)


class ClipGradValue(Op):
    """gradient <- the nearest number from -clip_value to clip_value, in place."""

    outputs = ("gradients",)
    groups = 1  # gradients
    mutates = (0,)


def _gradients(name: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in parameters:
        if not isinstance(p, Tensor):
            raise ArgumentTypeError(
                f"{name}: got a {type(p).__name__} among the parameters; expected tensors: pass model.parameters()"
            )
    if modes.watcher is not None:
        modes.watcher.before_clipping(name)
    return [p._grad for p in parameters if p._grad is not None]


@no_grad
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale all gradients by one factor so that the norm of all of them together is at most `max_norm`.

        grad <- grad * min(1, max_norm / (norm + 1e-6))

    Args:
        parameters: whose gradients to scale; those without a gradient are skipped.
        max_norm: the bound.
        norm_type: p of the p-norm, `inf` for the largest absolute value.
        error_if_nonfinite: refuse to scale by nan or inf; otherwise such a norm makes all gradients nan or 0.

    Returns:
        the norm before clipping, a 0-dim tensor.

    Raises:
        ArgumentError: for a negative bound or a norm type that is not above 0.
        AutogradError: if the norm is nan or inf and `error_if_nonfinite` is set; the gradients are then unchanged.
        GraphTraceError: if `error_if_nonfinite` is set while a graph is recorded.
        GraphError: within the build of a graph that scales or accumulates gradients.
        ShapeError: for a gradient that is an expanded view.

    >>> import miniflow as flow
    >>> w = flow.zeros(2, requires_grad=True)
    >>> w.grad = flow.tensor([3.0, 4.0])
    >>> flow.nn.utils.clip_grad_norm_([w], 1.0).item()
    5.0
    >>> w.grad
    tensor([0.6000, 0.8000], dtype=miniflow.float32)

    Source: `torch.nn.utils.clip_grad_norm_`; Pascanu et al. 2013, "On the difficulty of training recurrent networks".
    """
    if not max_norm >= 0:
        raise ArgumentError(f"clip_grad_norm_: got max_norm={max_norm}; expected a number of at least 0")
    norm_type = float(norm_type)
    if not norm_type > 0:
        raise ArgumentError(f"clip_grad_norm_: got norm_type={norm_type}; expected a number above 0, or float('inf')")
    gradients = _gradients("clip_grad_norm_", parameters)
    if not gradients:
        return tensor(0.0)
    places = by_device(gradients)
    norms = [call(TotalNorm, *some, norm_type=norm_type) for some in places]
    total = norms[0]
    if len(places) > 1:
        total = call(TotalNorm, *[norm.to(total._place) for norm in norms], norm_type=norm_type)
    if error_if_nonfinite:
        _refuse_nonfinite(total)
    for some in places:
        update(ClipGradNorm, some, [total.to(some[0]._place)] * len(some), max_norm=max_norm)
    return total.to(gradients[0].dtype)


def _refuse_nonfinite(total: Tensor) -> None:
    if modes.tracer is not None:
        modes.tracer.fail(
            "clip_grad_norm_: error_if_nonfinite=True has to look at the norm, which has no value yet while a graph is "
            "recorded; use error_if_nonfinite=False, or a GradScaler, which skips steps that are not finite"
        )
    if not math.isfinite(total.item()):
        raise AutogradError(
            f"clip_grad_norm_: the norm of the gradients is {total.item()}; look for the cause with "
            "x.isfinite().all(), or pass error_if_nonfinite=False to go on"
        )


@no_grad
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every element of every gradient to the range from -clip_value to clip_value.

    Raises:
        ArgumentError: for a negative bound.
        GraphError: within the build of a graph that scales or accumulates gradients.

    >>> import miniflow as flow
    >>> w = flow.zeros(2, requires_grad=True)
    >>> w.grad = flow.tensor([3.0, -0.5])
    >>> flow.nn.utils.clip_grad_value_([w], 1.0)
    >>> w.grad.tolist()
    [1.0, -0.5]

    Source: `torch.nn.utils.clip_grad_value_`.
    """
    if not clip_value >= 0:
        raise ArgumentError(f"clip_grad_value_: got clip_value={clip_value}; expected a number of at least 0")
    for some in by_device(_gradients("clip_grad_value_", parameters)):
        update(ClipGradValue, some, clip_value=clip_value)
