"""Softmax and log-softmax of the rows of x (rows, width), and their gradients.

A block owns a row: one warp for short rows, up to eight for long ones. Thread i takes the elements i, i + blockDim.x,
and so on, so that neighbours read neighbours. What must be known of the whole row, its maximum and its sum, comes from
shuffles within warps, and for several warps from `partial` in shared memory.

Three passes go over a row: for the maximum, for the sum, for the result. A row that fits is kept in shared memory, with
its exponentials once they are known: each element is read once and written once. A longer one is read again from x, and
softmax keeps its exponentials in y.
"""

import math

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import WARP, WARPS, add, larger, warp_max, warp_sum

SHARED_BYTES = 47 * 1024  # of dynamic shared memory: 48 KB are there on every GPU, `partial` takes a little


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


def make_softmax_rows(is_log, is_cached):
    """`softmax_rows[rows, threads, stream, width * itemsize if is_cached else 0](x, y)`.

    y_j = exp(x_j - max) / total, or its logarithm (x_j - max) - log total, with total = sum_k exp(x_k - max).

    Args:
        is_log: whether y is the logarithm.
        is_cached: whether the row lies in dynamic shared memory between the passes. A thread reads there only what it
            wrote itself, so that no barrier is needed.
    """

    @cuda.jit
    def softmax_rows(x, y):
        values = cuda.shared.array(0, x.dtype)
        partial = cuda.shared.array(WARPS, x.dtype)
        row, thread, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
        largest = x.dtype.type(-math.inf)
        for j in range(thread, width, cuda.blockDim.x):
            value = x[row, j]
            if is_cached:
                values[j] = value
            largest = max(largest, value)
        largest = block_max(largest, partial)
        total = x.dtype.type(0)
        for j in range(thread, width, cuda.blockDim.x):
            value = (values[j] if is_cached else x[row, j]) - largest
            power = math.exp(value)
            if is_cached:
                values[j] = value if is_log else power
            elif not is_log:
                y[row, j] = power
            total += power
        total = block_sum(total, partial)
        scale, log_total = x.dtype.type(1) / total, math.log(total)
        for j in range(thread, width, cuda.blockDim.x):
            if is_log:
                y[row, j] = (values[j] if is_cached else x[row, j] - largest) - log_total
            else:
                y[row, j] = (values[j] if is_cached else y[row, j]) * scale

    return softmax_rows


cached_softmax_rows, long_softmax_rows = make_softmax_rows(False, True), make_softmax_rows(False, False)
cached_log_softmax_rows, long_log_softmax_rows = make_softmax_rows(True, True), make_softmax_rows(True, False)


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
