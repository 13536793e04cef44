"""Pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.operators.conv import CONVOLUTIONS, Windows, windows
from miniflow.onnx.loader.registry import operator
from miniflow.tensor import Tensor, constant_like

MAX = {3: F.max_pool1d, 4: F.max_pool2d, 5: F.max_pool3d}
ADAPTIVE = {3: F.adaptive_avg_pool1d, 4: F.adaptive_avg_pool2d, 5: F.adaptive_avg_pool3d}
AVERAGE = {3: F.avg_pool1d, 4: F.avg_pool2d, 5: F.avg_pool3d}
operator("GlobalAveragePool")(lambda x: ADAPTIVE[x.ndim](x, 1))
operator("GlobalMaxPool")(lambda x: flow.amax(x, list(range(2, x.ndim)), keepdim=True))


@operator("MaxPool")
def max_pool(x, *, node: Node, ceil_mode: int = 0, storage_order: int = 0, **window: Any) -> Any:
    """With a second output also where the maxima are: the index among all elements of x."""
    v, dtype = windows(x, **window), x.dtype
    x = x if x.is_floating_point() else x.float()
    if is_plain(v) and len(node.outputs) == 1:
        return MAX[x.ndim](x, v.kernel, v.strides, v.before, v.dilations, bool(ceil_mode)).to(dtype)
    v.after = reached(v, ceil_mode)
    y, places = MAX[x.ndim](v.padded(x, -np.inf), v.kernel, v.strides, 0, v.dilations, return_indices=True)
    if len(node.outputs) == 1:
        return y.to(dtype)
    numbers = np.arange(x.numel()).reshape(*x.shape[:2], *v.size[:: -1 if storage_order else 1])
    numbers = numbers.transpose(0, 1, *range(2, x.ndim)[:: -1 if storage_order else 1])
    numbers = v.padded(constant_like(x, numbers), 0).flatten(2)
    return y.to(dtype), flow.gather(numbers, 2, places.flatten(2)).reshape(places.shape)


def is_plain(v: Windows) -> bool:
    """Whether the functions of miniflow have such a border."""
    return v.before == v.after and all(2 * p <= extent for p, extent in zip(v.before, v.extent, strict=True))


def reached(v: Windows, ceil_mode: int) -> list[int]:
    """The border after the input that ends with the last window; no window begins in it."""
    borders = []
    for n, s, extent, before, after in zip(v.size, v.strides, v.extent, v.before, v.after, strict=True):
        room = n + before + after - extent
        last = -(-room // s) if ceil_mode else room // s
        last -= ceil_mode and last * s >= n + before
        borders.append(last * s + extent - n - before)
    return borders


@operator("AveragePool")
def average_pool(x, *, ceil_mode: int = 0, count_include_pad: int = 0, **window: Any) -> Tensor:
    v = windows(x, **window)
    if is_plain(v) and set(v.dilations) == {1}:
        return AVERAGE[x.ndim](x, v.kernel, v.strides, v.before, bool(ceil_mode), bool(count_include_pad))
    counted = flow.ones(1, 1, *v.size, dtype=x.dtype, device=x.device)
    more = [end - after for end, after in zip(reached(v, ceil_mode), v.after, strict=True)]
    x, counted = v.padded(x), v.padded(counted, float(count_include_pad))
    v.before, v.after = [0] * len(more), more  # what the last windows see beyond the border is not counted
    return window_sums(x, v) / window_sums(counted, v)


def window_sums(x: Tensor, v: Windows) -> Tensor:
    """The sum of each window: a convolution with ones."""
    weight = flow.ones(1, 1, *v.kernel, dtype=x.dtype, device=x.device)
    sums = CONVOLUTIONS[x.ndim](v.padded(x).flatten(0, 1).unsqueeze(1), weight, None, v.strides, 0, v.dilations)
    return sums.reshape(*x.shape[:2], *sums.shape[2:])


@operator("LpPool")
def lp_pool(x, *, p: float, ceil_mode: int = 0, **window: Any) -> Tensor:
    """(sum of abs(x)^p in each window)^(1 / p), the sum in float32 at least"""
    v = windows(x, **window)
    v.after = reached(v, ceil_mode)
    return (window_sums(powers(x, p), v) ** (1 / p)).to(x.dtype)


@operator("GlobalLpPool")
def global_lp_pool(x, *, p: float) -> Tensor:
    return (flow.sum(powers(x, p), list(range(2, x.ndim)), keepdim=True) ** (1 / p)).to(x.dtype)


def powers(x: Tensor, p: float) -> Tensor:
    """abs(x)^p, in float32 at least"""
    return (x.float() if x.dtype.itemsize == 2 else x).abs() ** p
