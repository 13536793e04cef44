"""Matrix products, a ladder of four: each rung reads global memory less often than the one before.

    out[i, j] = sum over k of x[i, k] * y[k, j]        x (M, K), y (K, N), out (M, N)

                     a thread makes     a block makes      reads of an output     writes
    naive            1                  16 x 16            2 K                    1
    tiled            1                  16 x 16            2 K / 16               1
    register_tiled   8 x 2              64 x 64            2 K / 64               1
    register_square  8 x 8              128 x 128          2 K / 128              1

On every rung threadIdx.x runs along the columns of `out`, so that the threads of a warp read and write neighbours.
By published peaks a GPU does 25 (A100) to 160 (RTX 4090) multiplications of float32 in the time of reading one number
from global memory, and 2 to 4 in the time of reading one from shared memory: the second rung
mends the first bottleneck, the third the second. For each product the last three read shared memory 2, 10 / 16 and
16 / 64 times.

`tiled` is the example of the CUDA C++ Programming Guide, "Shared Memory". `register_tiled`, which the library runs, is
explained in kernels/matmul.py. Ladders of SGEMM end with `register_square`, and on large matrices it should be the
faster one: half of the global reads, 16 / 40 of those from shared memory. The library has the other for two reasons:

    Small products. A block of `register_square` makes 16,384 outputs, so that a product of 512 x 512 has 16 blocks for
    the 132 multiprocessors of an H100; `register_tiled` has 64.
    The CPU, where most readers run it: a product of 512 x 512 takes 45.3 ms of its time, and 12.2 ms by
    `register_tiled` (two cores with AVX2).

Occupancy does not decide: NVIDIA's assembler gives a thread 96 and 127 registers (compute capability 9.0; 120 and 128
for 7.5), so that of either a multiprocessor with 65,536 has room for two blocks of 256 threads, a quarter of what
fits on one of an H100. What hides the time of loads there are the products of each thread, which wait for nothing.
"""

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.ladders import Rung, blocks
from miniflow.kernels.matmul import ALIGNED, EACH, SIDE, THREADS, add_scaled, eight_of, eight_times, register_tiled

TILE = 16  # the side of a block of `naive` and `tiled`
SQUARE = 128  # rows and columns of a block of outputs of `register_square`
PADDED_SQUARE = SQUARE + 4
ACROSS = SQUARE // EACH  # its threads along x, and along y; and the distance between the columns of a thread
DEPTH = 8  # so much of K is in its shared memory at a time
LOADS = SQUARE * DEPTH // ACROSS**2  # elements of each tile that a thread loads


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


@cuda.jit
def register_square(x, y, out):
    """A block makes 128 x 128 outputs, a thread 8 x 8 of them in registers.

    Block (bx, by) owns out[128 by : 128 by + 128, 128 bx : 128 bx + 128]; thread (tx, ty) of its 16 x 16 owns the rows
    8 ty ... 8 ty + 7 of the columns tx, tx + 16, ... tx + 112. For each k it reads 8 + 8 numbers from shared memory and
    makes 64 products. A row of `left` has 4 cells more than it needs, so that the 8 k and 4 rows which a warp writes at
    once lie in 32 banks.
    """
    left = cuda.shared.array((DEPTH, PADDED_SQUARE), x.dtype, ALIGNED)
    right = cuda.shared.array((DEPTH, SQUARE), x.dtype, ALIGNED)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    thread, top, start = ty * ACROSS + tx, cuda.blockIdx.y * SQUARE, cuda.blockIdx.x * SQUARE
    rows, columns = out.shape
    inner = x.shape[1]
    zero = x.dtype.type(0)
    a = b = c = d = e = f = g = h = eight_times(zero)
    for first in range(0, inner, DEPTH):
        cuda.syncthreads()  # nobody reads the last tiles any more
        for part in range(LOADS):
            k, i = thread % DEPTH, thread // DEPTH + part * (SQUARE // LOADS)
            left[k, i] = x[top + i, first + k] if top + i < rows and first + k < inner else zero
            k, j = thread // SQUARE + part * (DEPTH // LOADS), thread % SQUARE
            right[k, j] = y[first + k, start + j] if start + j < columns and first + k < inner else zero
        cuda.syncthreads()  # the tiles are complete
        for k in range(DEPTH):
            factors = eight_of(left, k, ty * EACH)
            a, b = add_scaled(a, factors, right[k, tx]), add_scaled(b, factors, right[k, tx + ACROSS])
            c, d = add_scaled(c, factors, right[k, tx + 2 * ACROSS]), add_scaled(d, factors, right[k, tx + 3 * ACROSS])
            e, f = add_scaled(e, factors, right[k, tx + 4 * ACROSS]), add_scaled(f, factors, right[k, tx + 5 * ACROSS])
            g, h = add_scaled(g, factors, right[k, tx + 6 * ACROSS]), add_scaled(h, factors, right[k, tx + 7 * ACROSS])
    for i in range(EACH):
        put_eight(out, top + ty * EACH + i, start + tx, (a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]))


@cuda.jit(device=True)
def put_eight(out, row, column, values):
    """Write eight outputs of a row, ACROSS columns apart, that do not lie beyond the edge."""
    for j in range(EACH):
        if row < out.shape[0] and column + j * ACROSS < out.shape[1]:
            out[row, column + j * ACROSS] = values[j]


def rungs(x: np.ndarray, y: np.ndarray) -> dict[str, Rung]:
    """The launches for x (M, K) and y (K, N), of one floating dtype, of any sizes but 0 rows or columns."""
    out = [np.full((x.shape[0], y.shape[1]), np.nan, x.dtype) for _ in range(4)]
    grid, wide_grid, square_grid = (tuple(blocks(n, k) for n in out[0].shape[::-1]) for k in (TILE, SIDE, SQUARE))
    stacked = [x[None], y[None], np.empty(0, x.dtype), out[2][None], False, False]
    return {
        "naive": Rung(naive, grid, (TILE, TILE), [x, y, out[0]], out[0]),
        "tiled": Rung(tiled, grid, (TILE, TILE), [x, y, out[1]], out[1]),
        "register_tiled": Rung(register_tiled, (*wide_grid, 1), THREADS, stacked, out[2]),
        "register_square": Rung(register_square, square_grid, (ACROSS, ACROSS), [x, y, out[3]], out[3]),
    }
