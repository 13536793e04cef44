"""Pooling kernels: loops over planes (H, W), each of which one iteration owns.

The average kernels know nothing of strides and borders: along each dim they get the bounds (OH, 2) of the part of each window
that lies on the image, and a weight for it; the weight of a window is that of its rows times that of its columns. So they
serve adaptive pooling too.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import prange

from miniflow.backends.cpu.loops import loop
from miniflow.backends.cpu.windows import Pair
from miniflow.backends.registry import register


def count(n: int, kernel: int, stride: int, padding: Pair, dilation: int, ceil_mode: bool) -> int:
    """How many windows fit along one dim of size n. With ceil_mode the last may hang over, but starts on the image."""
    room = n + sum(padding) - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return room // stride + 1
    windows = -(-room // stride) + 1
    return windows - 1 if (windows - 1) * stride >= n + padding[0] else windows


@register("cpu", "MaxPool2d")
def max_pool2d(x, *, kernel, stride, padding, dilation, ceil_mode):
    sizes = [
        count(n, *along, ceil_mode) for n, *along in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    ]
    y = np.empty((*x.shape[:2], *sizes), x.dtype)
    index = np.empty(y.shape, np.int32)
    _max(np.ascontiguousarray(x), y, index, kernel, stride, (padding[0][0], padding[1][0]), dilation)
    return y, index


@loop()
def _max(x, y, index, kernel, stride, padding, dilation):
    """One iteration owns plane y[n, c]. Taps are taken one after the other, each along a whole row of windows."""
    images, channels, height, width = x.shape
    oh, ow = y.shape[2:]
    (sh, sw), (dh, dw) = stride, dilation
    for plane in prange(images * channels):
        n, c = plane // channels, plane % channels
        for i in range(oh):
            best, where = y[n, c, i], index[n, c, i]
            for j in range(ow):
                best[j], where[j] = -np.inf, -1
            for a in range(kernel[0]):
                h = i * sh - padding[0] + a * dh
                if h < 0 or h >= height:
                    continue
                for b in range(kernel[1]):
                    offset = b * dw - padding[1]  # the column that window 0 sees
                    first = max(0, (sw - 1 - offset) // sw)
                    last = max(first, min(ow, (width - 1 - offset) // sw + 1))
                    row, some_best, some_where = x[n, c, h, first * sw + offset :], best[first:], where[first:]
                    start = h * width + first * sw + offset
                    for j in range(last - first):
                        value = row[j * sw]
                        if value > some_best[j] or value != value or some_where[j] < 0:
                            some_best[j] = value
                            some_where[j] = start + j * sw


@register("cpu", "MaxPool2dGrad")
def max_pool2d_grad(dy, index, *, size):
    dx = np.empty((*dy.shape[:2], size[0] * size[1]), dy.dtype)
    _scatter(dx, np.ascontiguousarray(dy).reshape(*dy.shape[:2], -1), index.reshape(*dy.shape[:2], -1))
    return dx.reshape(*dy.shape[:2], *size)


@loop()
def _scatter(dx, dy, index):
    """One iteration owns plane dx[n, c]. An index below 0 belongs to a window whose taps all miss the image."""
    images, channels, elements = dx.shape
    for plane in prange(images * channels):
        target = dx[plane // channels, plane % channels]
        source, where = dy[plane // channels, plane % channels], index[plane // channels, plane % channels]
        for k in range(elements):
            target[k] = 0
        for k in range(source.size):
            if where[k] >= 0:
                target[where[k]] += source[k]


@register("cpu", "MaxPool2dGather", half="native")
def max_pool2d_gather(x, index):
    flat = index.reshape(*index.shape[:2], -1)
    taken = np.take_along_axis(x.reshape(*x.shape[:2], -1), np.maximum(flat, 0), 2)
    taken[flat < 0] = 0
    return taken.reshape(index.shape)


Bounds = tuple[np.ndarray, np.ndarray]  # (OH, 2) first and past-last index of each window; (OH,) its weight


@functools.lru_cache(maxsize=256)
def _bounds(
    n: int, kernel: int, stride: int, padding: Pair, ceil_mode: bool, include_pad: bool, divided: bool, dtype: np.dtype
) -> Bounds:
    """The windows along one dim of size n; what lies beyond the border never counts."""
    start = np.arange(count(n, kernel, stride, padding, 1, ceil_mode)) * stride - padding[0]
    stop = np.minimum(start + kernel, n + padding[1])
    bounds = np.stack([np.maximum(start, 0), np.minimum(stop, n)], 1)
    number = stop - start if include_pad else bounds[:, 1] - bounds[:, 0]
    return bounds, (1 / number if divided else np.ones(len(start))).astype(dtype)


@functools.lru_cache(maxsize=256)
def _even_bounds(n: int, count: int, dtype: np.dtype) -> Bounds:
    """`count` windows that cover a dim of size n evenly."""
    i = np.arange(count)
    bounds = np.stack([i * n // max(count, 1), -(-(i + 1) * n // max(count, 1))], 1)
    return bounds, (1 / (bounds[:, 1] - bounds[:, 0])).astype(dtype)


def _avg_windows(size: Pair, dtype: np.dtype, attrs: dict) -> tuple[Bounds, Bounds]:
    rows, columns = (
        _bounds(*along, attrs["ceil_mode"], attrs["count_include_pad"], attrs["divisor_override"] is None, dtype)
        for along in zip(size, attrs["kernel"], attrs["stride"], attrs["padding"], strict=True)
    )
    if attrs["divisor_override"] is not None:
        rows = rows[0], rows[1] / dtype.type(attrs["divisor_override"])
    return rows, columns


def _average(x: np.ndarray, rows: Bounds, columns: Bounds) -> np.ndarray:
    y = np.empty((*x.shape[:2], len(rows[0]), len(columns[0])), x.dtype)
    _average_planes(np.ascontiguousarray(x), y, *rows, *columns)
    return y


def _average_grad(dy: np.ndarray, size: Pair, rows: Bounds, columns: Bounds) -> np.ndarray:
    dx = np.empty((*dy.shape[:2], *size), dy.dtype)
    _average_planes_grad(dx, np.ascontiguousarray(dy), *rows, *columns)
    return dx


@register("cpu", "AvgPool2d")
def avg_pool2d(x, **attrs):
    return _average(x, *_avg_windows(x.shape[2:], x.dtype, attrs))


@register("cpu", "AvgPool2dGrad")
def avg_pool2d_grad(dy, *, size, **attrs):
    return _average_grad(dy, size, *_avg_windows(size, dy.dtype, attrs))


@register("cpu", "AdaptiveAvgPool2d")
def adaptive_avg_pool2d(x, *, output_size):
    rows, columns = (_even_bounds(n, m, x.dtype) for n, m in zip(x.shape[2:], output_size, strict=True))
    return _average(x, rows, columns)


@register("cpu", "AdaptiveAvgPool2dGrad")
def adaptive_avg_pool2d_grad(dy, *, size):
    rows, columns = (_even_bounds(n, m, dy.dtype) for n, m in zip(size, dy.shape[2:], strict=True))
    return _average_grad(dy, size, rows, columns)


@loop()
def _average_planes(x, y, rows, row_weights, columns, column_weights):
    """One iteration owns plane y[n, c]: a row of sums over the rows of a window, then sums along it."""
    images, channels, _, width = x.shape
    for plane in prange(images * channels):
        source, target = x[plane // channels, plane % channels], y[plane // channels, plane % channels]
        sums = np.empty(width, x.dtype)
        for i in range(len(rows)):
            for w in range(width):
                sums[w] = 0
            for h in range(rows[i, 0], rows[i, 1]):
                for w in range(width):
                    sums[w] += source[h, w]
            for j in range(len(columns)):
                total = x.dtype.type(0)
                for w in range(columns[j, 0], columns[j, 1]):
                    total += sums[w]
                target[i, j] = total * (row_weights[i] * column_weights[j])


@loop()
def _average_planes_grad(dx, dy, rows, row_weights, columns, column_weights):
    """One iteration owns plane dx[n, c]: each row of cotangents is spread along one row, which is added to those it came from."""
    images, channels, height, width = dx.shape
    for plane in prange(images * channels):
        target, source = dx[plane // channels, plane % channels], dy[plane // channels, plane % channels]
        spread = np.empty(width, dx.dtype)
        target[:] = 0
        for i in range(len(rows)):
            for w in range(width):
                spread[w] = 0
            for j in range(len(columns)):
                share = source[i, j] * (row_weights[i] * column_weights[j])
                for w in range(columns[j, 0], columns[j, 1]):
                    spread[w] += share
            for h in range(rows[i, 0], rows[i, 1]):
                for w in range(width):
                    target[h, w] += spread[w]
