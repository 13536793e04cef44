"""Kernel puzzles: CUDA kernels, run without a GPU. Fill in what raises Todo, then run: python -m tutorials check 6

All arrays are float32. Keep the names of the arguments; the last one, `out`, is what a kernel writes. Each thread
writes the element of `out` that has its number, unless the puzzle says otherwise.
"""

import numpy as np

from miniflow.hostcuda import cuda
from tutorials import Todo  # noqa: F401

BLOCK = 32  # threads of a block in one dim
STEPS = 5  # 2 ** STEPS is BLOCK
TILE = 8  # threads of a block along each of two dims
TAPS = 4  # weights of a convolution
SPAN = BLOCK + TAPS - 1  # elements that a block needs for it


@cuda.jit
def add_ten(x, out):
    """out[i] = x[i] + 10, for x of any size (n,). Launch: one block of n threads."""
    # task 6.1: map
    i = cuda.threadIdx.x
    out[i] = x[i] + 10
    # end


@cuda.jit
def add_pairs(a, b, out):
    """out[i] = a[i] + b[i], all of shape (n,). Launch: one block of n threads."""
    # task 6.2: zip
    i = cuda.threadIdx.x
    out[i] = a[i] + b[i]
    # end


@cuda.jit
def guarded(x, out):
    """out[i] = x[i] + 10, for x of shape (n,), n <= BLOCK. Launch: one block of BLOCK threads."""
    # task 6.3: guard
    i = cuda.threadIdx.x
    if i < x.size:
        out[i] = x[i] + 10
    # end


@cuda.jit
def double(x, out):
    """out[i, j] = 2 * x[i, j], for x of shape (m, n), both <= TILE. Launch: one block of (TILE, TILE) threads."""
    # task 6.4: map in two dims
    j, i = cuda.threadIdx.x, cuda.threadIdx.y
    rows, columns = x.shape
    if i < rows and j < columns:
        out[i, j] = 2 * x[i, j]
    # end


@cuda.jit
def broadcast(column, row, out):
    """out[i, j] = column[i, 0] + row[0, j]: shapes (m, 1), (1, n), (m, n), m and n <= TILE. Launch: as in 6.4."""
    # task 6.5: broadcast
    j, i = cuda.threadIdx.x, cuda.threadIdx.y
    rows, columns = out.shape
    if i < rows and j < columns:
        out[i, j] = column[i, 0] + row[0, j]
    # end


@cuda.jit
def square(x, out):
    """out[i] = x[i] * x[i], for x of any size (n,). Launch: blocks of BLOCK threads, enough for n elements."""
    # task 6.6: blocks
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] * x[i]
    # end


@cuda.jit
def add_bias(x, bias, out):
    """out[i, j] = x[i, j] + bias[j]: shapes (m, n), (n,), (m, n). Launch: blocks of (TILE, TILE) threads."""
    # task 6.7: blocks in two dims
    j, i = cuda.grid(2)
    rows, columns = x.shape
    if i < rows and j < columns:
        out[i, j] = x[i, j] + bias[j]
    # end


