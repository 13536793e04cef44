"""Matrix products as kernels. Fill in what raises Todo, then run: python -m tutorials check 8"""

import numpy as np

from miniflow.hostcuda import host as cuda  # runs on every machine; for a GPU: from miniflow.hostcuda import cuda
from tutorials import Todo  # noqa: F401

TILE = 16  # the side of a tile, and of a block of threads in tasks 8.3 and 8.4
EACH = 2  # in task 8.4 a thread makes EACH x EACH outputs
SIDE = TILE * EACH  # and a block SIDE x SIDE


@cuda.jit(device=True)
def element(x, i, j):
    """x[i, j], or 0 where the matrix has no such element."""
    return x[i, j] if i < x.shape[0] and j < x.shape[1] else np.float32(0)


@cuda.jit(device=True)
def put(x, i, j, value):
    """x[i, j] = value, if the matrix has such an element."""
    if i < x.shape[0] and j < x.shape[1]:
        x[i, j] = value


@cuda.jit
def naive(a, b, c):
    """c = a @ b. Thread (i, j) of the grid makes c[i, j]; the grid may be larger than c.

    Args:
        a: float32 of shape (M, K).
        b: float32 of shape (K, N).
        c: float32 of shape (M, N), written.
    """
    # task 8.1: one output for each thread
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        c[i, j] = total
    # end


@cuda.jit
def coalesced(a, b, c):
    """As `naive`, but thread (x, y) of the grid makes c[y, x]."""
    # task 8.2: the threads of a warp read neighbours
    column, row = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total
    # end


@cuda.jit
def tiled(a, b, c):
    """As `coalesced`, in blocks of TILE x TILE threads that copy tiles of `a` and `b` to shared memory.

    In each step, thread (x, y) of a block copies the elements [y, x] of both tiles.
    """
    a_tile = cuda.shared.array((TILE, TILE), np.float32)
    b_tile = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    # task 8.3: tiles in shared memory
    column, row = cuda.grid(2)
    total = np.float32(0)
    for start in range(0, a.shape[1], TILE):
        a_tile[y, x] = element(a, row, start + x)
        b_tile[y, x] = element(b, start + y, column)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    put(c, row, column, total)
    # end


@cuda.jit
def blocked(a, b, c):
    """As `tiled`, but each of the TILE x TILE threads of a block makes EACH x EACH outputs.

    Block (bx, by) makes SIDE rows of c from row SIDE * by on, and SIDE columns from column SIDE * bx on. Of these,
    thread (x, y) makes the rows y, y + TILE, ... and the columns x, x + TILE, ...
    """
    a_tile = cuda.shared.array((SIDE, TILE), np.float32)
    b_tile = cuda.shared.array((TILE, SIDE), np.float32)
    totals = cuda.local.array((EACH, EACH), np.float32)  # of this thread alone; holds garbage at first
    b_values = cuda.local.array(EACH, np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    # task 8.4: several outputs for each thread
    column, row = cuda.blockIdx.x * SIDE + x, cuda.blockIdx.y * SIDE + y
    totals[:, :] = 0
    for start in range(0, a.shape[1], TILE):
        for i in range(EACH):
            a_tile[y + i * TILE, x] = element(a, row + i * TILE, start + x)
            b_tile[y, x + i * TILE] = element(b, start + y, column + i * TILE)
        cuda.syncthreads()
        for k in range(TILE):
            for j in range(EACH):
                b_values[j] = b_tile[k, x + j * TILE]
            for i in range(EACH):
                a_value = a_tile[y + i * TILE, k]
                for j in range(EACH):
                    totals[i, j] += a_value * b_values[j]
        cuda.syncthreads()
    for i in range(EACH):
        for j in range(EACH):
            put(c, row + i * TILE, column + j * TILE, totals[i, j])
    # end


def reads(m, n, k, rows, columns):
    """How many elements of a (m, k) and b (k, n) are read from global memory, in all.

    Args:
        m, n, k: the sizes.
        rows, columns: a block makes so many rows and columns of the result, and reads what it needs once; at the edges
            it reads only what is there. 1, 1 is the naive kernel.

    Returns:
        an int.
    """
    # task 8.5: predict what the profiler counts
    return m * k * -(-n // columns) + k * n * -(-m // rows)
    # end


def intensity(m, n, k, rows, columns):
    """Operations for each byte that is moved: a float.

    A multiplication and an addition are two operations. Bytes are those of the reads, and of one write for each output;
    an element has 4 bytes. The arguments are those of `reads`.
    """
    # task 8.5: predict what the profiler counts
    return 2 * m * n * k / (4 * (reads(m, n, k, rows, columns) + m * n))
    # end
