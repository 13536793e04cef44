"""Pooling: launches over boxes of (planes, rows, columns); the geometry of averages is that of the cpu kernels."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from miniflow.backends import registry
from miniflow.backends.cpu.pool import Bounds, even_windows, windows_along
from miniflow.backends.cuda.array import DeviceArray, contiguous, from_host
from miniflow.backends.cuda.copy import fill_into
from miniflow.backends.cuda.launch import launch
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


@registry.kernel("cuda")
def max_pool2d(out, x, *, kernel, stride, padding, dilation, ceil_mode):
    y, index = (planes(result) for result in out)
    first = -padding[0][0], -padding[1][0]
    over_planes(pool.max_pool, y.shape, planes(x), y, index, kernel, stride, first, dilation)


@registry.kernel("cuda")
def max_pool2d_grad(dx, dy, index, *, size):
    fill_into(dx, 0)
    cotangents = lines(dy)
    over_planes(pool.max_pool_gradient, cotangents.shape, cotangents, lines(index), flat(dx))


@registry.kernel("cuda")
def avg_pool2d(y, x, **attrs):
    average(y, x, *windows_along(x.shape[2:], x.dtype, attrs))


@registry.kernel("cuda")
def avg_pool2d_grad(dx, dy, *, size, **attrs):
    average_grad(dx, dy, *windows_along(size, dy.dtype, attrs))


@registry.kernel("cuda")
def adaptive_avg_pool2d(y, x, *, output_size):
    average(y, x, *even_windows(x.shape[2:], output_size, x.dtype))


@registry.kernel("cuda")
def adaptive_avg_pool2d_grad(dx, dy, *, size):
    average_grad(dx, dy, *even_windows(size, dy.shape[2:], dy.dtype))


def average(y: DeviceArray, x: DeviceArray, rows: Bounds, columns: Bounds) -> None:
    tables = (_on_device(a, x.device_index) for a in (rows[0], columns[0], rows[1], columns[1]))
    target = planes(y)
    over_planes(pool.average, target.shape, planes(x), target, *tables)


def average_grad(dx: DeviceArray, dy: DeviceArray, rows: Bounds, columns: Bounds) -> None:
    covers = (_covers(along[0], n) for along, n in zip((rows, columns), dx.shape[2:], strict=True))
    tables = (_on_device(a, dy.device_index) for a in (*covers, rows[1], columns[1]))
    target = planes(dx)
    over_planes(pool.average_gradient, target.shape, planes(dy), target, *tables)


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
