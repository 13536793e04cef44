"""Reductions, scans, softmax and normalization."""

from __future__ import annotations

from math import prod

import numpy as np

from miniflow.backends.geometry import reduced_dims
from miniflow.onnx.exporter.handlers.conv import batched
from miniflow.onnx.exporter.handlers.shape import permuted, swapped
from miniflow.onnx.exporter.writer import Value, Writer, fixed, handler


def reduced(g: Writer, x: Value, op: str, *, dim, keepdim: bool, of=None) -> str:
    """ONNX's reduction, of integers in int32 if they have fewer bits, and before that cast to the dtype `of`."""
    result = g.call.outputs[0].dtype
    dtype = np.int32 if result.kind in "iub" and result.itemsize < 4 else result
    y = g("Cast", x if of is None else g("Cast", x, to=of), to=dtype)
    return g("Cast", g(op, y, axes=reduced_dims(len(x.shape), dim) or None, keepdims=keepdim), to=result)


def index_of(g: Writer, x: Value, op: str, *, dim, keepdim: bool) -> str:
    """Where the largest or smallest element is."""
    y = g("Cast", x, to=np.int32) if x.dtype.kind in "iub" else x
    if dim is None or not x.shape:
        return g("Reshape", g(op, g("Reshape", y, [-1]), axis=0), [1] * len(x.shape) * keepdim)
    return g(op, y, axis=dim % len(x.shape), keepdims=keepdim)


REDUCTIONS = {"sum": "Sum", "mean": "Mean", "prod": "Prod", "amax": "Max", "amin": "Min", "logsumexp": "LogSumExp"}
for name, op in REDUCTIONS.items():
    handler(name)(lambda g, x, op=f"Reduce{op}", **attrs: reduced(g, x, op, **attrs))
for name, truth, op in ("max", "any", "Max"), ("min", "all", "Min"):
    handler(truth)(lambda g, x, op=f"Reduce{op}", **attrs: reduced(g, x, op, **attrs, of=bool))
    handler(f"arg{name}")(lambda g, x, op=f"Arg{op}", **attrs: index_of(g, x, op, **attrs))
    handler(f"{name}_dim")(
        lambda g, x, op=op, **attrs: (reduced(g, x, f"Reduce{op}", **attrs), index_of(g, x, f"Arg{op}", **attrs))
    )


@handler("norm")
def norm(g: Writer, x: Value, *, p: float, dim, keepdim: bool) -> str:
    attrs = {"axes": reduced_dims(len(x.shape), dim) or None, "keepdims": keepdim}
    if p == 2:
        return g("ReduceL2", x, **attrs)
    return g("Pow", g("ReduceSum", g("Pow", g("Abs", x), g.scalar(p, x)), **attrs), g.scalar(1 / p, x))


@handler("var")
def var(g: Writer, x: Value, *, dim, correction: float, keepdim: bool) -> str:
    dims = reduced_dims(len(x.shape), dim)
    _, y = moments(g, x, dims, keepdim)
    if correction == 0:
        return y
    count = prod(fixed([x.shape[d] for d in dims]))
    return g("Mul", y, g.scalar(np.divide(count, max(count - correction, 0.0)), x))


handler("std")(lambda g, x, **attrs: g("Sqrt", var(g, x, **attrs)))


def moments(g: Writer, x: Value, dims, keepdim: bool) -> tuple[str, str]:
    """How far x is from its mean over dims, and the mean of the squares of that."""
    deviation = g("Sub", x, g("ReduceMean", x, axes=dims or None))
    return deviation, g("ReduceMean", g("Mul", deviation, deviation), axes=dims or None, keepdims=keepdim)


def softmax(g: Writer, x: Value, op: str, dim: int) -> str:
    """Before opset 13 ONNX's softmax is one over all dims from the given one on, so that this must be the last."""
    if g.opset >= 13 or not x.shape:
        return batched(g, x, len(x.shape) or 1, lambda x: g(op, x, axis=dim))
    order = swapped(len(x.shape), dim, -1)
    return permuted(g, g(op, permuted(g, x, order), axis=len(order) - 1), order)


handler("softmax")(lambda g, x, *, dim: softmax(g, x, "Softmax", dim))
handler("log_softmax")(lambda g, x, *, dim: softmax(g, x, "LogSoftmax", dim))


def scan(g: Writer, x: Value, op: str, dim: int, reverse: bool) -> str:
    x = g("Cast", x, to=g.call.outputs[0].dtype)
    return g(op, x, np.array(dim), reverse=reverse) if g.call.outputs[0].shape else x


handler("cumsum", since=11)(lambda g, x, *, dim, reverse: scan(g, x, "CumSum", dim, reverse))
handler("cumprod", since=26)(lambda g, x, *, dim, reverse: scan(g, x, "CumProd", dim, reverse))


# normalization


def affine_parameters(x: Value, shape, weight, bias=None):
    """Weight and bias; ones and zeros for those that are absent."""
    return tuple(np.full(shape, n, x.dtype) if p is None else p for p, n in ((weight, 1), (bias, 0)))


def normalized(g: Writer, x: Value, dims, eps: float, weight, bias) -> str:
    """(x - mean) / sqrt(var + eps) * weight + bias, with the statistics over some dims."""
    deviation, var = moments(g, x, tuple(dims), True)
    y = g("Div", deviation, g("Sqrt", g("Add", var, g.scalar(eps, x))))
    y = y if weight is None else g("Mul", y, weight)
    return y if bias is None else g("Add", y, bias)


@handler("layer_norm")
def layer_norm(g: Writer, x: Value, weight: Value | None, bias: Value | None, *, dims: int, eps: float) -> str:
    if g.opset < 17 or weight is not None and len(weight.shape) > dims:
        return normalized(g, x, range(len(x.shape))[-dims:], eps, weight, bias)
    weight, _ = affine_parameters(x, x.shape[len(x.shape) - dims :], weight)
    return g("LayerNormalization", x, weight, bias, axis=-dims, epsilon=eps)


@handler("batch_norm_inference")
def batch_norm(g: Writer, x: Value, mean: Value, var: Value, weight, bias, *, eps: float) -> str:
    return g("BatchNormalization", x, *affine_parameters(x, mean.shape, weight, bias), mean, var, epsilon=eps)


@handler("batch_norm")
def batch_norm_of_batch(g: Writer, x: Value, weight: Value | None, bias: Value | None, *, eps: float) -> str:
    behind = list(range(1, len(x.shape) - 1))
    weight, bias = (p if p is None or not behind else g("Unsqueeze", p, axes=behind) for p in (weight, bias))
    return normalized(g, x, [0, *range(2, len(x.shape))], eps, weight, bias)


@handler("instance_norm")
def instance_norm(g: Writer, x: Value, mean, var, weight, bias, use_input_stats: bool, momentum, eps: float) -> str:
    if not use_input_stats:
        return batch_norm(g, x, mean, var, weight, bias, eps=eps)
    return g("InstanceNormalization", x, *affine_parameters(x, x.shape[1:2], weight, bias), epsilon=eps)


@handler("group_norm", since=21)
def group_norm(g: Writer, x: Value, num_groups: int, weight, bias, eps: float) -> str:
    parameters = affine_parameters(x, x.shape[1:2], weight, bias)
    return g("GroupNormalization", x, *parameters, num_groups=num_groups, epsilon=eps)
