"""Batch and layer normalization: (x - mean) / sqrt(var + eps) * weight + bias, with the statistics over different dims.

First-order gradients are fused kernels that use the saved statistics; with `create_graph` the statistics are computed
again by differentiable ops, so that gradients of any order follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from miniflow.dispatch import Op, call
from miniflow.dtype import HALF
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.operands import takes_tensors
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.shape import sum_to_shape
from miniflow.sbp import letters, signatures
from miniflow.tape import is_grad_enabled, no_grad
from miniflow.tensor import Tensor

STATISTICS = np.dtype(np.float64)


def check_parameters(op: str, x: Any, expected: tuple[int, ...], **parameters: Any) -> None:
    """The rule for weight, bias and running statistics.

    Raises:
        ShapeError: if one does not have the expected shape.
        DTypeError: if one does not have the dtype of x; float32 is accepted for a half-precision x.
    """
    require_floating(op, x)
    for name, p in parameters.items():
        if p is None:
            continue
        if p.shape != expected:
            raise ShapeError(f"{op}: got {name} {p.shape} for input {x.shape}; expected {expected}")
        if p.dtype != x.dtype and not (x.dtype in HALF and p.dtype == np.float32):
            raise DTypeError(f"{op}: got {name} of {p.dtype} for input of {x.dtype}; expected the same dtype: use .to")


def normalized(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """(x - mean) / sqrt(var + eps) over `dims`, and 1 / sqrt(var + eps), in differentiable ops."""
    deviation = x - x.mean(dims, True)
    rstd = ((deviation * deviation).mean(dims, True) + eps).rsqrt()
    return deviation * rstd, rstd


def gradient_of_normalized(g: Tensor, xhat: Tensor, rstd: Tensor, dims: tuple[int, ...]) -> Tensor:
    """dx = rstd (g - mean(g) - xhat mean(g xhat)), where g is the cotangent of xhat."""
    projection = xhat * (g * xhat).mean(dims, True)
    return rstd * (g - g.mean(dims, True) - projection)


def row_letters(ndim: int, dims: int) -> tuple[str, str]:
    """For `sbp.signatures`: letters for the dims of the rows, all but the last `dims`, and for those of the tensor."""
    rows = letters(ndim - dims)
    return rows, rows + "." * dims


def parameter_shape(x: Any, weight: Any, dims: int) -> tuple[int, ...]:
    """What a layer norm's weight and bias have to be: a number for each element of the last `dims` dims of x; or with
    more dims than those, as group norm has them, (..., 1): one for all elements of the last dim."""
    more = weight is not None and weight.ndim > dims
    return (*x.shape[x.ndim - weight.ndim : -1], 1) if more else tuple(x.shape[x.ndim - dims :])


class LayerNorm(Op):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over the last `dims` dims. Ba, Kiros, Hinton 2016."""

    amp = "gray"
    keeps_float32 = (1, 2)
    outputs = ("y", "mean", "rstd")
    nondifferentiable = ("mean", "rstd")
    saves = ("x", "weight", "mean", "rstd")

    def infer(x, weight, bias, *, dims, eps):
        check_parameters("layer_norm", x, parameter_shape(x, weight, dims), weight=weight, bias=bias)
        rows = x.shape[: x.ndim - dims]
        return [(x.shape, x.dtype), (rows, STATISTICS), (rows, STATISTICS)]

    def sbp(x, weight, bias, *, ranks, dims, eps):
        rows, result = row_letters(x.ndim, dims)
        given = [result, *[None if p is None else result[x.ndim - p.ndim :] for p in (weight, bias)]]
        return signatures(given, [result, rows, rows])

    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved
        dims = ctx.attrs["dims"]
        if not is_grad_enabled():
            return call(LayerNormGrad, dy, x, weight, mean, rstd, dims=dims)
        last = tuple(range(x.ndim - dims, x.ndim))
        xhat, rstd = normalized(x, last, ctx.attrs["eps"])
        dx = gradient_of_normalized(dy if weight is None else dy * weight, xhat, rstd, last)
        shape = parameter_shape(x, weight, dims)
        return dx, sum_to_shape(dy * xhat, shape), sum_to_shape(dy, shape)


