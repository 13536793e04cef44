"""From a function of one element to kernels over arrays: every elementwise op is one scalar function put in here.

`flat` kernels, for arrays that lie in memory in the same order without gaps, handed over as 1-D arrays:

    thread i of the grid  ->  out[i] = function(x[i], y[i], ..., numbers)

`wide` kernels, the same with four elements a thread, for large arrays on a GPU:

    thread t of block b  ->  elements i, i + blockDim.x, i + 2 blockDim.x, i + 3 blockDim.x of i = 4 b blockDim.x + t

A GPU hides the latency of memory by having many reads under way, and one float32 for each thread that fits on it is not
many. The four reads stand before the first write, as the compiler cannot know that `out` is not `x`. On the host
executor, where the threads of a block become the lanes of vector instructions, `flat` is the faster one.

`spread` kernels, for all other layouts and for broadcasting. Arrays come as their whole memory, 1-D, with steps
(offset, s0, s1, s2, s3), and a shape (n0, n1, n2, n3): whatever the layout, it is the same compiled kernel. A broadcast
dimension has step 0. Each block lies in one plane of rows (n2) and columns (n3), of which there are n0 * n1:

    i0, i1 = divmod(blockIdx.z, n1)
    i2 = blockIdx.y * blockDim.y + threadIdx.y
    i3 = blockIdx.x * blockDim.x + threadIdx.x

    thread  ->  out[offset + i0 s0 + i1 s1 + i2 s2 + i3 s3] = function(x[its own place], y[its own place], ...)

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
def flat(function: Any, arrays: int = 1, numbers: int = 0) -> Any:
    """The kernel `(out, *arrays, *numbers)` over 1-D arrays of one size.

    Args:
        function: a device function of one element of each array, then the numbers.
        arrays: how many it takes, 1 to 3.
        numbers: how many it takes, 0 to 2.
    """
    return FLAT[arrays, numbers](function)


@cache
def wide(function: Any, arrays: int = 1) -> Any:
    """The kernel `(out, *arrays)` over 1-D arrays of one size, with four elements a thread."""
    return WIDE[arrays](function)


@cache
def spread(function: Any, arrays: int = 1) -> Any:
    """The kernel `(shape, out, out_steps, x, x_steps, ...)` for any layout; see the head of this file."""
    return SPREAD[arrays](function)


@cache
def flipped(function: Any) -> Any:
    """The device function `function(y, x)` of x and y: how a number comes first."""

    @cuda.jit(device=True)
    def swapped(x, y):
        return function(y, x)

    return swapped


def flat_one(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i])

    return kernel


def flat_one_number(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x, number):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], number)

    return kernel


def flat_one_two_numbers(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x, first, second):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], first, second)

    return kernel


def flat_two(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x, y):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i])

    return kernel


def flat_two_number(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x, y, number):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i], number)

    return kernel


def flat_two_two_numbers(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x, y, first, second):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i], first, second)

    return kernel


def flat_three(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x, y, z):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(x[i], y[i], z[i])

    return kernel


def wide_one(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x):
        step = cuda.blockDim.x
        i = 4 * cuda.blockIdx.x * step + cuda.threadIdx.x
        if i + 3 * step < out.size:
            x0, x1, x2, x3 = x[i], x[i + step], x[i + 2 * step], x[i + 3 * step]
            out[i] = function(x0)
            out[i + step] = function(x1)
            out[i + 2 * step] = function(x2)
            out[i + 3 * step] = function(x3)
        else:
            for k in range(i, out.size, step):
                out[k] = function(x[k])

    return kernel


def wide_two(function: Any) -> Any:
    @cuda.jit
    def kernel(out, x, y):
        step = cuda.blockDim.x
        i = 4 * cuda.blockIdx.x * step + cuda.threadIdx.x
        if i + 3 * step < out.size:
            x0, x1, x2, x3 = x[i], x[i + step], x[i + 2 * step], x[i + 3 * step]
            y0, y1, y2, y3 = y[i], y[i + step], y[i + 2 * step], y[i + 3 * step]
            out[i] = function(x0, y0)
            out[i + step] = function(x1, y1)
            out[i + 2 * step] = function(x2, y2)
            out[i + 3 * step] = function(x3, y3)
        else:
            for k in range(i, out.size, step):
                out[k] = function(x[k], y[k])

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


def spread_three(function: Any) -> Any:
    @cuda.jit
    def kernel(shape, out, out_steps, x, x_steps, y, y_steps, z, z_steps):
        i2 = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
        i3 = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i2 < shape[2] and i3 < shape[3]:
            i0 = cuda.blockIdx.z // shape[1]
            i1 = cuda.blockIdx.z - i0 * shape[1]
            at = place(i0, i1, i2, i3, out_steps)
            at_x = place(i0, i1, i2, i3, x_steps)
            at_y = place(i0, i1, i2, i3, y_steps)
            at_z = place(i0, i1, i2, i3, z_steps)
            out[at] = function(x[at_x], y[at_y], z[at_z])

    return kernel


FLAT: dict[tuple[int, int], Callable] = {
    (1, 0): flat_one,
    (1, 1): flat_one_number,
    (1, 2): flat_one_two_numbers,
    (2, 0): flat_two,
    (2, 1): flat_two_number,
    (2, 2): flat_two_two_numbers,
    (3, 0): flat_three,
}
WIDE: dict[int, Callable] = {1: wide_one, 2: wide_two}
SPREAD: dict[int, Callable] = {1: spread_one, 2: spread_two, 3: spread_three}
