"""Pooling."""

from __future__ import annotations

from math import prod

import numpy as np

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.operators.conv import CONVOLUTIONS, Windows, windows
from miniflow.onnx.loader.registry import Ints, operator
from miniflow.tensor import Tensor, constant_like

MAX = {3: F.max_pool1d, 4: F.max_pool2d, 5: F.max_pool3d}
ADAPTIVE = {3: F.adaptive_avg_pool1d, 4: F.adaptive_avg_pool2d, 5: F.adaptive_avg_pool3d}
AVERAGE = {3: F.avg_pool1d, 4: F.avg_pool2d, 5: F.avg_pool3d}


@operator("MaxPool")
def max_pool(
    x, *, node: Node, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None,
    pads: Ints = None, storage_order: int = 0, strides: Ints = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """With a second output also where the maxima are: the index among all elements of x."""
    v = windows(x, kernel_shape, strides, dilations, pads, auto_pad)
    dtype, indices = x.dtype, len(node.outputs) > 1
    x = x if x.is_floating_point() else x.float()
    if is_plain(v) and not indices:
        return MAX[x.ndim](x, v.kernel, v.strides, v.before, v.dilations, bool(ceil_mode)).to(dtype)
    v.after = reached(v, ceil_mode)
    y, index = MAX[x.ndim](v.padded(x, -np.inf), v.kernel, v.strides, 0, v.dilations, return_indices=True)
    return (y.to(dtype), flat_index(index, v, storage_order)) if indices else y.to(dtype)


def is_plain(v: Windows) -> bool:
    """Whether the functions of miniflow have such a border."""
    return v.before == v.after and all(2 * p <= extent for p, extent in zip(v.before, v.extent, strict=True))


def reached(v: Windows, ceil_mode: int) -> list[int]:
    """The border at the end so that it ends with the last window, which does not begin in it."""
    found = []
    for n, s, extent, before, after in zip(v.size, v.strides, v.extent, v.before, v.after, strict=True):
        rest = n + before + after - extent
        last = -(-rest // s) if ceil_mode else rest // s
        last -= ceil_mode and last * s >= n + before
        found.append(last * s + extent - n - before)
    return found


def flat_index(index: Tensor, v: Windows, storage_order: int) -> Tensor:
    """From indices into each padded plane those into all planes; storage order 1 counts along the first dim first."""
    coordinates = []
    for n, before, after in zip(v.size[::-1], v.before[::-1], v.after[::-1], strict=True):
        coordinates.insert(0, index % (before + n + after) - before)
        index = index // (before + n + after)
    planes = np.arange(prod(index.shape[:2])).reshape(*index.shape[:2], *[1] * len(v.size))
    flat, span = constant_like(index, planes * prod(v.size)), 1
    order = list(zip(coordinates, v.size, strict=True))
    for coordinate, n in order if storage_order else order[::-1]:
        flat, span = flat + coordinate * span, span * n
    return flat


@operator("AveragePool")
def average_pool(
    x, *, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    v = windows(x, kernel_shape, strides, dilations, pads, auto_pad)
    if is_plain(v) and set(v.dilations) == {1}:
        return AVERAGE[x.ndim](x, v.kernel, v.strides, v.before, bool(ceil_mode), bool(count_include_pad))
    after = reached(v, ceil_mode)
    if count_include_pad:  # only what the last windows see beyond the border is not counted
        x, over = v.padded(x), [last - given for last, given in zip(after, v.after, strict=True)]
        v.size, v.before, after = list(x.shape[2:]), [0] * len(over), over
    v.after = after
    return window_sums(x, v) / window_sums(flow.ones(1, 1, *v.size, dtype=x.dtype, device=x.device), v)


def window_sums(x: Tensor, v: Windows) -> Tensor:
    """The sum of each window: a convolution with ones."""
    batch, channels = x.shape[:2]
    x = v.padded(x)
    x = x.reshape(batch * channels, 1, *x.shape[2:])
    sums = CONVOLUTIONS[x.ndim](
        x, flow.ones(1, 1, *v.kernel, dtype=x.dtype, device=x.device), None, v.strides, 0, v.dilations
    )
    return sums.reshape(batch, channels, *sums.shape[2:])


@operator("LpPool")
def lp_pool(
    x, *, kernel_shape: Ints, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Ints = None, p: int = 2,
    pads: Ints = None, strides: Ints = None,
) -> Tensor:  # fmt: skip
    """(sum of |x|^p)^(1/p) of each window."""
    v = windows(x, kernel_shape, strides, dilations, pads, auto_pad)
    v.after = reached(v, ceil_mode)
    return window_sums(flow.pow(flow.abs(x), p), v) ** (1 / p)


operator("GlobalAveragePool")(lambda x: ADAPTIVE[x.ndim](x, 1))
operator("GlobalMaxPool")(lambda x: flow.amax(x, list(range(2, x.ndim)), keepdim=True))
operator("GlobalLpPool")(lambda x, *, p=2: flow.linalg.vector_norm(x, p, list(range(2, x.ndim)), keepdim=True))


@operator("MaxUnpool")
def max_unpool(
    x, i, output_shape: Ints = None, *, kernel_shape: Ints, pads: Ints = None, strides: Ints = None
) -> Tensor:
    """Zeros but for the elements of x; indices count in the shape that follows from the windows."""
    v = windows(x, kernel_shape, strides, None, pads, "NOTSET")
    along = zip(v.size, v.strides, v.kernel, v.before, v.after, strict=True)
    size = [(n - 1) * s + k - before - after for n, s, k, before, after in along]
    flat = flow.zeros(prod(x.shape[:2]) * prod(size), dtype=x.dtype, device=x.device)
    y = flow.scatter(flat, 0, i.flatten(), x.flatten()).reshape(*x.shape[:2], *size)
    more = [wanted - n for wanted, n in zip(output_shape[2:], size, strict=True)] if output_shape else []
    return F.pad(y, [width for n in more[::-1] for width in (0, n)]) if more else y
