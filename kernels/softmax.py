"""Softmax and log-softmax of the rows of x (rows, width), and their gradients.

A block owns a row: one warp for short rows, up to eight for long ones. Thread i takes the elements i, i + blockDim.x,
and so on, so that neighbours read neighbours. What must be known of the whole row, its maximum and its sum, comes from
shuffles within warps, and for several warps from `partial` in shared memory.

The passes over a row follow each other while it lies in the cache: of global memory each element is read once and
written once; softmax keeps its exponentials in y between the passes.
"""

import math

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import WARP, WARPS, add, larger, warp_max, warp_sum


def make_block_reduction(across_warp, combine):
    """across_block(value, partial) combines the values of all threads of a block, for each of them; `partial` is shared
    memory for a value of each warp."""

    @cuda.jit(device=True)
    def across_block(value, partial):
        value = across_warp(value)
        if cuda.blockDim.x > WARP:
            if cuda.threadIdx.x % WARP == 0:
                partial[cuda.threadIdx.x // WARP] = value
            cuda.syncthreads()
            value = partial[0]
            for warp in range(1, cuda.blockDim.x // WARP):
                value = combine(value, partial[warp])
            cuda.syncthreads()  # `partial` may be written again
        return value

    return across_block


block_sum, block_max = make_block_reduction(warp_sum, add), make_block_reduction(warp_max, larger)


@cuda.jit(device=True)
def row_max(x, row, partial):
    """The largest element of a row, in each thread of a block."""
    largest = x.dtype.type(-math.inf)
    for j in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        largest = max(largest, x[row, j])
    return block_max(largest, partial)


@cuda.jit
def softmax_rows(x, y):
    """y_j = exp(x_j - max) / sum_k exp(x_k - max)"""
    partial = cuda.shared.array(WARPS, x.dtype)
    row = cuda.blockIdx.x
    largest = row_max(x, row, partial)
    total = x.dtype.type(0)
    for j in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        value = math.exp(x[row, j] - largest)
        y[row, j] = value
        total += value
    scale = x.dtype.type(1) / block_sum(total, partial)
    for j in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        y[row, j] *= scale


@cuda.jit
def log_softmax_rows(x, y):
    """y_j = (x_j - max) - log sum_k exp(x_k - max)"""
    partial = cuda.shared.array(WARPS, x.dtype)
    row = cuda.blockIdx.x
    largest = row_max(x, row, partial)
    total = x.dtype.type(0)
    for j in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        total += math.exp(x[row, j] - largest)
    log_total = math.log(block_sum(total, partial))
    for j in range(cuda.threadIdx.x, x.shape[1], cuda.blockDim.x):
        y[row, j] = (x[row, j] - largest) - log_total


@cuda.jit
def softmax_grad_rows(dy, y, dx):
    """dx_j = y_j (dy_j - sum_k dy_k y_k)"""
    partial = cuda.shared.array(WARPS, y.dtype)
    row = cuda.blockIdx.x
    dot = y.dtype.type(0)
    for j in range(cuda.threadIdx.x, y.shape[1], cuda.blockDim.x):
        dot += dy[row, j] * y[row, j]
    dot = block_sum(dot, partial)
    for j in range(cuda.threadIdx.x, y.shape[1], cuda.blockDim.x):
        dx[row, j] = y[row, j] * (dy[row, j] - dot)


@cuda.jit
def log_softmax_grad_rows(dy, y, dx):
    """dx_j = dy_j - exp(y_j) sum_k dy_k"""
    partial = cuda.shared.array(WARPS, y.dtype)
    row = cuda.blockIdx.x
    total = y.dtype.type(0)
    for j in range(cuda.threadIdx.x, y.shape[1], cuda.blockDim.x):
        total += dy[row, j]
    total = block_sum(total, partial)
    for j in range(cuda.threadIdx.x, y.shape[1], cuda.blockDim.x):
        dx[row, j] = dy[row, j] - math.exp(y[row, j]) * total
