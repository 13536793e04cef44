"""From a function of one element to kernels over arrays: for copies and conversions.

(The loops of pointwise operators are written by `backends/cuda/pointwise.py`; they look like these.)

`flat` kernels, for arrays that lie in memory in the same order without gaps, handed over as 1-D arrays:

    thread i of the grid  ->  out[i] = function(x[i], y[i])

`spread` kernels, for all other layouts and for broadcasting. Arrays come as their whole memory, 1-D, with steps
(offset, s0, s1, s2, s3), and a shape (n0, n1, n2, n3): whatever the layout, it is the same compiled kernel. A broadcast
dimension has step 0. Each block lies in one plane of rows (n2) and columns (n3), of which there are n0 * n1:

    i0, i1 = divmod(blockIdx.z, n1)
    i2 = blockIdx.y * blockDim.y + threadIdx.y
    i3 = blockIdx.x * blockDim.x + threadIdx.x

    thread  ->  out[offset + i0 s0 + i1 s1 + i2 s2 + i3 s3] = function(x[its own place], y[its own place])

The only division is one that all threads of a block share. Neighbouring threads take neighbouring columns, so that a
step s3 = 1 is read coalesced. Nothing is in shared memory. Global memory is touched once an element: one read of each
array, one write.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from miniflow.hostcuda import cuda


@cache
def flat(function: Any, arrays: int = 1) -> Any:
    """The kernel `(out, *arrays)` over 1-D arrays of one size.

    Args:
        function: a device function of one element of each array.
        arrays: how many it takes, 1 or 2.
    """
    return FLAT[arrays](function)


@cache
def spread(function: Any, arrays: int = 1) -> Any:
    """The kernel `(shape, out, out_steps, x, x_steps, ...)` for any layout; see the head of this file."""
    return SPREAD[arrays](function)


def flat_one(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i])

    return kernel


def flat_two(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x, y):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i])

    return kernel


@cuda.jit(device=True)
def place(i0, i1, i2, i3, steps):
    """Where an element lies. Unsigned: numba counts a negative index from the end, and would test each for its sign."""
    return np.uint64(steps[0] + i0 * steps[1] + i1 * steps[2] + i2 * steps[3] + i3 * steps[4])


def spread_one(function: Any) -> Any:
    @cuda.jit
    def kernel(shape, out, out_steps, x, x_steps):
        i2 = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        i3 = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i2 < shape[2] and i3 < shape[3]:
            i0 = cuda.blockIdx.z // shape[1]
            i1 = cuda.blockIdx.z - i0 * shape[1]
            at = place(i0, i1, i2, i3, out_steps)
            at_x = place(i0, i1, i2, i3, x_steps)
            out[at] = function(x[at_x])

    return kernel


def spread_two(function: Any) -> Any:
    @cuda.jit
    def kernel(shape, out, out_steps, x, x_steps, y, y_steps):
        i2 = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        i3 = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i2 < shape[2] and i3 < shape[3]:
            i0 = cuda.blockIdx.z // shape[1]
            i1 = cuda.blockIdx.z - i0 * shape[1]
            at = place(i0, i1, i2, i3, out_steps)
            at_x = place(i0, i1, i2, i3, x_steps)
            at_y = place(i0, i1, i2, i3, y_steps)
            out[at] = function(x[at_x], y[at_y])

    return kernel


FLAT: dict[int, Callable] = {1: flat_one, 2: flat_two}
SPREAD: dict[int, Callable] = {1: spread_one, 2: spread_two}
