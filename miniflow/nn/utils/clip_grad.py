"""Bounds on gradients, applied in place between `backward` and `step`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from miniflow.errors import ArgumentError, ArgumentTypeError, AutogradError
from miniflow.ops.creation import tensor
from miniflow.tape import no_grad
from miniflow.tensor import Tensor


def _gradients(name: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for p in parameters:
        if not isinstance(p, Tensor):
            raise ArgumentTypeError(
                f"{name}: got a {type(p).__name__} among the parameters; expected tensors: pass model.parameters()"
            )
    return [p.grad for p in parameters if p.grad is not None]


def _norm(x: Tensor, norm_type: float) -> float:
    """In float32 for half precision, whose range a norm may leave."""
    if x.numel() == 0:
        return 0.0
    return (x.float() if x.element_size() < 4 else x).norm(norm_type).item()


@no_grad
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale all gradients by one factor so that the norm of all of them together is at most `max_norm`.

        grad <- grad * min(1, max_norm / (norm + 1e-6))

    Args:
        parameters: whose gradients to scale; those without a gradient are passed over.
        max_norm: the bound.
        norm_type: p of the p-norm, `inf` for the largest absolute value.
        error_if_nonfinite: refuse to scale by nan or inf; otherwise such a norm spoils all gradients.

    Returns:
        the norm before clipping, a 0-dim tensor.

    Raises:
        ArgumentError: for a negative bound or a norm type that is not above 0.
        AutogradError: if the norm is nan or inf and `error_if_nonfinite` is set; the gradients are then unchanged.

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
    if not norm_type > 0:
        raise ArgumentError(f"clip_grad_norm_: got norm_type={norm_type}; expected a number above 0, or float('inf')")
    gradients = _gradients("clip_grad_norm_", parameters)
    norms = [_norm(g, norm_type) for g in gradients]
    total = total_norm(norms, norm_type)
    if error_if_nonfinite and not math.isfinite(total):
        raise AutogradError(
            f"clip_grad_norm_: the norm of the gradients is {total}; look for the cause with x.isfinite().all(), "
            "or pass error_if_nonfinite=False to go on"
        )
    factor = max_norm / (total + 1e-6)
    if not factor >= 1:  # also when it is nan
        for g in gradients:
            g.mul_(factor)
    return tensor(total, dtype=gradients[0].dtype if gradients else None)


def total_norm(norms: list[float], norm_type: float) -> float:
    """The p-norm of all elements of several tensors, from the p-norms of each."""
    if any(math.isnan(n) for n in norms):
        return math.nan
    largest = max(norms, default=0.0)
    if math.isinf(norm_type) or largest == 0 or math.isinf(largest):
        return largest
    return largest * sum((n / largest) ** norm_type for n in norms) ** (1 / norm_type)


@no_grad
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every element of every gradient to the range from -clip_value to clip_value.

    Raises:
        ArgumentError: for a negative bound.

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
    for g in _gradients("clip_grad_value_", parameters):
        g.clamp_(-clip_value, clip_value)
