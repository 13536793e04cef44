"""Positions of extrema."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.reduce import WARP_WIDTH, around_run, column_grid, reduced_dims, result_shape
from miniflow.backends.registry import register
from miniflow.kernels.arg_reduce import ARGMAX, ARGMIN, ArgReduction
from miniflow.kernels.reduce import THREADS, WARPS

CHUNK = 16384  # elements of a long row that a block looks through
FEW_COLUMNS = 1024  # so few threads could not keep a device busy: the columns are laid out as rows instead


def positions(order: ArgReduction, x: DeviceArray, dim: int | None, keepdim: bool) -> tuple[DeviceArray, DeviceArray]:
    """The extrema along `dim`, or of all elements, and their indices."""
    dims, dtype = reduced_dims(x, dim), x.dtype
    shape = result_shape(x, dims, keepdim)
    if dtype.kind in "bu" or dtype in (np.int8, np.int16):
        x = x.astype(np.int32)
    x = contiguous(x)
    x = around_run(x, dims[0], dims[-1] + 1) if dims else x.reshape((1, 1, 1))
    if x.shape[2] != 1 and x.shape[0] * x.shape[2] <= FEW_COLUMNS < x.shape[1]:
        x = contiguous(x.view(lambda a: a.swapaxes(1, 2))).reshape((x.shape[0] * x.shape[2], x.shape[1], 1))
    outer, _, inner = x.shape
    values, indices = empty((outer, inner), x.dtype, x.device_index), empty((outer, inner), np.int64, x.device_index)
    if inner == 1:
        along_rows(order, x.reshape(x.shape[:2]), values.reshape((outer,)), indices.reshape((outer,)))
    else:
        launch(order.columns, column_grid(outer, inner, THREADS), THREADS, x, values, indices)
    values, indices = values.reshape(shape), indices.reshape(shape)
    return values if values.dtype == dtype else values.astype(dtype), indices


def along_rows(order: ArgReduction, x: DeviceArray, values: DeviceArray, indices: DeviceArray) -> None:
    """One launch for short rows; for long ones a candidate from each part, then the best of them."""
    rows, width = x.shape
    grid, block = -(-rows // WARPS), THREADS
    if width <= WARP_WIDTH:
        launch(order.warp_rows, grid, block, x, values, indices)
    else:
        candidates = empty((rows, -(-width // CHUNK)), np.int64, x.device_index)
        launch(order.block_rows, candidates.size, THREADS, x, CHUNK, candidates)
        launch(order.pick_rows, grid, block, x, candidates, values, indices)


@register("cuda", "Argmax")
def argmax(x: DeviceArray, *, dim: int | None, keepdim: bool) -> DeviceArray:
    return positions(ARGMAX, x, dim, keepdim)[1]


@register("cuda", "Argmin")
def argmin(x: DeviceArray, *, dim: int | None, keepdim: bool) -> DeviceArray:
    return positions(ARGMIN, x, dim, keepdim)[1]


@register("cuda", "MaxDim")
def max_dim(x: DeviceArray, *, dim: int, keepdim: bool) -> tuple[DeviceArray, DeviceArray]:
    return positions(ARGMAX, x, dim, keepdim)


@register("cuda", "MinDim")
def min_dim(x: DeviceArray, *, dim: int, keepdim: bool) -> tuple[DeviceArray, DeviceArray]:
    return positions(ARGMIN, x, dim, keepdim)
