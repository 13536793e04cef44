"""Batch and layer normalization: (x - mean) / sqrt(var + eps) * weight + bias, with the statistics over different dims.

First-order gradients are fused kernels that use the saved statistics; with `create_graph` the statistics are computed
again by differentiable ops, so that gradients of any order follow.

The other normalizations are composed: group norm is a layer norm whose rows are the groups, instance norm a batch norm
with the channels of each sample as channels of their own. `normalize` and `renorm` change the lengths of vectors.

Compiled graphs have one op for y = relu(batch_norm(x) + z), z being a residual block's shortcut, in place of two or
three: the normalized array, and its sum with z, are never written to memory. Eager mode does not use it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dispatch.tape import is_grad_enabled, no_grad
from miniflow.dtype import HALF, float32, promote_types
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.ops.creation import ones_like
from miniflow.ops.indexing import where
from miniflow.ops.method import method
from miniflow.ops.padding import pad
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.shape import sum_to_shape
from miniflow.ops.statistics import norm
from miniflow.ops.views import wrap_dim
from miniflow.ops.windows import per_dim
from miniflow.sbp import letters, signatures
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
    """The shape of the weight and bias of a layer norm: that of the last `dims` dims of x; or, with more dims, as group
    norm has them, (..., 1): one number for all elements of the last dim."""
    is_per_group = weight is not None and weight.ndim > dims
    return (*x.shape[x.ndim - weight.ndim : -1], 1) if is_per_group else tuple(x.shape[x.ndim - dims :])


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
        operands = [result, *[None if p is None else result[x.ndim - p.ndim :] for p in (weight, bias)]]
        return signatures(operands, [result, rows, rows])

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
        rows, x_dims = row_letters(x.ndim, dims)
        parameter = x_dims[x.ndim - (dims if weight is None else weight.ndim) :]
        scale = None if weight is None else parameter
        return signatures([x_dims, x_dims, scale, rows, rows], [x_dims, parameter, parameter], linear=[[0]])


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
        expected = f"input (*, {', '.join(map(str, shape)) or 'at least one size'})"
        raise refusal(ShapeError, "layer_norm", expected, input=input, normalized_shape=shape)
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
        x_dims = ".c" + "." * (x.ndim - 2)
        return signatures([x_dims, *[None if p is None else "c" for p in (weight, bias)]], [x_dims, "c", "c"])

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
        x_dims = letters(x.ndim)
        return signatures([x_dims, "b", "b", *[None if p is None else "b" for p in (weight, bias)]], [x_dims])

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
        if not mean.shape == var.shape == x.shape[1:2] or weight is not None and weight.shape != mean.shape:
            raise refusal(
                ShapeError, "batch_norm_grad", "one number per channel", x=x, weight=weight, mean=mean, var=var
            )
        parameter = (x.shape[1:2], x.dtype)
        return [(x.shape, x.dtype), parameter, parameter]

    def sbp(dy, x, weight, mean, var, *, ranks, eps, training):
        x_dims = "." + "b" + "." * (x.ndim - 2) if training else letters(x.ndim)
        scale = None if weight is None else "b"
        return signatures([x_dims, x_dims, scale, "b", "b"], [x_dims, "b", "b"], linear=[[0]])


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


class BatchNormRelu(Op):
    """y = relu((x - mean) / sqrt(var + eps) * weight + bias + z) for each channel, with the statistics of the batch.

    z has the shape of x, or is None for 0.
    """

    made_by_passes = True

    outputs = BatchNorm.outputs

    def infer(x, weight, bias, z, *, eps):
        return BatchNorm.infer(x, weight, bias, eps=eps)


class BatchNormReluInference(Op):
    """The same with given statistics."""

    made_by_passes = True

    def infer(x, mean, var, weight, bias, z, *, eps):
        return BatchNormInference.infer(x, mean, var, weight, bias, eps=eps)


class BatchNormReluGrad(Op):
    """The gradients of x, weight and bias: those of batch norm for dy where y > 0, and 0 elsewhere."""

    made_by_passes = True

    outputs = BatchNormGrad.outputs

    def infer(dy, y, x, weight, mean, var, *, eps, training):
        return BatchNormGrad.infer(dy, x, weight, mean, var, eps=eps, training=training)


@composite
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize each group of channels of each sample: (x - mean) / sqrt(var + eps) * weight + bias.

    Args:
        input: (N, C, ...), floating.
        num_groups: into how many groups of neighbours the channels are divided.
        weight, bias: (C,).
        eps: added to the biased variance.

    Raises:
        ShapeError: if the shapes do not fit together, or the channels cannot be divided.

    Source: Wu, He, "Group Normalization", 2018; `torch.nn.functional.group_norm`.
    """
    shape = tuple(input.shape)
    if len(shape) < 2 or num_groups < 1 or shape[1] % num_groups:
        raise refusal(ShapeError, "group_norm", "(N, C, ...), C divisible", input=input, num_groups=num_groups)
    parameters = {"weight": weight, "bias": bias}
    arrays = {name: None if p is None else p._array for name, p in parameters.items()}
    check_parameters("group_norm", input._array, shape[1:2], **arrays)
    groups = num_groups, shape[1] // num_groups
    if weight is None and bias is not None:
        weight = ones_like(bias)
    parameters = [None if p is None else p.reshape((*groups, 1)) for p in (weight, bias)]
    planes = input.reshape((shape[0], *groups, prod(shape[2:])))
    return call(LayerNorm, planes, *parameters, dims=2, eps=float(eps))[0].reshape(shape)


