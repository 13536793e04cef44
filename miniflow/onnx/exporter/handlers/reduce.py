"""Reductions, scans, and softmax."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from miniflow.onnx.exporter.handlers.elementwise import cast
from miniflow.onnx.exporter.handlers.shape import fixed, permuted, squeeze, unsqueeze
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer, onnx_type

BOOL, INT32 = np.dtype(np.bool_), np.dtype(np.int32)
Dims = int | tuple[int, ...] | None


def reduced(g: Writer, op: str, x: Any, dim: Dims, keepdim: bool) -> str:
    """ONNX's reduction; its dims are an input from opset 18 on, those of ReduceSum from 13 on."""
    dims = None if dim is None or dim == () else [dim] if isinstance(dim, int) else list(dim)
    if g.opset >= (13 if op == "ReduceSum" else 18):
        return g(op, x, None if dims is None else g.ints(*dims), keepdims=int(keepdim))
    return g(op, x, axes=dims, keepdims=int(keepdim))


def reduction(g: Writer, x: Value, *, dim: Dims, keepdim: bool, op: str) -> str:
    result = g.call.outputs[0].dtype
    kind = INT32 if result.kind in "iub" and result.itemsize < 4 else result
    y = reduced(g, op, cast(g, x, kind), positive(x, dim), keepdim)
    return y if kind == result else g("Cast", y, to=onnx_type(result))


def positive(x: Value, dim: Dims) -> Dims:
    """The dims to reduce, counted from the front; None for all."""
    if dim is None or dim == () or not x.shape:
        return None
    return tuple(d % len(x.shape) for d in ([dim] if isinstance(dim, int) else dim))


REDUCTIONS = {"sum": "Sum", "mean": "Mean", "prod": "Prod", "amax": "Max", "amin": "Min", "logsumexp": "LogSumExp"}
for name, op in REDUCTIONS.items():
    handler(name)(lambda g, x, op=op, **attributes: reduction(g, x, op=f"Reduce{op}", **attributes))


@handler("any")
def any_(g: Writer, x: Value, *, dim: Dims, keepdim: bool, op: str = "ReduceMax") -> str:
    truths = g("Cast", cast(g, x, BOOL), to=onnx_type(INT32))
    return g("Cast", reduced(g, op, truths, positive(x, dim), keepdim), to=onnx_type(BOOL))


handler("all")(lambda g, x, **attributes: any_(g, x, **attributes, op="ReduceMin"))


@handler("argmax")
def argmax(g: Writer, x: Value, *, dim: int | None, keepdim: bool, op: str = "ArgMax") -> str:
    y = cast(g, x, INT32) if x.dtype.kind in "iub" and x.dtype.itemsize != 4 else x
    if dim is None or not x.shape:
        y = g(op, g("Reshape", y, g.ints(-1)), axis=0, keepdims=0)
        return g("Reshape", y, g.ints(*[1] * len(x.shape) * keepdim))
    return g(op, y, axis=dim % len(x.shape), keepdims=int(keepdim))


handler("argmin")(lambda g, x, **attributes: argmax(g, x, **attributes, op="ArgMin"))
for name in ("Max", "Min"):
    handler(f"{name.lower()}_dim")(
        lambda g, x, name=name, **given: (
            reduction(g, x, op=f"Reduce{name}", **given), argmax(g, x, op=f"Arg{name}", **given)
        )
    )  # fmt: skip


@handler("norm")
def norm(g: Writer, x: Value, *, p: float, dim: Dims, keepdim: bool) -> str:
    if p == 2:
        return reduced(g, "ReduceL2", x, positive(x, dim), keepdim)
    powers = g("Pow", g("Abs", x), g.scalar(p, x))
    return g("Pow", reduced(g, "ReduceSum", powers, positive(x, dim), keepdim), g.scalar(1 / p, x))


@handler("var")
def var(g: Writer, x: Value, *, dim: Dims, correction: float, keepdim: bool) -> str:
    dims = positive(x, dim)
    _, y = moments(g, x, dims, keepdim)
    if correction == 0:
        return y
    count = prod(fixed([x.shape[d] for d in (range(len(x.shape)) if dims is None else dims)]))
    return g("Mul", y, g.scalar(np.divide(count, max(count - correction, 0.0)), x))


handler("std")(lambda g, x, **attributes: g("Sqrt", var(g, x, **attributes)))


def moments(g: Writer, x: Value, dims: Dims, keepdim: bool) -> tuple[str, str]:
    """How far x is from its mean over dims, and the mean of the squares of that."""
    deviation = g("Sub", x, reduced(g, "ReduceMean", x, dims, True))
    return deviation, reduced(g, "ReduceMean", g("Mul", deviation, deviation), dims, keepdim)


def softmax(g: Writer, x: Value, *, dim: int, op: str) -> str:
    """Before opset 13 ONNX's softmax is one over all dims from the given one on, so that this must be the last."""
    ndim = len(x.shape)
    if ndim == 0:
        return squeeze(g, g(op, unsqueeze(g, x, 0), axis=0), 0)
    dim %= ndim
    order = list(range(ndim))
    if g.opset < 13:
        order[dim], order[-1], dim = ndim - 1, dim, ndim - 1
    return permuted(g, g(op, permuted(g, x, order), axis=dim), order)


handler("softmax")(lambda g, x, *, dim: softmax(g, x, dim=dim, op="Softmax"))
handler("log_softmax")(lambda g, x, *, dim: softmax(g, x, dim=dim, op="LogSoftmax"))


def scan(g: Writer, x: Value, op: str, dim: int, reverse: bool) -> str:
    x = cast(g, x, g.call.outputs[0].dtype)
    return g(op, x, np.array(dim), reverse=int(reverse)) if g.call.outputs[0].shape else g.name(x)


handler("cumsum", since=11)(lambda g, x, *, dim, reverse: scan(g, x, "CumSum", dim, reverse))
handler("cumprod", since=26)(lambda g, x, *, dim, reverse: scan(g, x, "CumProd", dim, reverse))
