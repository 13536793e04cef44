"""Matrix products, a ladder of three: each rung reads global memory less often than the one before.

    out[i, j] = sum over k of x[i, k] * y[k, j]        x (M, K), y (K, N), out (M, N)

                     a thread makes     a block makes      global reads for each output
    naive            1                  16 x 16            2 K
    tiled            1                  16 x 16            2 K / 16
    register_tiled   8 x 2              64 x 64            2 K / 64

On every rung threadIdx.x runs along the columns of `out`, so that the threads of a warp read and write neighbours.
A GPU can do some 20 multiplications in the time of reading one number from global memory, and 4 in the time of reading
one from shared memory: the second rung mends the first bottleneck, the third the second.

`tiled` is the example of the CUDA C++ Programming Guide, "Shared Memory"; for `register_tiled` see Volkov and Demmel
2008, "Benchmarking GPUs to tune dense linear algebra".
"""

from numba import config

from miniflow.hostcuda import cuda

TILE = 16  # the side of a block of `naive` and `tiled`

THREADS = (32, 8)  # a block of register_tiled
HALF = 32  # distance between the two columns of a thread
EACH = 8  # rows of a thread
SIDE = 64  # rows and columns of a block of outputs
DEPTH = 16  # so much of K is in shared memory at a time
LOADS = 4  # elements of each tile that a thread loads: SIDE * DEPTH / 256
PADDED = SIDE + 4  # columns of a tile: with 64, a column would lie in a single bank of shared memory
ALIGNED = None if config.ENABLE_CUDASIM else 16  # bytes: four floats are then read at once


@cuda.jit
def naive(x, y, out):
    """One thread an output, straight from the formula.

    Thread (tx, ty) of block (bx, by) owns out[16 by + ty, 16 bx + tx]. It reads a row of x, as do all threads with its
    ty, and a column of y: 2 K reads from global memory.
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
    shared memory. Beyond the edges the tiles hold zeros, which add nothing.

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
    8 ty ... 8 ty + 7 of columns tx (sums a0 ... a7) and tx + 32 (b0 ... b7). A warp has one ty: the 8 elements of x
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
    zero = x.dtype.type(0)
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = zero
    b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = zero
    for first in range(0, inner, DEPTH):
        load(left, right, x, y, top, start, first, x_transposed, y_transposed)
        cuda.syncthreads()  # the tiles are complete
        if top + ty * EACH < out.shape[1]:  # a warp whose rows lie beyond the edge has nothing to do
            for four in range(0, DEPTH, 4):  # short loops are unrolled
                for k in range(four, four + 4):
                    u, v = right[k, tx], right[k, tx + HALF]
                    a0, b0 = a0 + left[k, ty * EACH] * u, b0 + left[k, ty * EACH] * v
                    a1, b1 = a1 + left[k, ty * EACH + 1] * u, b1 + left[k, ty * EACH + 1] * v
                    a2, b2 = a2 + left[k, ty * EACH + 2] * u, b2 + left[k, ty * EACH + 2] * v
                    a3, b3 = a3 + left[k, ty * EACH + 3] * u, b3 + left[k, ty * EACH + 3] * v
                    a4, b4 = a4 + left[k, ty * EACH + 4] * u, b4 + left[k, ty * EACH + 4] * v
                    a5, b5 = a5 + left[k, ty * EACH + 5] * u, b5 + left[k, ty * EACH + 5] * v
                    a6, b6 = a6 + left[k, ty * EACH + 6] * u, b6 + left[k, ty * EACH + 6] * v
                    a7, b7 = a7 + left[k, ty * EACH + 7] * u, b7 + left[k, ty * EACH + 7] * v
    row, column = top + ty * EACH, start + tx
    put(out, bias, batch, row, column, a0, b0)
    put(out, bias, batch, row + 1, column, a1, b1)
    put(out, bias, batch, row + 2, column, a2, b2)
    put(out, bias, batch, row + 3, column, a3, b3)
    put(out, bias, batch, row + 4, column, a4, b4)
    put(out, bias, batch, row + 5, column, a5, b5)
    put(out, bias, batch, row + 6, column, a6, b6)
    put(out, bias, batch, row + 7, column, a7, b7)