@composite
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of each sample: (x - mean) / sqrt(var + eps) * weight + bias.

    Args:
        input: (N, C, ...), floating.
        running_mean, running_var: (C,), updated in place with the mean over the samples of their statistics.
        weight, bias: (C,).
        use_input_stats: whether to use the statistics of the input; otherwise the running ones.
        momentum: the share of the input in the new running statistics.
        eps: added to the biased variance.

    Raises:
        ShapeError: if the shapes do not fit together, or there is one value for each channel only.
        ArgumentError: if the running statistics are missing where they are to be used.

    Source: Ulyanov et al., "Instance Normalization", 2016; `torch.nn.functional.instance_norm`.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.ndim < 3:
        raise ShapeError(f"instance_norm: got input {tuple(input.shape)}; expected (N, C, ...) with dims to normalize")
    samples, channels = input.shape[:2]
    per_channel = (running_mean, running_var, weight, bias)
    mean_, var_, weight, bias = (None if p is None else p.tile((samples,)) for p in per_channel)
    one_batch = input.reshape((1, samples * channels, *input.shape[2:]))
    y = batch_norm(one_batch, mean_, var_, weight, bias, True, momentum, eps)
    with no_grad():
        for running, updated in ((running_mean, mean_), (running_var, var_)):
            if running is not None:
                running.copy_(updated.reshape((samples, channels)).mean(0))
    return y.reshape(input.shape)


@takes_tensors
def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, the mean over the last dims; half precision is computed in float32.

    Args:
        input: (*, normalized_shape), floating.
        normalized_shape: the sizes of the last dims.
        weight: normalized_shape.
        eps: added to the mean; None for the precision of the dtype.

    Raises:
        ShapeError: if the shapes do not fit together.

    >>> import miniflow as flow
    >>> flow.nn.functional.rms_norm(flow.tensor([1.0, 7.0]), 2).tolist()
    [0.20000000298023224, 1.399999976158142]

    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019; `torch.nn.functional.rms_norm`.
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ShapeError(f"rms_norm: got input {tuple(input.shape)}; expected (*, {', '.join(map(str, shape))})")
    check_parameters("rms_norm", input._array, shape, weight=None if weight is None else weight._array)
    x = cast(input, promote_types(input.dtype, float32))
    eps = float(np.finfo(x.dtype.numpy).eps) if eps is None else eps
    x = x * ((x * x).mean(tuple(range(-len(shape), 0)), True) + eps).rsqrt()
    return cast(x if weight is None else x * weight, input.dtype)


@takes_tensors
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha mean(x^2))^beta, the mean over `size` neighbouring channels, beyond the first and last ones zeros.

    Args:
        input: (N, C, ...), floating.
        size: how many channels.
        alpha, beta, k: of the formula.

    Raises:
        ShapeError: for fewer than 3 dims.
        ArgumentError: for a size below 1.
        DTypeError: for a size that is no integer.

    Source: Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural Networks", 2012;
    `torch.nn.functional.local_response_norm`.
    """
    require_floating("local_response_norm", input._array)
    if input.ndim < 3:
        raise ShapeError(f"local_response_norm: got input {tuple(input.shape)}; expected (N, C, ...), 3 dims or more")
    (size,) = per_dim("local_response_norm", "size", size, 1)
    squares = pad(input * input, (0, 0) * (input.ndim - 2) + (size // 2, (size - 1) // 2))
    return input / (squares.unfold(1, size, 1).mean(-1) * alpha + k) ** beta


@takes_tensors
def normalize(input: Tensor, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12) -> Tensor:
    """input / max(norm, eps), with the p-norm over `dim`.

    >>> import miniflow as flow
    >>> round(flow.nn.functional.normalize(flow.tensor([3.0, 4.0]), dim=0)[0].item(), 4)
    0.6

    Source: `torch.nn.functional.normalize`.
    """
    return input / norm(input, p, dim, True).clamp(eps)


@takes_tensors
def l2_normalize(input: Tensor, dim: int = 0, epsilon: float = 1e-12) -> Tensor:
    """input / sqrt(max(sum of squares over `dim`, epsilon)).

    Args:
        input: floating, any shape, which the result has too.
        dim: of the vectors.
        epsilon: the smallest sum of squares that counts.

    >>> import miniflow as flow
    >>> flow.nn.functional.l2_normalize(flow.tensor([[3.0], [4.0]]))[0].item()
    0.6000000238418579

    Source: `oneflow.nn.functional.l2_normalize`.
    """
    return normalize(input, 2.0, dim, math.sqrt(epsilon))


@method(in_place=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The slices of `input` along `dim`, each scaled down to a p-norm of `maxnorm` where its own is larger.

    Args:
        input: floating, at least 2 dims.
        p: the exponent of the norm, positive.
        dim: what numbers the slices.
        maxnorm: 0 or more.

    Raises:
        ShapeError: for fewer dims.
        ArgumentError: for another p or maxnorm.

    >>> import miniflow as flow
    >>> flow.renorm(flow.tensor([[3.0, 4.0], [0.3, 0.4]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]], dtype=miniflow.float32)

    Source: `torch.renorm`.
    """
    if input.ndim < 2:
        raise ShapeError(f"renorm: got {tuple(input.shape)}; expected at least 2 dims")
    if p <= 0 or maxnorm < 0:
        raise ArgumentError(f"renorm: got p={p}, maxnorm={maxnorm}; expected p > 0 and maxnorm >= 0")
    dim = wrap_dim("renorm", dim, input.ndim)
    lengths = norm(input, p, tuple([d for d in range(input.ndim) if d != dim]), True)
    return input * where(lengths > maxnorm, maxnorm / (lengths + 1e-7), 1.0)
