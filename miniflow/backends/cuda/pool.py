"""Pooling: launches over boxes of (planes, rows, columns); the geometry of averages is that of the cpu kernels."""

from __future__ import annotations

import functools

import numpy as np

from miniflow.backends import registry
from miniflow.backends.cpu.pool import Bounds, average_pools, lowest
from miniflow.backends.cuda.array import DeviceArray, contiguous, from_host
from miniflow.backends.cuda.rows import launch_over_box
from miniflow.kernels import pool

TILE = 32  # columns of a block at most: with several rows its windows share more of the image


def planes(x: DeviceArray) -> DeviceArray:
    """(N, C, H, W) -> (N * C, H, W), contiguous"""
    return contiguous(x).reshape(x.shape[0] * x.shape[1], *x.shape[2:])


@registry.kernel("cuda")
def max_pool2d(out, x, *, kernel, stride, padding, dilation, ceil_mode):
    y, index = (planes(result) for result in out)
    first = -padding[0][0], -padding[1][0]
    launch_over_box(
        pool.max_pool, y.shape, planes(x), y, index, kernel, stride, first, dilation, lowest(x.dtype), widest=TILE
    )


@registry.kernel("cuda")
def max_pool2d_grad(dx, dy, index, *, size):
    dx[...] = 0
    cotangents, image = planes(dy), dx.reshape(dx.shape[0] * dx.shape[1], dx.shape[2] * dx.shape[3])
    launch_over_box(pool.max_pool_gradient, cotangents.shape, cotangents, planes(index), image)


def average(y: DeviceArray, x: DeviceArray, rows: Bounds, columns: Bounds) -> None:
    tables = (_on_device(a, x.device_index) for a in (rows[0], columns[0], rows[1], columns[1]))
    target = planes(y)
    launch_over_box(pool.average, target.shape, planes(x), target, *tables, widest=TILE)


def average_grad(dx: DeviceArray, dy: DeviceArray, rows: Bounds, columns: Bounds) -> None:
    covers = (_covers(along[0], n) for along, n in zip((rows, columns), dx.shape[2:], strict=True))
    tables = (_on_device(a, dy.device_index) for a in (*covers, rows[1], columns[1]))
    target = planes(dx)
    launch_over_box(pool.average_gradient, target.shape, planes(dy), target, *tables, widest=TILE)


average_pools("cuda", average, average_grad)


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
