"""Losses between numbers and distributions: Huber, Kullback-Leibler, Poisson and Gaussian likelihoods."""

from __future__ import annotations

import math

from miniflow.backends.memory import peek
from miniflow.errors import ArgumentError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.amp_identity import in_float32
from miniflow.ops.loss import difference, loss, reduced
from miniflow.ops.piecewise import where
from miniflow.ops.promotion import broadcast_shape
from miniflow.tensor import Tensor


@loss
def smooth_l1_loss(input: Tensor, target: Tensor, *, beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| is below beta, else d - beta / 2, reduced.

    Args:
        input, target: floating, of the same shape; other shapes are broadcast, with a warning.
        reduction: "mean", "sum" or "none".
        beta: where the parabola ends, not negative; 0 gives `l1_loss`.

    Raises:
        ArgumentError: for a negative beta, or an unknown reduction.

    >>> import miniflow as flow
    >>> flow.nn.functional.smooth_l1_loss(flow.zeros(2), flow.tensor([0.5, 3.0]), reduction="none").tolist()
    [0.125, 2.5]

    Source: `torch.nn.functional.smooth_l1_loss`; Girshick, "Fast R-CNN", 2015.
    """
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: got beta={beta}; expected a number that is not negative")
    if beta == 0:
        return abs(difference("smooth_l1_loss", input, target))
    return _huber("smooth_l1_loss", input, target, beta) / beta


@takes_tensors
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d^2 / 2 where d = |input - target| is below delta, else delta (d - delta / 2), reduced.

    Args:
        input, target: floating, of the same shape; other shapes are broadcast, with a warning.
        reduction: "mean", "sum" or "none".
        delta: where the parabola ends, positive.

    Raises:
        ArgumentError: for another delta, or an unknown reduction.

    Source: `torch.nn.functional.huber_loss`; Huber, "Robust Estimation of a Location Parameter", 1964.
    """
    if delta <= 0:
        raise ArgumentError(f"huber_loss: got delta={delta}; expected a positive number")
    return reduced("huber_loss", _huber("huber_loss", *in_float32(input, target), delta), reduction)


def _huber(op: str, input: Tensor, target: Tensor, delta: float) -> Tensor:
    distance = abs(difference(op, input, target))
    cut = distance.minimum(delta)
    return cut * (distance - cut * 0.5)


@takes_tensors
def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """The Kullback-Leibler divergence target (log target - input), reduced; 0 where the target is 0.

    Args:
        input: log-probabilities, floating.
        target: probabilities, broadcast with `input`.
        reduction: "mean" (over all elements), "batchmean" (the sum, divided by the first size: the divergence as it is
            defined), "sum" or "none".
        log_target: whether the target holds log-probabilities.

    Raises:
        ArgumentError: for an unknown reduction.

    >>> import miniflow as flow
    >>> p = flow.tensor([[0.5, 0.5]])
    >>> flow.nn.functional.kl_div(p.log(), p, reduction="batchmean").item()
    0.0

    Source: `torch.nn.functional.kl_div`.
    """
    input, target = in_float32(input, target)
    if log_target:
        loss = target.exp() * (target - input)
    else:
        some = target != 0
        loss = where(some, target * where(some, target, 1.0).log(), 0.0) - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    return reduced("kl_div", loss, reduction)


@loss
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, *, eps: float = 1e-8
) -> Tensor:
    """The negative log-likelihood of Poisson's distribution: exp(x) - t x, or x - t log(x + eps), reduced.

    Args:
        input: x, the logarithm of the rate, or the rate itself.
        target: t, the counts, broadcast with `input`.
        log_input: whether `input` is the logarithm.
        full: add Stirling's approximation of log t!, t log t - t + log(2 pi t) / 2, where t > 1.
        eps: keeps the logarithm finite.
        reduction: "mean", "sum" or "none".

    Source: `torch.nn.functional.poisson_nll_loss`.
    """
    if log_input:
        loss = input.exp() - target * input
    else:
        loss = input - target * (input + eps).log()
    if full:
        several = target > 1
        t = where(several, target, 1.0)
        stirling = t * t.log() - t + (t * (2 * math.pi)).log() * 0.5
        loss = loss + where(several, stirling, 0.0)
    return loss


@takes_tensors
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of a normal distribution: (log v + (input - target)^2 / v) / 2, reduced.

    Args:
        input, target: the mean and the samples, broadcast with each other.
        var: v, a number or a tensor that is broadcast with `input`; it may lack the last dim.
        full: add the constant log(2 pi) / 2.
        eps: smaller variances count as this one; they get their gradient all the same.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: for a `var` of a shape that does not fit.
        ArgumentError: for a negative variance, or an unknown reduction.

    Source: `torch.nn.functional.gaussian_nll_loss`; Nix, Weigend, "Estimating the Mean and Variance of the Target
    Probability Distribution", 1994.
    """
    var = var if isinstance(var, Tensor) else input.new_full((), var)
    input, target, var = in_float32(input, target, var)
    shape = tuple(input.shape)
    if var.ndim and tuple(var.shape) == shape[:-1] != shape:
        var = var.unsqueeze(-1)
    elif broadcast_shape("gaussian_nll_loss", shape, var.shape) != shape:
        raise ShapeError(f"gaussian_nll_loss: got var {tuple(var.shape)} for input {shape}; expected {shape[:-1]}")
    values = peek(var._array)
    if values is not None and (values < 0).any():
        raise ArgumentError(f"gaussian_nll_loss: got a variance of {values.min()}; expected none below 0")
    var = where(var < eps, var - var.detach() + eps, var)
    error = input - target
    loss = (var.log() + error * error / var) * 0.5
    return reduced("gaussian_nll_loss", loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)
