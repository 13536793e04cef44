"""Matrix products: `register_tiled`, the third rung of the ladder in ladders/matmul.py. Read the first two there, and
why the library does not run the fourth.

    out[b] = x[b] @ y[b] + bias        x (B, M, K), y (B, K, N), out (B, M, N)

A block makes 64 x 64 outputs, a thread 8 x 2: 2 K / 64 global reads and one write for each output. threadIdx.x runs
along the columns of `out`, so that the threads of a warp read and write neighbours. Volkov and Demmel 2008,
"Benchmarking GPUs to tune dense linear algebra".
"""

import numpy as np
from numba import config

from miniflow.hostcuda import cuda

THREADS = (32, 8)  # a block
HALF = 32  # distance between the two columns of a thread
EACH = 8  # rows of a thread
SIDE = 64  # rows and columns of a block of outputs
DEPTH = 16  # so much of K is in shared memory at a time
LOADS = 4  # elements of each tile that a thread loads: SIDE * DEPTH / 256
PADDED = SIDE + 4
"""Columns of a tile. `load` writes down a column where k runs along the rows of a matrix, and `eight_of` reads along a
row. What `profile=True` counts for x @ y.T of 64 x 64, and what numba-cuda's PTX reads for four k:

    columns     passes of shared memory, of these for conflicts     loads of 4, 2 and 1 numbers
    64          9,216       3,840, 16-way                           8     0      8
    65          5,632         256, 2-way                            2     0     32
    66          5,376           0                                   2    12      8
    68          5,632         256, 2-way                            8     0      8

With 68 rows stay aligned for loads of four numbers: 16 loads for 64 products, not 22, are worth a pass in twenty."""
ALIGNED = None if config.ENABLE_CUDASIM else 16  # bytes: four floats are then read at once


@cuda.jit(device=True)
def load(left, right, x, y, top, start, first, x_transposed, y_transposed):
    """left[k, i] = x[top + i, first + k] and right[k, j] = y[first + k, start + j], zero beyond the edges.

    A matrix is read along its rows, transposed or not, so that neighbouring threads read neighbours.
    """
    cuda.syncthreads()  # nobody reads the last tiles any more
    thread = cuda.threadIdx.y * HALF + cuda.threadIdx.x
    across, along = thread // DEPTH, thread % DEPTH  # for a matrix in whose rows k runs
    across_64, along_64 = thread // SIDE, thread % SIDE  # for one in whose columns it runs
    x_of, y_of = min(cuda.blockIdx.z, x.shape[0] - 1), min(cuda.blockIdx.z, y.shape[0] - 1)
    zero = x.dtype.type(0)
    if x_transposed:
        for part in range(LOADS):
            k, i = across_64 + part * LOADS, along_64
            inside = first + k < x.shape[1] and top + i < x.shape[2]
            left[k, i] = x[x_of, first + k, top + i] if inside else zero
    else:
        for part in range(LOADS):
            k, i = along, across + part * DEPTH
            inside = top + i < x.shape[1] and first + k < x.shape[2]
            left[k, i] = x[x_of, top + i, first + k] if inside else zero
    if y_transposed:
        for part in range(LOADS):
            k, j = along, across + part * DEPTH
            inside = start + j < y.shape[1] and first + k < y.shape[2]
            right[k, j] = y[y_of, start + j, first + k] if inside else zero
    else:
        for part in range(LOADS):
            k, j = across_64 + part * LOADS, along_64
            inside = first + k < y.shape[1] and start + j < y.shape[2]
            right[k, j] = y[y_of, first + k, start + j] if inside else zero


@cuda.jit(device=True)
def eight_times(value):
    """(value, ..., value): the sums of a thread are tuples of EACH numbers, which a GPU keeps in registers."""
    return value, value, value, value, value, value, value, value


@cuda.jit(device=True)
def eight_of(tile, k, first):
    """(tile[k, first], ..., tile[k, first + 7]), which all threads of a warp read at once."""
    i = np.uint32(first)  # numba counts negative indices from the end: of unsigned ones it need not test the sign
    return (
        tile[k, i], tile[k, i + 1], tile[k, i + 2], tile[k, i + 3],
        tile[k, i + 4], tile[k, i + 5], tile[k, i + 6], tile[k, i + 7],
    )  # fmt: skip


@cuda.jit(device=True)
def add_scaled(sums, values, factor):
    """sums + values * factor, for tuples of EACH numbers."""
    return (
        sums[0] + values[0] * factor,
        sums[1] + values[1] * factor,
        sums[2] + values[2] * factor,
        sums[3] + values[3] * factor,
        sums[4] + values[4] * factor,
        sums[5] + values[5] * factor,
        sums[6] + values[6] * factor,
        sums[7] + values[7] * factor,
    )


@cuda.jit(device=True)
def put(out, bias, batch, row, column, a, b):
    """Write two outputs of a row, HALF columns apart, that do not lie beyond the edge; with the bias, if any."""
    if row < out.shape[1]:
        if column < out.shape[2]:
            out[batch, row, column] = a + bias[column] if bias.shape[0] > 0 else a
        if column + HALF < out.shape[2]:
            out[batch, row, column + HALF] = b + bias[column + HALF] if bias.shape[0] > 0 else b


@cuda.jit
def register_tiled(x, y, bias, out, x_transposed, y_transposed):
    """out[b] = x[b] @ y[b] + bias: a block makes 64 x 64 outputs, a thread 8 x 2 of them in registers.

    Block (bx, by, b) owns out[b, 64 by : 64 by + 64, 64 bx : 64 bx + 64]; thread (tx, ty) of its 32 x 8 owns the rows
    8 ty ... 8 ty + 7 of columns tx (sums a) and tx + 32 (sums b). A warp has one ty: the 8 elements of x
    that it needs for a k are the same for all its threads, which costs shared memory one access. For each k a thread
    reads 8 + 2 numbers from shared memory and makes 16 products.

    Both tiles lie in shared memory with k first; see `load`.

    Args:
        x: (B or 1, M, K), or (B or 1, K, M) if `x_transposed`.
        y: (B or 1, K, N), or (B or 1, N, K) if `y_transposed`.
        bias: (N,), or (0,) for none.
        out: (B, M, N).
        x_transposed, y_transposed: whether the matrices are given transposed.
    """
    left = cuda.shared.array((DEPTH, PADDED), x.dtype, ALIGNED)
    right = cuda.shared.array((DEPTH, PADDED), x.dtype, ALIGNED)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    batch = cuda.blockIdx.z
    top, start = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE
    inner = x.shape[1] if x_transposed else x.shape[2]
    a = b = eight_times(x.dtype.type(0))
    for first in range(0, inner, DEPTH):
        load(left, right, x, y, top, start, first, x_transposed, y_transposed)
        cuda.syncthreads()  # the tiles are complete
        if top + ty * EACH < out.shape[1]:  # a warp whose rows lie beyond the edge has nothing to do
            for four in range(0, DEPTH, 4):  # short loops are unrolled
                for k in range(four, four + 4):
                    factors = eight_of(left, k, ty * EACH)
                    a = add_scaled(a, factors, right[k, tx])
                    b = add_scaled(b, factors, right[k, tx + HALF])
    row, column = top + ty * EACH, start + tx
    for i in range(EACH):
        put(out, bias, batch, row + i, column, a[i], b[i])
