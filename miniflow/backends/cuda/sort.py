"""Sorting along the last dim, to which any other is moved."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu import sort as cpu
from miniflow.backends.cuda.array import DeviceArray, contiguous, from_host
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.cuda.reduce import numbers
from miniflow.backends.cuda.rows import power_of_two
from miniflow.backends.registry import kernel
from miniflow.kernels.sort import TILE, bitonic_step, bitonic_tile


@kernel("cuda")
def argsort(y, x, *, dim, descending, count, stable):
    if y.size == 0:
        return
    x = contiguous(numbers(x).view(lambda a: np.moveaxis(a, dim, -1)))
    width = x.shape[-1]
    rows, n = x.size // width, max(2, power_of_two(width))
    positions = from_host(np.broadcast_to(np.arange(n), (rows, n)).copy(), y.device_index)
    sort_positions(x.reshape((rows, width)), descending, positions)
    first = positions.reshape((*x.shape[:-1], n))[..., :count]
    copy_into(y, first.view(lambda a: np.moveaxis(a, -1, dim)))


def sort_positions(x: DeviceArray, descending: bool, positions: DeviceArray) -> None:
    """Put the `positions` (rows, n) in the order of the elements of x (rows, width)."""
    rows, n = positions.shape
    tile = min(n, TILE)
    blocks = rows * (n // tile)
    launch(bitonic_tile, blocks, tile // 2, x, descending, 2, tile, positions)
    size = 2 * tile
    while size <= n:
        stride = size // 2
        while stride >= tile:
            each(bitonic_step, rows * n // 2, x, descending, size, stride, positions)
            stride //= 2
        launch(bitonic_tile, blocks, tile // 2, x, descending, size, tile, positions)
        size *= 2


@kernel("cuda", returns=True)
def unique(x, *, dim, consecutive):
    """The shapes of the results depend on values, so that the host has to see them: it finds them too."""
    results = cpu.unique(x.numpy(), dim=dim, consecutive=consecutive)
    return tuple([from_host(y, x.device_index) for y in results])