@cuda.jit
def reverse(x, out):
    """Each block reverses its BLOCK elements of x, whose size is a multiple of BLOCK. Launch: blocks of BLOCK threads.

    Thread i reads only x[i] and writes only out[i].
    """
    # task 6.8: shared memory
    cells = cuda.shared.array(BLOCK, np.float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    cells[t] = x[i]
    cuda.syncthreads()
    out[i] = cells[BLOCK - 1 - t]
    # end


@cuda.jit
def pool(x, out):
    """out[i] = x[i - 2] + x[i - 1] + x[i] without what is before x[0]; x (n,), n <= BLOCK. Launch: one block of BLOCK.

    Reads n elements of global memory.
    """
    tile = cuda.shared.array(BLOCK, np.float32)
    i = cuda.threadIdx.x
    # task 6.9: pooling
    if i < x.size:
        tile[i] = x[i]
    cuda.syncthreads()
    if i < x.size:
        total = np.float32(0)
        for k in range(max(i - 2, 0), i + 1):
            total += tile[k]
        out[i] = total
    # end


@cuda.jit
def dot(a, b, out):
    """out[0] = a[0] * b[0] + a[1] * b[1] + ...; a and b (n,), n <= BLOCK, out (1,). Launch: one block of BLOCK.

    Reads 2 n elements of global memory and writes one.
    """
    products = cuda.shared.array(BLOCK, np.float32)
    i = cuda.threadIdx.x
    # task 6.10: dot product
    if i < a.size:
        products[i] = a[i] * b[i]
    cuda.syncthreads()
    if i == 0:
        total = np.float32(0)
        for k in range(a.size):
            total += products[k]
        out[0] = total
    # end


@cuda.jit
def convolve(x, weight, out):
    """out[i] = weight[0] * x[i] + ... + weight[3] * x[i + 3], with 0 for what is beyond the end of x.

    x and out have any size (n,), weight has TAPS = 4 elements. Launch: blocks of BLOCK threads, enough for n. A block
    reads at most SPAN elements of x and TAPS of weight.
    """
    tile = cuda.shared.array(SPAN, np.float32)
    taps = cuda.shared.array(TAPS, np.float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    # task 6.11: convolution in one dim
    tile[t] = x[i] if i < x.size else 0
    if t < TAPS - 1:
        tile[t + BLOCK] = x[i + BLOCK] if i + BLOCK < x.size else 0
    if t < TAPS:
        taps[t] = weight[t]
    cuda.syncthreads()
    if i < x.size:
        total = np.float32(0)
        for k in range(TAPS):
            total += taps[k] * tile[t + k]
        out[i] = total
    # end


@cuda.jit
def prefix_sum(x, out):
    """In each block, out[i] is the sum of the block's elements up to and with x[i]; the next block begins at 0 again.

    x has any size (n,). Launch: blocks of BLOCK threads, enough for n. Reads each element once, and takes STEPS steps.
    """
    sums = cuda.shared.array(BLOCK, np.float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    # task 6.12: prefix sum
    sums[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    for k in range(STEPS):
        before = sums[t - 2**k] if t >= 2**k else np.float32(0)
        cuda.syncthreads()
        sums[t] += before
        cuda.syncthreads()
    if i < x.size:
        out[i] = sums[t]
    # end


@cuda.jit
def axis_sum(x, out):
    """out[r] is the sum of row r: x (m, n), n <= BLOCK, out (m,). Launch: m blocks of BLOCK threads, one for each row.

    Reads each element once, and takes STEPS steps. Thread 0 of block r writes out[r].
    """
    sums = cuda.shared.array(BLOCK, np.float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    # task 6.13: sum along an axis
    sums[t] = x[row, t] if t < x.shape[1] else 0
    cuda.syncthreads()
    for k in range(STEPS):
        half = BLOCK // 2 ** (k + 1)
        if t < half:
            sums[t] += sums[t + half]
        cuda.syncthreads()
    if t == 0:
        out[row] = sums[0]
    # end


@cuda.jit
def matmul(a, b, out):
    """out = a @ b, of any shapes (m, k), (k, n), (m, n). Launch: blocks of (TILE, TILE) threads, enough for out.

    For each tile of out, a block reads TILE rows of a and TILE columns of b, each element once.
    """
    left = cuda.shared.array((TILE, TILE), np.float32)
    right = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    j, i = cuda.grid(2)
    # task 6.14: matrix product in tiles
    rows, inner = a.shape
    columns = b.shape[1]
    total = np.float32(0)
    for start in range(0, inner, TILE):
        left[y, x] = a[i, start + x] if i < rows and start + x < inner else 0
        right[y, x] = b[start + y, j] if start + y < inner and j < columns else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += left[y, k] * right[k, x]
        cuda.syncthreads()
    if i < rows and j < columns:
        out[i, j] = total
    # end
