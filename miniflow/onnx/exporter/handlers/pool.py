"""Pooling."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.handlers.conv import around
from miniflow.onnx.exporter.handlers.shape import fixed
from miniflow.onnx.exporter.recording import Size
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer, onnx_type


def windows_of(g: Writer, kernel, stride, padding, ceil_mode, dilation=()) -> dict[str, Any]:
    """The attributes of a pool, as far as they are not ONNX's defaults."""
    if g.opset < 10 and (ceil_mode or set(dilation) - {1}):
        raise OnnxError("ceil_mode and dilation need opset 10")
    windows = {"kernel_shape": kernel, "strides": stride, "pads": around(padding)}
    windows |= {"dilations": dilation} if set(dilation) - {1} else {}
    return windows | ({"ceil_mode": 1} if ceil_mode else {})


@handler("max_pool2d")
def max_pool2d(g: Writer, x: Value, *, kernel, stride, padding, dilation, ceil_mode) -> Any:
    windows = windows_of(g, kernel, stride, padding, ceil_mode, dilation)
    if not any(g.call.outputs[1] is value for call in g.recorded.calls for value in call.inputs):
        return (g("MaxPool", x, **windows),)
    y, places = g("MaxPool", x, **windows, outputs=2)  # counted from the first element of the batch
    size = np.array(prod(fixed(x.shape[2:])), np.int64)
    return y, g("Cast", g("Mod", places, size), to=onnx_type(np.int32))


@handler("avg_pool2d")
def avg_pool2d(g: Writer, x: Value, *, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override) -> str:
    count_include_pad = count_include_pad and any(map(any, padding))
    if ceil_mode and (divisor_override or count_include_pad and g.opset < 19):
        raise OnnxError("means with ceil_mode that count the border need opset 19, and no other divisor")
    windows = windows_of(g, kernel, stride, padding, ceil_mode)
    y = g("AveragePool", x, **windows, count_include_pad=int(count_include_pad or divisor_override is not None))
    return y if divisor_override is None else g("Mul", y, g.scalar(prod(kernel) / divisor_override, x))


@handler("adaptive_avg_pool2d")
def adaptive_avg_pool2d(g: Writer, x: Value, *, output_size: tuple[int | Size, ...]) -> str:
    sizes = x.shape[2:]
    if tuple(output_size) == (1, 1):
        return g("GlobalAveragePool", x)
    if tuple(output_size) == tuple(sizes):
        return g("Identity", x)
    if all(n % m == 0 for n, m in zip(fixed(sizes), fixed(output_size), strict=True)):
        window = [n // m for n, m in zip(sizes, output_size, strict=True)]
        return g("AveragePool", x, kernel_shape=window, strides=window)
    rows, columns = (mean_matrix(n, m).astype(x.dtype) for n, m in zip(sizes, output_size, strict=True))
    return g("MatMul", rows, g("MatMul", x, columns.T))


def mean_matrix(n: int, m: int) -> np.ndarray:
    """(m, n): the weights of n elements in the means of m windows that cover them evenly."""
    start, stop = np.arange(m) * n // m, -(-np.arange(1, m + 1) * n // m)
    inside = (np.arange(n) >= start[:, None]) & (np.arange(n) < stop[:, None])
    return inside / (stop - start)[:, None]
