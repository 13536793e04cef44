"""Layer norm of the rows of x (rows, width), a ladder of four.

    y[r, j] = (x[r, j] - mean_r) / sqrt(var_r + eps) * weight[j] + bias[j]

                   owns a row         reads of x    of weight, bias    writes    a warp reads
    thread_rows    a thread           3             2                  1         32 sectors: rows lie far apart
    tree_rows      a block of 256     3             2                  1         4 sectors: neighbours
    warp_rows      a warp             1             2                  1         4 sectors; a row stays in registers
    cached_rows    a block of 256     1             2                  1         4 sectors; it stays in shared memory

All of them go over x for the mean, again for the variance and again for the result: the last two over what they keep.
They are the library's, in kernels/layer_norm.py, and write two numbers more for each row: its mean and its rstd. What
is kept costs occupancy: registers or shared memory of a multiprocessor, which then holds fewer warps at once.
"""

import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels import layer_norm
from miniflow.kernels.ladders import Rung, blocks
from miniflow.kernels.reduce import SUM, THREADS, WARP, WARPS

add_up = SUM.tree


@cuda.jit
def thread_rows(x, weight, bias, eps, y):
    """Straight from the formula: thread r of the grid owns row r, so that the threads of a warp read a column.

    Of an element 5 reads, 3 of x, and one write.
    """
    row, width = cuda.grid(1), x.shape[1]
    if row < x.shape[0]:
        total = x.dtype.type(0)
        for j in range(width):
            total += x[row, j]
        mean = total / x.dtype.type(width)
        squares = x.dtype.type(0)
        for j in range(width):
            deviation = x[row, j] - mean
            squares += deviation * deviation
        rstd = x.dtype.type(1) / math.sqrt(squares / x.dtype.type(width) + eps)
        for j in range(width):
            y[row, j] = (x[row, j] - mean) * rstd * weight[j] + bias[j]


@cuda.jit
def tree_rows(x, weight, bias, eps, y):
    """A block of 256 threads owns a row: a tree in shared memory for the mean, another for the variance.

    Thread t takes the elements t, t + 256, ...: the threads of a warp read neighbours. A tree adds 256 sums in 8 steps.
    Of an element 5 reads, 3 of x, and one write.
    """
    sums = cuda.shared.array(THREADS, x.dtype)
    squares = cuda.shared.array(THREADS, x.dtype)
    thread, row, width = cuda.threadIdx.x, cuda.blockIdx.x, x.shape[1]
    total = x.dtype.type(0)
    for j in range(thread, width, THREADS):
        total += x[row, j]
    sums[thread] = total
    add_up(sums, thread, 1)
    mean = sums[0] / x.dtype.type(width)
    total = x.dtype.type(0)
    for j in range(thread, width, THREADS):
        deviation = x[row, j] - mean
        total += deviation * deviation
    squares[thread] = total
    add_up(squares, thread, 1)
    rstd = x.dtype.type(1) / math.sqrt(squares[0] / x.dtype.type(width) + eps)
    for j in range(thread, width, THREADS):
        y[row, j] = (x[row, j] - mean) * rstd * weight[j] + bias[j]


def rungs(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5) -> dict[str, Rung]:
    """The launches for x (rows, width) with width from 1 to 1024, so that a lane keeps up to 32 elements of a row."""
    y = [np.full(x.shape, np.nan, x.dtype) for _ in range(4)]
    (rows, width), given = x.shape, [x, weight, bias, x.dtype.type(eps)]
    statistics = [np.full(rows, np.nan) for _ in range(4)]
    in_registers = layer_norm.warp_rows(blocks(width, WARP))
    warps, cached = [*given, y[2], *statistics[:2]], [*given, y[3], *statistics[2:]]
    return {
        "thread_rows": Rung(thread_rows, blocks(rows, THREADS), THREADS, [*given, y[0]], y[0]),
        "tree_rows": Rung(tree_rows, rows, THREADS, [*given, y[1]], y[1]),
        "warp_rows": Rung(in_registers, blocks(rows, WARPS), THREADS, warps, y[2]),
        "cached_rows": Rung(layer_norm.cached_rows, rows, THREADS, cached, y[3], width * x.itemsize),
    }
