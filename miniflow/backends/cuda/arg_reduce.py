"""Positions of extrema."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.reduce import WARP_WIDTH
from miniflow.backends.cuda.rows import as_bits, as_box, launch_over_box
from miniflow.backends.geometry import reduction_steps
from miniflow.backends.registry import kernel
from miniflow.kernels.arg_reduce import ARGMAX, ARGMIN, ArgReduction
from miniflow.kernels.gather import take_cells
from miniflow.kernels.reduce import THREADS, WARPS

CHUNK = 16384  # elements of a long row that a block searches
FEW_COLUMNS = 1024  # fewer threads cannot keep a device busy: the columns are laid out as rows instead


def positions(order: ArgReduction, values: DeviceArray, indices: DeviceArray, x: DeviceArray, dim: int | None) -> None:
    """Compute the extrema along `dim`, or of all elements, and their indices."""
    extrema, (step,) = values, reduction_steps(x.shape, dim)
    if x.dtype.kind in "bu" or x.dtype in (np.int8, np.int16):
        x, extrema = x.astype(np.int32), empty(values.shape, np.int32, values.device_index)
    x = contiguous(x).reshape(step)
    if x.shape[2] != 1 and x.shape[0] * x.shape[2] <= FEW_COLUMNS < x.shape[1]:
        x = contiguous(x.view(lambda a: a.swapaxes(1, 2))).reshape((x.shape[0] * x.shape[2], x.shape[1], 1))
    outer, _, inner = x.shape
    if inner == 1:
        along_rows(order, x.reshape(x.shape[:2]), extrema.reshape((outer,)), indices.reshape((outer,)))
    else:
        results = extrema.reshape((outer, inner)), indices.reshape((outer, inner))
        launch(order.columns, outer * -(-inner // THREADS), THREADS, x, *results)
    if extrema is not values:
        copy_into(values, extrema)


def along_rows(order: ArgReduction, x: DeviceArray, values: DeviceArray, indices: DeviceArray) -> None:
    """One launch for short rows; for long rows the extremum of each part, then that of the parts."""
    rows, width = x.shape
    if width <= WARP_WIDTH:
        launch(order.warp_rows, -(-rows // WARPS), THREADS, x, values, indices)
        return
    parts = -(-width // CHUNK)
    if parts == 1:
        launch(order.block_rows, rows, THREADS, x, CHUNK, values.reshape((rows, 1)), indices.reshape((rows, 1)))
        return
    best, indices_of_parts = (empty((rows, parts), dtype, x.device_index) for dtype in (x.dtype, np.int64))
    part = empty((rows,), np.int64, x.device_index)
    launch(order.block_rows, rows * parts, THREADS, x, CHUNK, best, indices_of_parts)
    along_rows(order, best, values, part)
    launch_over_box(take_cells, (rows, 1, 1), as_bits(indices_of_parts, 1), as_box(part, 1), as_bits(indices, 1))


@kernel("cuda")
def argmax(indices, x, *, dim, keepdim):
    positions(ARGMAX, empty(indices.shape, x.dtype, x.device_index), indices, x, dim)


@kernel("cuda")
def argmin(indices, x, *, dim, keepdim):
    positions(ARGMIN, empty(indices.shape, x.dtype, x.device_index), indices, x, dim)


@kernel("cuda")
def max_dim(out, x, *, dim, keepdim):
    positions(ARGMAX, *out, x, dim)


@kernel("cuda")
def min_dim(out, x, *, dim, keepdim):
    positions(ARGMIN, *out, x, dim)