class LayerNormGrad(Op):
    """dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy weight; dweight = sum dy xhat; dbias = sum dy."""

    amp = "gray"
    keeps_float32 = (2,)
    outputs = ("dx", "dweight", "dbias")

    def infer(dy, x, weight, mean, rstd, *, dims):
        parameter = (parameter_shape(x, weight, dims), x.dtype)
        return [(x.shape, x.dtype), parameter, parameter]

    def sbp(dy, x, weight, mean, rstd, *, ranks, dims):
        rows, given = row_letters(x.ndim, dims)
        parameter = given[x.ndim - (dims if weight is None else weight.ndim) :]
        scale = None if weight is None else parameter
        return signatures([given, given, scale, rows, rows], [given, parameter, parameter], linear=[[0]])


@takes_tensors
def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over the last dims: (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance.

    Args:
        input: (*, normalized_shape), floating.
        normalized_shape: the sizes of the last dims, over which mean and variance are taken.
        weight, bias: normalized_shape.
        eps: added to the variance.

    Raises:
        ShapeError: if the last dims of `input`, or the shapes of weight and bias, are not `normalized_shape`.
        DTypeError: for integers and bool, or parameters of another dtype.

    >>> import miniflow as flow
    >>> y = flow.nn.functional.layer_norm(flow.tensor([[1.0, 3.0], [0.0, 10.0]]), 2)
    >>> [[round(v, 3) for v in row] for row in y.tolist()]
    [[-1.0, 1.0], [-1.0, 1.0]]

    Source: Ba, Kiros, Hinton, "Layer Normalization", 2016; `torch.nn.functional.layer_norm`.
    """
    shape = (normalized_shape,) if hasattr(normalized_shape, "__index__") else tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        wanted = f"input (*, {', '.join(map(str, shape)) or 'at least one size'})"
        raise refusal(ShapeError, "layer_norm", wanted, input=input, normalized_shape=shape)
    if weight is not None and weight.ndim > len(shape):  # which is what group norm has
        check_parameters("layer_norm", input._array, shape, weight=weight._array)
    return call(LayerNorm, input, weight, bias, dims=len(shape), eps=float(eps))[0]


class BatchNorm(Op):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for each channel, with the statistics of the batch.

    Ioffe, Szegedy 2015.
    """

    amp = "gray"
    keeps_float32 = (1, 2)
    outputs = ("y", "mean", "var")
    nondifferentiable = ("mean", "var")
    saves = ("x", "weight", "mean", "var")

    def infer(x, weight, bias, *, eps):
        check_batch(x, weight=weight, bias=bias)
        statistic = (x.shape[1:2], STATISTICS)
        return [(x.shape, x.dtype), statistic, statistic]

    def sbp(x, weight, bias, *, ranks, eps):
        given = ".c" + "." * (x.ndim - 2)
        return signatures([given, *[None if p is None else "c" for p in (weight, bias)]], [given, "c", "c"])

    def backward(ctx, dy):
        x, weight, mean, var = ctx.saved
        eps = ctx.attrs["eps"]
        if not is_grad_enabled():
            return call(BatchNormGrad, dy, x, weight, mean, var, eps=eps, training=True)
        dims = _not_channels(x)
        xhat, rstd = normalized(x, dims, eps)
        return gradient_of_normalized(_weighted(dy, weight), xhat, rstd, dims), (dy * xhat).sum(dims), dy.sum(dims)


class BatchNormInference(Op):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for each channel, with given statistics."""

    amp = "gray"
    keeps_float32 = (1, 2, 3, 4)
    saves = ("x", "mean", "var", "weight")

    def infer(x, mean, var, weight, bias, *, eps):
        check_batch(x, running_mean=mean, running_var=var, weight=weight, bias=bias)
        return x.shape, x.dtype

    def sbp(x, mean, var, weight, bias, *, ranks, eps):
        given = letters(x.ndim)
        return signatures([given, "b", "b", *[None if p is None else "b" for p in (weight, bias)]], [given])

    def backward(ctx, dy):
        x, mean, var, weight = ctx.saved
        eps = ctx.attrs["eps"]
        if not is_grad_enabled():
            dx, dweight, dbias = call(BatchNormGrad, dy, x, weight, mean, var, eps=eps, training=False)
            return dx, None, None, dweight, dbias
        dims, rstd = _not_channels(x), _per_channel((var + eps).rsqrt(), x)
        xhat = (x - _per_channel(mean, x)) * rstd
        return _weighted(dy, weight) * rstd, None, None, (dy * xhat).sum(dims), dy.sum(dims)


class BatchNormGrad(Op):
    """dweight = sum dy xhat; dbias = sum dy; dx = weight rstd (dy - (dbias + xhat dweight) / count).

    Outside of training the statistics do not depend on x, and dx = weight rstd dy.
    """

    amp = "gray"
    keeps_float32 = (2, 3, 4)
    outputs = ("dx", "dweight", "dbias")

    def infer(dy, x, weight, mean, var, *, eps, training):
        if dy.shape != x.shape:
            raise ShapeError(f"batch_norm: got a gradient of shape {dy.shape}; expected {x.shape}, that of the input")
        parameter = (x.shape[1:2], x.dtype)
        return [(x.shape, x.dtype), parameter, parameter]

    def sbp(dy, x, weight, mean, var, *, ranks, eps, training):
        given = "." + "b" + "." * (x.ndim - 2) if training else letters(x.ndim)
        scale = None if weight is None else "b"
        return signatures([given, given, scale, "b", "b"], [given, "b", "b"], linear=[[0]])


def check_batch(x: Any, **parameters: Any) -> None:
    """The shape rule of batch norm.

    Raises:
        ShapeError, DTypeError: if the input is not (N, C, ...), or a parameter not (C,).
    """
    if x.ndim < 2:
        raise ShapeError(f"batch_norm: got input {x.shape}; expected (N, C) or (N, C, ...): use unsqueeze(0)")
    check_parameters("batch_norm", x, (x.shape[1],), **parameters)


def _not_channels(x: Tensor) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _per_channel(p: Tensor, x: Tensor) -> Tensor:
    return p.reshape((-1, *(1,) * (x.ndim - 2)))


def _weighted(dy: Tensor, weight: Tensor | None) -> Tensor:
    return dy if weight is None else dy * _per_channel(weight, dy)


@takes_tensors
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel: (x - mean) / sqrt(var + eps) * weight + bias.

    In training, mean and variance (biased) are those of the batch, over all dims but the channels; the running
    statistics, where given, are updated in place: running = (1 - momentum) * running + momentum * batch, with the
    unbiased variance; an empty batch leaves them as they are. Otherwise the running statistics are used.

    Args:
        input: (N, C) or (N, C, ...), floating.
        running_mean, running_var: (C,); both may be None in training.
        weight, bias: (C,).
        training: use the statistics of the batch.
        momentum: the share of the batch in the new running statistics, a number or a 0-dim tensor.
        eps: added to the variance.

    Raises:
        ShapeError: if the shapes do not fit together, or training sees one value for each channel only.
        DTypeError: for integers and bool, or parameters of another dtype.
        ArgumentError: if the running statistics are missing outside of training.

    >>> import miniflow as flow
    >>> y = flow.nn.functional.batch_norm(flow.tensor([[1.0, 0.0], [3.0, 10.0]]), None, None, training=True)
    >>> [[round(v, 3) for v in row] for row in y.tolist()]
    [[-1.0, -1.0], [1.0, 1.0]]

    Source: Ioffe, Szegedy, "Batch Normalization", 2015; `torch.nn.functional.batch_norm`.
    """
    if not training:
        if running_mean is None or running_var is None:
            raise ArgumentError("batch_norm: got no running statistics; expected both, or training=True")
        return call(BatchNormInference, input, running_mean, running_var, weight, bias, eps=float(eps))
    shape = input.shape
    count = prod(shape[:1] + shape[2:])
    if count == 1:
        raise ShapeError(f"batch_norm: got one value per channel in input {tuple(shape)}; expected more in training")
    y, batch_mean, batch_var = call(BatchNorm, input, weight, bias, eps=float(eps))
    if running_mean is not None and count > 1:
        _update(running_mean, batch_mean, momentum, 1.0)
    if running_var is not None and count > 1:
        _update(running_var, batch_var, momentum, count / (count - 1))
    return y


@no_grad()
def _update(running: Tensor, batch: Tensor, momentum: float | Tensor, correction: float) -> None:
    if running.shape != batch.shape:
        raise ShapeError(f"batch_norm: got running statistics {tuple(running.shape)}; expected {tuple(batch.shape)}")
    running.mul_(1.0 - momentum).add_(cast(batch * (momentum * correction), running.dtype))
