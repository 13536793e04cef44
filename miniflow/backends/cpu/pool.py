"""Pooling kernels: loops over planes (H, W), shared among threads.

The average kernels do not depend on strides and borders: along each dim they get the bounds (OH, 2) of the part of each
window that lies on the image, and a weight; the weight of a window is that of its rows times that of its columns. So
they serve adaptive pooling too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from miniflow.backends import registry
from miniflow.backends.cpu.threads import compiled, share, unlocked
from miniflow.backends.windows import Pair, window_count


@registry.kernel("cpu")
def max_pool2d(out, x, *, kernel, stride, padding, dilation, ceil_mode):
    y, index = out
    planes, results, indices = as_planes(np.ascontiguousarray(x)), as_planes(y), as_planes(index)
    if (kernel, stride, padding, dilation, ceil_mode) == ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False):
        share(_max_2x2, len(planes), x.size, planes, results, indices)
    else:
        border = padding[0][0], padding[1][0]
        arguments = planes, results, indices, kernel, stride, border, dilation, lowest(x.dtype)

        def work(start: int, stop: int) -> None:
            row = np.empty(results.shape[2], x.dtype), np.empty(results.shape[2], np.int32)
            _max(start, stop, *arguments, *row)

        share(work, len(planes), x.size)


def lowest(dtype: np.dtype) -> float | int:
    """The smallest value of a dtype."""
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -np.inf


def as_planes(x: np.ndarray) -> np.ndarray:
    """(N, C, H, W) -> (N*C, H, W)"""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


@unlocked()
def _max_2x2(start, stop, x, y, index):
    """Planes from start to stop, for adjacent windows of 2x2: the most common case, which needs no test for borders."""
    width = x.shape[2]
    for plane in range(start, stop):
        for i in range(y.shape[1]):
            upper, lower, best, indices = x[plane, 2 * i], x[plane, 2 * i + 1], y[plane, i], index[plane, i]
            for j in range(len(best)):
                value, first = upper[2 * j], np.int32(2 * (i * width + j))
                index_of_best = first
                for other, its_index in (
                    (upper[2 * j + 1], first + 1),
                    (lower[2 * j], first + width),
                    (lower[2 * j + 1], first + width + 1),
                ):
                    take = (other > value) | (other != other)
                    value = other if take else value
                    index_of_best = its_index if take else index_of_best
                best[j], indices[j] = value, index_of_best


@unlocked()
def _max(start, stop, x, y, index, kernel, stride, padding, dilation, lowest, best, indices):
    """Planes from start to stop, one tap after the other, each for a whole row of windows."""
    _, height, width = x.shape
    oh, ow = y.shape[1:]
    (sh, sw), (dh, dw) = stride, dilation
    for plane in range(start, stop):
        for i in range(oh):
            for j in range(ow):
                best[j], indices[j] = lowest, -1
            for a in range(kernel[0]):
                h = i * sh - padding[0] + a * dh
                if h < 0 or h >= height:
                    continue
                for b in range(kernel[1]):
                    offset = b * dw - padding[1]  # the column that window 0 sees
                    first = max(0, -(offset // sw))
                    last = max(first, min(ow, (width - 1 - offset) // sw + 1))
                    w = first * sw + offset
                    row, position = x[plane, h, w:], np.int32(h * width + w)
                    if sw == 1:
                        _take_larger(row, 1, position, best[first:last], indices[first:last])
                    elif sw == 2:
                        _take_larger(row, 2, position, best[first:last], indices[first:last])
                    else:
                        _take_larger(row, sw, position, best[first:last], indices[first:last])
            for j in range(ow):
                y[plane, i, j], index[plane, i, j] = best[j], indices[j]


@compiled
def _take_larger(row, step, position, best, indices):
    """Replace `best` by every `step`-th element of a row where that is larger, NaN, or the first one."""
    for j in range(len(best)):
        value = row[j * step]
        take = (value > best[j]) | (value != value) | (indices[j] < 0)
        best[j] = value if take else best[j]
        indices[j] = position + np.int32(j * step) if take else indices[j]


@registry.kernel("cpu")
def max_pool2d_grad(dx, dy, index, *, size):
    planes = len(dy) * dy.shape[1]
    flat = [a.reshape(planes, a.shape[2] * a.shape[3]) for a in (dx, np.ascontiguousarray(dy), index)]
    share(_scatter, planes, dx.size, *flat)


@unlocked()
def _scatter(start, stop, dx, dy, index):
    """Planes from start to stop. An index below 0 belongs to a window whose taps all miss the image."""
    for plane in range(start, stop):
        dx[plane] = 0
        for k in range(dy.shape[1]):
            winner = index[plane, k]
            if winner >= 0:
                dx[plane, winner] += dy[plane, k]


Bounds = tuple[np.ndarray, np.ndarray]  # (OH, 2) first and past-last index of each window; (OH,) its weight


@functools.lru_cache(maxsize=256)
def _bounds(
    n: int, kernel: int, stride: int, padding: Pair, ceil_mode: bool, include_pad: bool, divided: bool, dtype: np.dtype
) -> Bounds:
    """The windows along one dim of size n; what lies beyond the border never counts."""
    start = np.arange(window_count(n, kernel, stride, padding, 1, ceil_mode)) * stride - padding[0]
    stop = np.minimum(start + kernel, n + padding[1])
    bounds = np.stack([np.maximum(start, 0), np.minimum(stop, n)], 1)
    count = stop - start if include_pad else bounds[:, 1] - bounds[:, 0]
    return bounds, (1 / count if divided else np.ones(len(start))).astype(dtype)


@functools.lru_cache(maxsize=256)
def _even_bounds(n: int, count: int, dtype: np.dtype) -> Bounds:
    """`count` windows that cover a dim of size n evenly."""
    i = np.arange(count)
    bounds = np.stack([i * n // max(count, 1), -(-(i + 1) * n // max(count, 1))], 1)
    return bounds, (1 / (bounds[:, 1] - bounds[:, 0])).astype(dtype)


def windows_along(size: Pair, dtype: np.dtype, attrs: dict) -> tuple[Bounds, Bounds]:
    """The windows of an average pool over rows and over columns of an image of that size."""
    divisor = attrs["divisor_override"]
    rows, columns = (
        _bounds(*along, attrs["ceil_mode"], attrs["count_include_pad"], divisor is None, dtype)
        for along in zip(size, attrs["kernel"], attrs["stride"], attrs["padding"], strict=True)
    )
    return (rows if divisor is None else (rows[0], rows[1] / dtype.type(divisor))), columns


def even_windows(size: Pair, counts: Pair, dtype: np.dtype) -> tuple[Bounds, Bounds]:
    """The windows of an adaptive average pool over rows and over columns."""
    rows, columns = (_even_bounds(n, count, dtype) for n, count in zip(size, counts, strict=True))
    return rows, columns


def average(y: np.ndarray, x: np.ndarray, rows: Bounds, columns: Bounds) -> None:
    planes = as_planes(np.ascontiguousarray(x))
    if y.shape[-2:] == (1, 1):  # a product with a vector, in a tenth of the time, and nothing has to be compiled
        part, weight = of_one_window(planes, rows, columns)
        elements = part.shape[1] * part.shape[2]
        np.matmul(part.reshape(len(part), elements), np.full(elements, weight, x.dtype), out=y.reshape(-1))
        return
    arguments, width = (planes, as_planes(y), *rows, *columns), x.shape[-1]
    share(lambda start, stop: _average_planes(start, stop, *arguments, np.empty(width, x.dtype)), len(planes), x.size)


def average_grad(dx: np.ndarray, dy: np.ndarray, rows: Bounds, columns: Bounds) -> None:
    planes = as_planes(np.ascontiguousarray(dy))
    if dy.shape[-2:] == (1, 1):
        part, weight = of_one_window(as_planes(dx), rows, columns)
        if part.size < dx.size:
            dx[...] = 0
        part[...] = planes * weight
        return
    arguments, width = (as_planes(dx), planes, *rows, *columns), dx.shape[-1]
    share(
        lambda start, stop: _average_planes_grad(start, stop, *arguments, np.empty(width, dx.dtype)),
        len(planes),
        dx.size,
    )


def of_one_window(planes: np.ndarray, rows: Bounds, columns: Bounds) -> tuple[np.ndarray, np.floating]:
    """The part of planes (N, H, W) that the only window covers, and the weight of its elements."""
    (((top, bottom),), (height,)), (((left, right),), (width,)) = rows, columns
    return planes[:, top:bottom, left:right], height * width


def average_pools(device: str, average: Callable, average_grad: Callable) -> None:
    """Register the four kernels of average pools, given the two of a device that take bounds and weights."""

    @registry.kernel(device)
    def avg_pool2d(y, x, **attrs):
        average(y, x, *windows_along(x.shape[2:], x.dtype, attrs))

    @registry.kernel(device)
    def avg_pool2d_grad(dx, dy, *, size, **attrs):
        average_grad(dx, dy, *windows_along(size, dy.dtype, attrs))

    @registry.kernel(device)
    def adaptive_avg_pool2d(y, x, *, output_size):
        average(y, x, *even_windows(x.shape[2:], output_size, x.dtype))

    @registry.kernel(device)
    def adaptive_avg_pool2d_grad(dx, dy, *, size):
        average_grad(dx, dy, *even_windows(size, dy.shape[2:], dy.dtype))


average_pools("cpu", average, average_grad)


@unlocked()
def _average_planes(start, stop, x, y, rows, row_weights, columns, column_weights, sums):
    """Planes from start to stop: a row of sums over the rows of a window, then sums along it."""
    for plane in range(start, stop):
        for i in range(len(rows)):
            for w in range(len(sums)):
                sums[w] = 0
            for h in range(rows[i, 0], rows[i, 1]):
                row = x[plane, h]
                for w in range(len(sums)):
                    sums[w] += row[w]
            for j in range(len(columns)):
                total = x.dtype.type(0)
                for w in range(columns[j, 0], columns[j, 1]):
                    total += sums[w]
                y[plane, i, j] = total * (row_weights[i] * column_weights[j])


@unlocked()
def _average_planes_grad(start, stop, dx, dy, rows, row_weights, columns, column_weights, spread):
    """Planes from start to stop: a row of cotangents is spread along one row, which is added to those it came from."""
    for plane in range(start, stop):
        dx[plane] = 0
        for i in range(len(rows)):
            for w in range(len(spread)):
                spread[w] = 0
            for j in range(len(columns)):
                share = dy[plane, i, j] * (row_weights[i] * column_weights[j])
                for w in range(columns[j, 0], columns[j, 1]):
                    spread[w] += share
            for h in range(rows[i, 0], rows[i, 1]):
                row = dx[plane, h]
                for w in range(len(spread)):
                    row[w] += spread[w]
