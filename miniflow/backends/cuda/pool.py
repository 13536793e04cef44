"""Pooling: launches over boxes of (planes, rows, columns); the geometry of averages is that of the cpu kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.backends.cpu.pool import Bounds, _avg_windows, _even_bounds
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty, from_host, full
from miniflow.backends.cuda.launch import launch
from miniflow.backends.registry import register
from miniflow.backends.windows import Pair, Windows
from miniflow.kernels import pool

THREADS = 256
GRID_Z = 65_535  # blocks that CUDA numbers along z


def over_planes(kernel: Any, shape: tuple[int, int, int], *args: Any) -> None:
    """Launch `kernel`, one of those of kernels/pool.py, for results of `shape` (planes, rows, columns)."""
    planes, rows, columns = shape
    if 0 in shape:
        return
    x = min(32, 1 << (columns - 1).bit_length())
    y = min(THREADS // x, 1 << (rows - 1).bit_length())
    z = min(THREADS // (x * y), 64)
    launch(kernel, (-(-columns // x), -(-rows // y), min(-(-planes // z), GRID_Z)), (x, y, z), *args)


def planes(x: DeviceArray) -> DeviceArray:
    """(N, C, H, W) -> (N * C, H, W), contiguous"""
    return contiguous(x).reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def lines(x: DeviceArray) -> DeviceArray:
    """(N, C, H, W) -> (N * C, 1, H * W), contiguous"""
    return contiguous(x).reshape(x.shape[0] * x.shape[1], 1, x.shape[2] * x.shape[3])


def flat(x: DeviceArray) -> DeviceArray:
    """(N, C, H, W) -> (N * C, H * W), contiguous"""
    return contiguous(x).reshape(x.shape[0] * x.shape[1], x.shape[2] * x.shape[3])


@register("cuda", "MaxPool2d")
def max_pool2d(x, *, kernel, stride, padding, dilation, ceil_mode):
    counts = Windows(kernel, stride, padding, dilation, ceil_mode).counts(x.shape[2:])
    y = empty((*x.shape[:2], *counts), x.dtype, x.device_index)
    index = empty(y.shape, np.int32, x.device_index)
    results = planes(y), planes(index)
    first = -padding[0][0], -padding[1][0]
    over_planes(pool.max_pool, results[0].shape, planes(x), *results, kernel, stride, first, dilation)
    return y, index


@register("cuda", "MaxPool2dGrad")
def max_pool2d_grad(dy, index, *, size):
    dx = full((*dy.shape[:2], *size), 0, dy.dtype, dy.device_index)
    cotangents = lines(dy)
    over_planes(pool.max_pool_gradient, cotangents.shape, cotangents, lines(index), flat(dx))
    return dx


@register("cuda", "MaxPool2dGather", half="native")
def max_pool2d_gather(x, index):
    y = empty(index.shape, x.dtype, x.device_index)
    target = lines(y)
    over_planes(pool.take, target.shape, bits(flat(x)), lines(index), bits(target))
    return y


@register("cuda", "AvgPool2d")
def avg_pool2d(x, **attrs):
    return _average(x, _avg_windows(x.shape[2:], x.dtype, attrs))


@register("cuda", "AvgPool2dGrad")
def avg_pool2d_grad(dy, *, size, **attrs):
    return _average_grad(dy, size, _avg_windows(size, dy.dtype, attrs))


@register("cuda", "AdaptiveAvgPool2d")
def adaptive_avg_pool2d(x, *, output_size):
    return _average(x, [_even_bounds(n, m, x.dtype) for n, m in zip(x.shape[2:], output_size, strict=True)])


@register("cuda", "AdaptiveAvgPool2dGrad")
def adaptive_avg_pool2d_grad(dy, *, size):
    return _average_grad(dy, size, [_even_bounds(n, m, dy.dtype) for n, m in zip(size, dy.shape[2:], strict=True)])


def _average(x: DeviceArray, windows: Sequence[Bounds]) -> DeviceArray:
    (rows, row_weights), (columns, column_weights) = windows
    y = empty((*x.shape[:2], len(rows), len(columns)), x.dtype, x.device_index)
    tables = (_on_device(a, x.device_index) for a in (rows, columns, row_weights, column_weights))
    target = planes(y)
    over_planes(pool.average, target.shape, planes(x), target, *tables)
    return y


def _average_grad(dy: DeviceArray, size: Pair, windows: Sequence[Bounds]) -> DeviceArray:
    (rows, row_weights), (columns, column_weights) = windows
    dx = empty((*dy.shape[:2], *size), dy.dtype, dy.device_index)
    covers = (_covers(bounds, n) for bounds, n in zip((rows, columns), size, strict=True))
    tables = (_on_device(a, dy.device_index) for a in (*covers, row_weights, column_weights))
    target = planes(dx)
    over_planes(pool.average_gradient, target.shape, planes(dy), target, *tables)
    return dx


def _covers(bounds: np.ndarray, n: int) -> np.ndarray:
    """(n, 2) first and past-last window that covers each position; neither bound of a window ever decreases."""
    positions = np.arange(n)
    starts, stops = bounds.T
    return np.stack([np.searchsorted(stops, positions, "right"), np.searchsorted(starts, positions, "right")], 1)


def _on_device(table: np.ndarray, device_index: int) -> DeviceArray:
    """A small table in device memory, copied there once."""
    return _copied(table.tobytes(), table.dtype, table.shape, device_index)


@functools.lru_cache(maxsize=256)
def _copied(content: bytes, dtype: np.dtype, shape: tuple[int, ...], device_index: int) -> DeviceArray:
    return from_host(np.frombuffer(content, dtype).reshape(shape), device_index)
