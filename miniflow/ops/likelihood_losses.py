"""Negative log-likelihoods of Poisson and normal distributions."""

from __future__ import annotations

import math

from miniflow.backends.memory import peek
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.indexing import where
from miniflow.ops.loss_scale import in_float32
from miniflow.ops.losses import loss, reduced
from miniflow.ops.promotion import broadcast_shape
from miniflow.tensor import Tensor


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
        above_one = target > 1
        t = where(above_one, target, 1.0)
        stirling = t * t.log() - t + (t * (2 * math.pi)).log() * 0.5
        loss = loss + where(above_one, stirling, 0.0)
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
