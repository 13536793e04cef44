"""Matrix products, a ladder of three: each rung reads global memory less often than the one before.

    out[i, j] = sum over k of x[i, k] * y[k, j]        x (M, K), y (K, N), out (M, N)

                     a thread makes     a block makes      reads of an output     writes
    naive            1                  16 x 16            2 K                    1
    tiled            1                  16 x 16            2 K / 16               1
    register_tiled   8 x 2              64 x 64            2 K / 64               1

On every rung threadIdx.x runs along the columns of `out`, so that the threads of a warp read and write neighbours.
A GPU can do some 20 multiplications in the time of reading one number from global memory, and 4 in the time of reading
one from shared memory: the second rung mends the first bottleneck, the third the second.

`tiled` is the example of the CUDA C++ Programming Guide, "Shared Memory"; `register_tiled`, which the library runs, is
explained in kernels/matmul.py.
"""

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.ladders import Rung, blocks
from miniflow.kernels.matmul import SIDE, THREADS, register_tiled

TILE = 16  # the side of a block of `naive` and `tiled`


@cuda.jit
def naive(x, y, out):
    """One thread an output, straight from the formula.

    Thread (tx, ty) of block (bx, by) owns out[16 by + ty, 16 bx + tx]. It reads a row of x, as do all threads with its
    ty, and a column of y: 2 K reads from global memory, and one write.
    """
    column, row = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        total = x.dtype.type(0)
        for k in range(x.shape[1]):
            total += x[row, k] * y[k, column]
        out[row, column] = total


@cuda.jit
def tiled(x, y, out):
    """As `naive`, but the threads of a block read for each other.

    In step s the block needs x[16 by : 16 by + 16, 16 s : 16 s + 16] and the like of y. Each of its 256 threads copies
    one element of each into shared memory, and then uses 16 of each: 2 K / 16 reads from global memory, and 2 K from
    shared memory; one write. Beyond the edges the tiles hold zeros, which add nothing.

              y  |  s  |              left[ty, k]   = x[row, 16 s + k]
            -----+-----+              right[k, tx]  = y[16 s + k, column]
    x  s ->      | out |
    """
    left = cuda.shared.array((TILE, TILE), x.dtype)
    right = cuda.shared.array((TILE, TILE), x.dtype)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    rows, columns = out.shape
    inner = x.shape[1]
    zero = x.dtype.type(0)
    total = zero
    for start in range(0, inner, TILE):
        left[ty, tx] = x[row, start + tx] if row < rows and start + tx < inner else zero
        right[ty, tx] = y[start + ty, column] if column < columns and start + ty < inner else zero
        cuda.syncthreads()  # the tiles are complete
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()  # nobody reads them any more
    if row < rows and column < columns:
        out[row, column] = total


def rungs(x: np.ndarray, y: np.ndarray) -> dict[str, Rung]:
    """The launches for x (M, K) and y (K, N), of one floating dtype, of any sizes but 0 rows or columns."""
    out = [np.full((x.shape[0], y.shape[1]), np.nan, x.dtype) for _ in range(3)]
    grid, wide_grid = (tuple(blocks(n, side) for n in out[0].shape[::-1]) for side in (TILE, SIDE))
    stacked = [x[None], y[None], np.empty(0, x.dtype), out[2][None], False, False]
    return {
        "naive": Rung(naive, grid, (TILE, TILE), [x, y, out[0]], out[0]),
        "tiled": Rung(tiled, grid, (TILE, TILE), [x, y, out[1]], out[1]),
        "register_tiled": Rung(register_tiled, (*wide_grid, 1), THREADS, stacked, out[2]),
    }
