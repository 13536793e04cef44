"""Bounds on gradients, applied in place between `backward` and `step`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from miniflow.device import by_device
from miniflow.dispatch.dispatcher import Op, call, update
from miniflow.dispatch.tape import modes, no_grad
from miniflow.errors import ArgumentError, ArgumentTypeError, AutogradError
from miniflow.ops.creation import tensor
from miniflow.ops.promotion import require_floating
from miniflow.sbp import P, all_by_rows
from miniflow.tensor import Tensor

FLOAT64 = np.dtype(np.float64)


class TotalNorm(Op):
    """The p-norm of all elements of all inputs as one vector: 0-dim, float32, or float64 if an input has that."""

    def infer(*gradients, norm_type):
        dtypes = {g.dtype: g for g in gradients}
        for g in dtypes.values():
            require_floating("clip_grad_norm_", g)
        return (), FLOAT64 if FLOAT64 in dtypes else np.dtype(np.float32)

    def sbp(*gradients, ranks, norm_type):
        by = {1: P, 2: "hypot", math.inf: "maximum"}.get(norm_type)
        return [] if by is None else all_by_rows(gradients, by)


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


def _tensors(name: str, parameter: str, values: Tensor | Iterable[Tensor], remedy: str) -> list[Tensor]:
    if not isinstance(values, Iterable):
        raise ArgumentTypeError(f"{name}: got {parameter} of type {type(values).__name__}; expected tensors: {remedy}")
    tensors = [values] if isinstance(values, Tensor) else list(values)
    for x in tensors:
        if not isinstance(x, Tensor):
            type_name = type(x).__name__
            raise ArgumentTypeError(f"{name}: got a {type_name} among the {parameter}; expected tensors: {remedy}")
    return tensors


def _gradients(name: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    parameters = _tensors(name, "parameters", parameters, "pass model.parameters()")
    if modes.tracer is not None:
        modes.tracer.before_clipping(name)
    return [p._grad for p in parameters if p._grad is not None]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients by one factor so that the norm of all of them together is at most `max_norm`.

        grad <- grad * min(1, max_norm / (norm + 1e-6))

    Args:
        parameters: whose gradients to scale; those without a gradient are skipped.
        max_norm: the bound.
        norm_type: p of the p-norm, `inf` for the largest absolute value.
        error_if_nonfinite: refuse to scale by nan or inf; otherwise such a norm makes all gradients nan or 0.
        foreach: accepted as in PyTorch.

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
    check_bound("clip_grad_norm_", max_norm)
    return clip_to_norm(parameters, max_norm, norm_type, error_if_nonfinite)


@no_grad
def clip_to_norm(
    parameters: Tensor | Iterable[Tensor], max_norm: Any, norm_type: float, error_if_nonfinite: bool
) -> Tensor:
    """`clip_grad_norm_` by a bound that was checked, or a `Scalar` while a graph is recorded."""
    gradients = _gradients("clip_grad_norm_", parameters)
    total = _total_norm("clip_grad_norm_", gradients, norm_type, error_if_nonfinite)
    _scale(gradients, max_norm, total)
    return total.to(gradients[0].dtype) if gradients else total


def check_bound(name: str, max_norm: float) -> None:
    """Raise ArgumentError for a negative bound."""
    if not max_norm >= 0:
        raise ArgumentError(f"{name}: got max_norm={max_norm}; expected a number of at least 0")


def _total_norm(name: str, tensors: list[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    norm_type = float(norm_type)
    if not norm_type > 0:
        raise ArgumentError(f"{name}: got norm_type={norm_type}; expected a number above 0, or float('inf')")
    if not tensors:
        return tensor(0.0)
    norms = [call(TotalNorm, *group, norm_type=norm_type) for group in by_device(tensors)]
    total = norms[0]
    if len(norms) > 1:
        total = call(TotalNorm, *[norm.to(total._device) for norm in norms], norm_type=norm_type)
    if error_if_nonfinite:
        _refuse_nonfinite(name, total)
    return total


def _scale(gradients: list[Tensor], max_norm: float, total: Tensor) -> None:
    for group in by_device(gradients):
        update(ClipGradNorm, group, [total.to(group[0]._device)] * len(group), max_norm=max_norm)


@no_grad
def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:  # fmt: skip
    """The norm of all elements of all tensors as one vector.

    Args:
        tensors: gradients, for example; floating.
        norm_type: p of the p-norm, `inf` for the largest absolute value.
        error_if_nonfinite: refuse a norm of nan or inf.
        foreach: accepted as in PyTorch.

    Returns:
        a 0-dim tensor of the dtype of the first.

    Raises:
        ArgumentError: for a norm type that is not above 0.
        ArgumentTypeError, DTypeError: for something that is not a tensor, and for integers.
        AutogradError: if the norm is nan or inf and `error_if_nonfinite` is set.

    >>> import miniflow as flow
    >>> flow.nn.utils.get_total_norm([flow.tensor([3.0]), flow.tensor([[4.0]])]).item()
    5.0

    Source: `torch.nn.utils.get_total_norm`.
    """
    tensors = _tensors("get_total_norm", "tensors", tensors, "leave out gradients that are None")
    for x in tensors:
        require_floating("get_total_norm", x._array)
    total = _total_norm("get_total_norm", tensors, norm_type, error_if_nonfinite)
    return total.to(tensors[0].dtype) if tensors else total


@no_grad
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients by min(1, max_norm / (total_norm + 1e-6)), a norm that is known.

    Args:
        parameters: whose gradients to scale; those without a gradient are skipped.
        max_norm: the bound.
        total_norm: 0-dim, as of `get_total_norm`.
        foreach: accepted as in PyTorch.

    Raises:
        ArgumentError: for a negative bound.
        ArgumentTypeError: for a norm that is not a tensor.
        GraphError: within the build of a graph that scales or accumulates gradients.

    Source: `torch.nn.utils.clip_grads_with_norm_`.
    """
    check_bound("clip_grads_with_norm_", max_norm)
    if not isinstance(total_norm, Tensor):
        got = f"total_norm of type {type(total_norm).__name__}"
        raise ArgumentTypeError(f"clip_grads_with_norm_: got {got}; expected a tensor, as of get_total_norm")
    _scale(_gradients("clip_grads_with_norm_", parameters), max_norm, total_norm.detach())


def _refuse_nonfinite(name: str, total: Tensor) -> None:
    if modes.tracer is not None:
        modes.tracer.fail(
            f"{name}: error_if_nonfinite=True has to look at the norm, which has no value yet while a graph is "
            "recorded; use error_if_nonfinite=False, or a GradScaler, which skips steps that are not finite"
        )
    if not math.isfinite(total.item()):
        raise AutogradError(
            f"{name}: the norm of the gradients is {total.item()}; look for the cause with "
            "x.isfinite().all(), or pass error_if_nonfinite=False to go on"
        )


@no_grad
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of every gradient to the range from -clip_value to clip_value; foreach is as in PyTorch.

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
    for group in by_device(_gradients("clip_grad_value_", parameters)):
        update(ClipGradValue, group, clip_value=clip_value)
