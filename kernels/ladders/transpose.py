"""Transposing a matrix, a ladder of three: y[j, i] = x[i, j] for x (rows, columns), one read and one write an element.

                  of a warp's 32 writes        of its 32 reads of a tile       what is slow
    naive         32 sectors of 32 bytes       no tile                         the writes: 4 bytes of each sector count
    tiled         4 sectors                    all in one bank: 32 passes      shared memory, which answers them in turn
    padded        4 sectors                    in 32 banks: one pass           nothing but global memory

Nothing is computed, and the best that can be reached is the speed of a copy. A tile of 32 x 32 is read row by row and
written column by column, so that the threads of a warp read neighbours and write neighbours; the rows of a tile with 33
columns begin in different banks. Its 4.2 KB and the few registers of a thread let a multiprocessor be full of threads:
occupancy decides nothing here. Ruetsch and Micikevicius 2009, "Optimizing matrix transpose in CUDA".
"""

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.ladders import Rung, blocks

TILE = 32  # rows and columns of a tile: a warp moves a row of it
DEPTH = 8  # threads of a block along y: each moves TILE / DEPTH elements


@cuda.jit
def naive(x, y):
    """Thread (i, j) moves x[i, j]: a warp reads 32 neighbours, and writes 32 elements of one column."""
    j, i = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        y[j, i] = x[i, j]


def make_tiled(columns):
    """The kernel in which block (bx, by) of 32 x 8 threads moves the tile x[32 by : 32 by + 32, 32 bx : 32 bx + 32] by
    way of a shared array of 32 x `columns`."""

    @cuda.jit
    def tiled(x, y):
        tile = cuda.shared.array((TILE, columns), x.dtype)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        top, start = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
        for k in range(ty, TILE, DEPTH):
            if top + k < x.shape[0] and start + tx < x.shape[1]:
                tile[k, tx] = x[top + k, start + tx]
        cuda.syncthreads()  # the tile is complete
        for k in range(ty, TILE, DEPTH):
            if start + k < y.shape[0] and top + tx < y.shape[1]:
                y[start + k, top + tx] = tile[tx, k]

    return tiled


tiled, padded = make_tiled(TILE), make_tiled(TILE + 1)


def rungs(x: np.ndarray) -> dict[str, Rung]:
    """The launches for x (rows, columns), of any dtype and of any sizes but 0."""
    y = [np.full(x.shape[::-1], np.nan, x.dtype) for _ in range(3)]
    tiles = blocks(x.shape[1], TILE), blocks(x.shape[0], TILE)
    flat = blocks(x.shape[1], TILE), blocks(x.shape[0], DEPTH)
    return {
        "naive": Rung(naive, flat, (TILE, DEPTH), [x, y[0]], y[0]),
        "tiled": Rung(tiled, tiles, (TILE, DEPTH), [x, y[1]], y[1]),
        "padded": Rung(padded, tiles, (TILE, DEPTH), [x, y[2]], y[2]),
    }
