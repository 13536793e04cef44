"""Kernels as courses and books write them, each beside the best loop for the same job: `njit(parallel=True)` by hand.

Unlike those of `launches`, none is written with a CPU in mind: the matrix product of numba's documentation lets
threadIdx.x run down the rows, reductions are trees and shuffles, one thread does one thing. Their bounds are checked,
as those of every kernel outside the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import float32, int32, njit, prange

from benchmarks import handwritten
from benchmarks.launches import Launch, blocks, nans, numbers
from miniflow.hostcuda import cuda

TILE, BLOCK, WARP, BINS = 16, 256, 32, 256
PADDED, WITH_HALO, WITH_HALO_OF_2 = TILE + 1, TILE + 2, TILE + 4  # sizes of arrays are constants in numba.cuda
SOFTENING = np.float32(1e-3)
fast = njit(parallel=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
"""Sums may be added up in any order, as in trees of threads."""


# matrix products


@cuda.jit
def fast_matmul(A, B, C):
    """From numba's documentation."""
    sA = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    sB = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    x, y = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    bpg = cuda.gridDim.x
    tmp = float32(0.0)
    for i in range(bpg):
        sA[ty, tx] = 0
        sB[ty, tx] = 0
        if y < A.shape[0] and (tx + i * TILE) < A.shape[1]:
            sA[ty, tx] = A[y, tx + i * TILE]
        if x < B.shape[1] and (ty + i * TILE) < B.shape[0]:
            sB[ty, tx] = B[ty + i * TILE, x]
        cuda.syncthreads()
        for j in range(TILE):
            tmp += sA[ty, j] * sB[j, tx]
        cuda.syncthreads()
    if y < C.shape[0] and x < C.shape[1]:
        C[y, x] = tmp


@cuda.jit
def older_fast_matmul(A, B, C):
    """From numba's documentation before 0.57, and from most that was copied of it: x is the row."""
    sA = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    sB = cuda.shared.array(shape=(TILE, TILE), dtype=float32)
    x, y = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    bpg = cuda.gridDim.x
    if x >= C.shape[0] and y >= C.shape[1]:
        return
    tmp = 0.0
    for i in range(bpg):
        sA[tx, ty] = A[x, ty + i * TILE]
        sB[tx, ty] = B[tx + i * TILE, y]
        cuda.syncthreads()
        for j in range(TILE):
            tmp += sA[tx, j] * sB[j, ty]
        cuda.syncthreads()
    C[x, y] = tmp


@cuda.jit
def matmul_by_rows(A, B, C):
    """One thread an element; x is the row."""
    row, column = cuda.grid(2)
    if row < C.shape[0] and column < C.shape[1]:
        total = float32(0)
        for k in range(A.shape[1]):
            total += A[row, k] * B[k, column]
        C[row, column] = total


@cuda.jit
def matmul_by_columns(A, B, C):
    """One thread an element; x is the column."""
    column, row = cuda.grid(2)
    if row < C.shape[0] and column < C.shape[1]:
        total = float32(0)
        for k in range(A.shape[1]):
            total += A[row, k] * B[k, column]
        C[row, column] = total


def product(kernel: Callable) -> Callable[[int], Launch]:
    """The product of two square matrices of a side that 16 divides."""

    def launch(n: int) -> Launch:
        return Launch(kernel, (n // TILE, n // TILE), (TILE, TILE), [numbers(n, n), numbers(n, n, seed=1), nans(n, n)])

    return launch


# transposition


@cuda.jit
def transpose(x, y):
    """By a tile in shared memory with a padded row (NVIDIA, "An efficient matrix transpose in CUDA C/C++")."""
    tile = cuda.shared.array((TILE, PADDED), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE + ty, cuda.blockIdx.x * TILE + tx
    if row < x.shape[0] and column < x.shape[1]:
        tile[ty, tx] = x[row, column]
    cuda.syncthreads()
    row, column = cuda.blockIdx.x * TILE + ty, cuda.blockIdx.y * TILE + tx
    if row < y.shape[0] and column < y.shape[1]:
        y[row, column] = tile[tx, ty]


@fast
def transpose_loops(x, y):
    """In tiles, which stay in the cache."""
    for block in prange(blocks_of(y.shape[0])):
        for start in range(0, y.shape[1], TILE):
            for i in range(block * TILE, min((block + 1) * TILE, y.shape[0])):
                for j in range(start, min(start + TILE, y.shape[1])):
                    y[i, j] = x[j, i]


@njit(cache=True)
def blocks_of(n):
    """How many tiles cover n."""
    return (n + TILE - 1) // TILE


def transposition(n: int) -> Launch:
    """Of a square matrix."""
    return Launch(transpose, (blocks(n, TILE),) * 2, (TILE, TILE), [numbers(n, n), nans(n, n)])


# sums


@cuda.jit
def sum_by_tree(x, y):
    """A block adds up 256 numbers in a tree (Harris, "Optimizing parallel reduction in CUDA", kernel 3)."""
    shared = cuda.shared.array(BLOCK, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    shared[thread] = x[i] if i < x.size else 0
    cuda.syncthreads()
    s = cuda.blockDim.x // 2
    while s > 0:
        if thread < s:
            shared[thread] += shared[thread + s]
        cuda.syncthreads()
        s //= 2
    if thread == 0:
        y[cuda.blockIdx.x] = shared[0]


@cuda.jit
def sum_by_shuffles(x, y):
    """A warp adds up 32 numbers, the first warp the sums of the others (Luitjens, "Faster parallel reductions")."""
    sums = cuda.shared.array(WARP, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    lane, warp = thread % 32, thread // 32
    value = x[i] if i < x.size else float32(0)
    offset = 16
    while offset > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
        offset //= 2
    if lane == 0:
        sums[warp] = value
    cuda.syncthreads()
    if warp == 0:
        value = sums[lane] if lane < cuda.blockDim.x // 32 else float32(0)
        offset = 16
        while offset > 0:
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
            offset //= 2
        if lane == 0:
            y[cuda.blockIdx.x] = value


@fast
def sum_loops(x, y):
    """The sum of every 256 numbers."""
    for block in prange(y.size):
        total = float32(0)
        for i in range(block * BLOCK, min((block + 1) * BLOCK, x.size)):
            total += x[i]
        y[block] = total


def sums(kernel: Callable) -> Callable[[int], Launch]:
    """The sum of every 256 of n numbers."""
    return lambda n: Launch(kernel, blocks(n, BLOCK), BLOCK, [numbers(n), nans(blocks(n, BLOCK))])


# histogram


@cuda.jit
def histogram(values, counts):
    """Each block counts in shared memory, and adds its counts to those of the others."""
    own = cuda.shared.array(BINS, int32)
    thread = cuda.threadIdx.x
    own[thread] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    while i < values.size:
        cuda.atomic.add(own, values[i], 1)
        i += cuda.gridsize(1)
    cuda.syncthreads()
    cuda.atomic.add(counts, thread, own[thread])


def counting(n: int) -> Launch:
    """How often each of 256 values occurs."""
    values = np.random.default_rng(0).integers(0, BINS, n)
    return Launch(histogram, min(64, blocks(n, BINS)), BINS, [values, np.zeros(BINS, np.int32)])


# prefix sums


@cuda.jit
def scan_hillis_steele(x, y):
    """The prefix sums of every 256 numbers, in log2(256) steps of all threads (Hillis and Steele 1986)."""
    shared = cuda.shared.array(BLOCK, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    shared[thread] = x[i] if i < x.size else 0
    cuda.syncthreads()
    offset = 1
    while offset < BLOCK:
        value = float32(0)
        if thread >= offset:
            value = shared[thread - offset]
        cuda.syncthreads()
        shared[thread] += value
        cuda.syncthreads()
        offset *= 2
    if i < y.size:
        y[i] = shared[thread]


@cuda.jit
def scan_blelloch(x, y):
    """The same in two sweeps over a tree (Blelloch 1990; Harris et al., GPU Gems 3, chapter 39)."""
    shared = cuda.shared.array(BLOCK, float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    shared[thread] = x[i] if i < x.size else 0
    d = 1
    while d < BLOCK:
        cuda.syncthreads()
        k = (thread + 1) * 2 * d - 1
        if k < BLOCK:
            shared[k] += shared[k - d]
        d *= 2
    d = BLOCK // 4
    while d > 0:
        cuda.syncthreads()
        k = (thread + 1) * 2 * d - 1
        if k + d < BLOCK:
            shared[k + d] += shared[k]
        d //= 2
    cuda.syncthreads()
    if i < y.size:
        y[i] = shared[thread]


@fast
def scan_loops(x, y):
    """The prefix sums of every 256 numbers."""
    for block in prange((x.size + BLOCK - 1) // BLOCK):
        total = float32(0)
        for i in range(block * BLOCK, min((block + 1) * BLOCK, x.size)):
            total += x[i]
            y[i] = total


def scan(kernel: Callable) -> Callable[[int], Launch]:
    """The prefix sums of every 256 of n numbers."""
    return lambda n: Launch(kernel, blocks(n, BLOCK), BLOCK, [numbers(n), nans(n)])


# rows


@cuda.jit
def softmax(x, y):
    """A warp a row, four rows a block of (32, 4) threads."""
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    lane = cuda.threadIdx.x
    if row >= x.shape[0]:
        return
    largest = float32(-math.inf)
    for j in range(lane, x.shape[1], 32):
        largest = max(largest, x[row, j])
    offset = 16
    while offset > 0:
        largest = max(largest, cuda.shfl_xor_sync(0xFFFFFFFF, largest, offset))
        offset //= 2
    total = float32(0)
    for j in range(lane, x.shape[1], 32):
        y[row, j] = math.exp(x[row, j] - largest)
        total += y[row, j]
    offset = 16
    while offset > 0:
        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, offset)
        offset //= 2
    for j in range(lane, x.shape[1], 32):
        y[row, j] /= total


@fast
def softmax_loops(x, y):
    """Three passes over the row."""
    for row in prange(x.shape[0]):
        largest = x[row, 0]
        for j in range(x.shape[1]):
            largest = max(largest, x[row, j])
        total = float32(0)
        for j in range(x.shape[1]):
            y[row, j] = math.exp(x[row, j] - largest)
            total += y[row, j]
        scale = float32(1) / total
        for j in range(x.shape[1]):
            y[row, j] *= scale


def softmax_of_rows(rows: int, width: int) -> Launch:
    """Softmax of rows."""
    return Launch(softmax, blocks(rows, 4), (WARP, 4), [numbers(rows, width), nans(rows, width)])


@cuda.jit
def layer_norm(x, weight, bias, y):
    """A block of 128 threads a row, a tree for the mean and a tree for the variance."""
    shared = cuda.shared.array(128, float32)
    row, thread, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    total = float32(0)
    for j in range(thread, width, cuda.blockDim.x):
        total += x[row, j]
    shared[thread] = total
    cuda.syncthreads()
    s = cuda.blockDim.x // 2
    while s > 0:
        if thread < s:
            shared[thread] += shared[thread + s]
        cuda.syncthreads()
        s //= 2
    mean = shared[0] / width
    cuda.syncthreads()
    total = float32(0)
    for j in range(thread, width, cuda.blockDim.x):
        total += (x[row, j] - mean) ** 2
    shared[thread] = total
    cuda.syncthreads()
    s = cuda.blockDim.x // 2
    while s > 0:
        if thread < s:
            shared[thread] += shared[thread + s]
        cuda.syncthreads()
        s //= 2
    rstd = 1 / math.sqrt(shared[0] / width + 1e-5)
    for j in range(thread, width, cuda.blockDim.x):
        y[row, j] = (x[row, j] - mean) * rstd * weight[j] + bias[j]


@fast
def layer_norm_loops(x, weight, bias, y):
    """Two passes for mean and variance, a third for the result; as in the kernel the mean is a float64."""
    for row in prange(x.shape[0]):
        total = float32(0)
        for j in range(x.shape[1]):
            total += x[row, j]
        mean = total / x.shape[1]
        squares = 0.0
        for j in range(x.shape[1]):
            squares += (x[row, j] - mean) * (x[row, j] - mean)
        rstd = 1 / math.sqrt(squares / x.shape[1] + 1e-5)
        for j in range(x.shape[1]):
            y[row, j] = (x[row, j] - mean) * rstd * weight[j] + bias[j]


def layer_norm_of_rows(rows: int, width: int) -> Launch:
    """LayerNorm of rows."""
    given = [numbers(rows, width), numbers(width, seed=1), numbers(width, seed=2)]
    return Launch(layer_norm, rows, 128, [*given, nans(rows, width)])


# neighbours


@cuda.jit
def convolve(x, mask, y):
    """A convolution with a small odd mask and zeros around, one thread an element (PMPP, chapter 7)."""
    column, row = cuda.grid(2)
    if row < y.shape[0] and column < y.shape[1]:
        radius = mask.shape[0] // 2
        total = float32(0)
        for a in range(mask.shape[0]):
            for b in range(mask.shape[1]):
                i, j = row + a - radius, column + b - radius
                if 0 <= i < x.shape[0] and 0 <= j < x.shape[1]:
                    total += mask[a, b] * x[i, j]
        y[row, column] = total


@cuda.jit
def convolve_tiled(x, mask, y):
    """The same from a tile with its halo in shared memory; the mask is 5 x 5 (PMPP, chapter 7)."""
    tile = cuda.shared.array((WITH_HALO_OF_2, WITH_HALO_OF_2), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    for a in range(ty, TILE + 4, TILE):
        for b in range(tx, TILE + 4, TILE):
            i, j = top + a - 2, left + b - 2
            if i >= 0 and i < x.shape[0] and j >= 0 and j < x.shape[1]:
                tile[a, b] = x[i, j]
            else:
                tile[a, b] = 0
    cuda.syncthreads()
    if top + ty < y.shape[0] and left + tx < y.shape[1]:
        total = float32(0)
        for a in range(5):
            for b in range(5):
                total += mask[a, b] * tile[ty + a, tx + b]
        y[top + ty, left + tx] = total


@fast
def convolve_loops(x, mask, y):
    """A row of results at a time, for each element of the mask the range of columns that it reaches."""
    radius = mask.shape[0] // 2
    for i in prange(y.shape[0]):
        y[i] = 0
        for a in range(mask.shape[0]):
            row = i + a - radius
            if row >= 0 and row < x.shape[0]:
                for b in range(mask.shape[1]):
                    first, factor = b - radius, mask[a, b]
                    for j in range(max(0, -first), min(y.shape[1], y.shape[1] - first)):
                        y[i, j] += factor * x[row, j + first]


def convolution(kernel: Callable) -> Callable[[int], Launch]:
    """A 5 x 5 convolution of a square image."""

    def launch(n: int) -> Launch:
        return Launch(kernel, (blocks(n, TILE),) * 2, (TILE, TILE), [numbers(n, n), numbers(5, 5, seed=1), nans(n, n)])

    return launch


@cuda.jit
def stencil(x, y):
    """A step of the heat equation (5 points); the border stays."""
    column, row = cuda.grid(2)
    if 0 < row < x.shape[0] - 1 and 0 < column < x.shape[1] - 1:
        around = x[row - 1, column] + x[row + 1, column] + x[row, column - 1] + x[row, column + 1]
        y[row, column] = x[row, column] + float32(0.1) * (around - float32(4) * x[row, column])


@cuda.jit
def stencil_tiled(x, y):
    """The same from a tile with its halo in shared memory."""
    tile = cuda.shared.array((WITH_HALO, WITH_HALO), float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x + 1, cuda.threadIdx.y + 1
    if row < x.shape[0] and column < x.shape[1]:
        tile[ty, tx] = x[row, column]
        if ty == 1 and row > 0:
            tile[0, tx] = x[row - 1, column]
        if ty == TILE and row + 1 < x.shape[0]:
            tile[TILE + 1, tx] = x[row + 1, column]
        if tx == 1 and column > 0:
            tile[ty, 0] = x[row, column - 1]
        if tx == TILE and column + 1 < x.shape[1]:
            tile[ty, TILE + 1] = x[row, column + 1]
    cuda.syncthreads()
    if 0 < row < x.shape[0] - 1 and 0 < column < x.shape[1] - 1:
        around = tile[ty - 1, tx] + tile[ty + 1, tx] + tile[ty, tx - 1] + tile[ty, tx + 1]
        y[row, column] = tile[ty, tx] + float32(0.1) * (around - float32(4) * tile[ty, tx])


@fast
def stencil_loops(x, y):
    """Row by row."""
    for i in prange(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
            y[i, j] = x[i, j] + float32(0.1) * (around - float32(4) * x[i, j])


def heat(kernel: Callable) -> Callable[[int], Launch]:
    """A step on a square."""
    return lambda n: Launch(kernel, (blocks(n, TILE),) * 2, (TILE, TILE), [numbers(n, n), np.zeros((n, n), np.float32)])


# much arithmetic


@cuda.jit(device=True)
def escape_time(re, im, most):
    """After how many steps a point leaves the circle of radius 2."""
    x, y = float32(0), float32(0)
    for i in range(most):
        x, y = x * x - y * y + re, float32(2) * x * y + im
        if x * x + y * y > float32(4):
            return i
    return most


@cuda.jit
def mandelbrot(counts, most):
    """One thread a pixel."""
    column, row = cuda.grid(2)
    if row < counts.shape[0] and column < counts.shape[1]:
        re = float32(-2) + float32(3) * column / counts.shape[1]
        im = float32(-1) + float32(2) * row / counts.shape[0]
        counts[row, column] = escape_time(float32(re), float32(im), most)


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def escape_time_loop(re, im, most):
    """The same function for a CPU."""
    x, y = float32(0), float32(0)
    for i in range(most):
        x, y = x * x - y * y + re, float32(2) * x * y + im
        if x * x + y * y > float32(4):
            return i
    return most


@njit(parallel=True, cache=True, error_model="numpy", fastmath={"contract"})
def mandelbrot_loops(counts, most):
    """Row by row."""
    for row in prange(counts.shape[0]):
        for column in range(counts.shape[1]):
            re = float32(-2) + float32(3) * column / counts.shape[1]
            im = float32(-1) + float32(2) * row / counts.shape[0]
            counts[row, column] = escape_time_loop(float32(re), float32(im), most)


def fractal(n: int) -> Launch:
    """The Mandelbrot set on n x n pixels, at most 50 steps."""
    return Launch(mandelbrot, (blocks(n, TILE),) * 2, (TILE, TILE), [np.zeros((n, n), np.int32), 50])


@cuda.jit
def bodies(position, force):
    """Forces between bodies, in tiles of 256 (Nyland, Harris and Prins, GPU Gems 3, chapter 31)."""
    shared = cuda.shared.array((BLOCK, 4), float32)
    i, thread = cuda.grid(1), cuda.threadIdx.x
    x, y, z = position[i, 0], position[i, 1], position[i, 2]
    fx, fy, fz = float32(0), float32(0), float32(0)
    for tile in range(cuda.gridDim.x):
        for c in range(4):
            shared[thread, c] = position[tile * BLOCK + thread, c]
        cuda.syncthreads()
        for j in range(BLOCK):
            dx, dy, dz = shared[j, 0] - x, shared[j, 1] - y, shared[j, 2] - z
            square = dx * dx + dy * dy + dz * dz + SOFTENING
            pull = shared[j, 3] / (square * math.sqrt(square))
            fx += dx * pull
            fy += dy * pull
            fz += dz * pull
        cuda.syncthreads()
    force[i, 0], force[i, 1], force[i, 2] = fx, fy, fz


@fast
def body_loops(position, force):
    """For each body a loop over all others, in vectors."""
    xs, ys, zs, mass = position[:, 0].copy(), position[:, 1].copy(), position[:, 2].copy(), position[:, 3].copy()
    for i in prange(position.shape[0]):
        fx, fy, fz = float32(0), float32(0), float32(0)
        for j in range(position.shape[0]):
            dx, dy, dz = xs[j] - xs[i], ys[j] - ys[i], zs[j] - zs[i]
            square = dx * dx + dy * dy + dz * dz + SOFTENING
            pull = mass[j] / (square * math.sqrt(square))
            fx += dx * pull
            fy += dy * pull
            fz += dz * pull
        force[i, 0], force[i, 1], force[i, 2] = fx, fy, fz


def gravitation(n: int) -> Launch:
    """The forces between n bodies; 256 divides n."""
    return Launch(bodies, n // BLOCK, BLOCK, [np.abs(numbers(n, 4)), nans(n, 3)])


LAUNCHES: dict[str, Callable[..., Launch]] = {
    "fast_matmul of numba's documentation": product(fast_matmul),
    "fast_matmul, x the row": product(older_fast_matmul),
    "naive matmul, x the row": product(matmul_by_rows),
    "naive matmul, x the column": product(matmul_by_columns),
    "transpose": transposition,
    "sums by trees": sums(sum_by_tree),
    "sums by shuffles": sums(sum_by_shuffles),
    "shared histogram": counting,
    "scan, Hillis and Steele": scan(scan_hillis_steele),
    "scan, Blelloch": scan(scan_blelloch),
    "softmax, blocks of (32, 4)": softmax_of_rows,
    "LayerNorm, two trees": layer_norm_of_rows,
    "5x5 convolution": convolution(convolve),
    "5x5 convolution, tiled": convolution(convolve_tiled),
    "stencil": heat(stencil),
    "stencil, tiled": heat(stencil_tiled),
    "Mandelbrot": fractal,
    "N-body": gravitation,
}
LOOPS: dict[str, Callable] = {
    "fast_matmul of numba's documentation": handwritten.naive_matmul,
    "fast_matmul, x the row": handwritten.naive_matmul,
    "naive matmul, x the row": handwritten.naive_matmul,
    "naive matmul, x the column": handwritten.naive_matmul,
    "transpose": transpose_loops,
    "sums by trees": sum_loops,
    "sums by shuffles": sum_loops,
    "shared histogram": handwritten.histogram,
    "scan, Hillis and Steele": scan_loops,
    "scan, Blelloch": scan_loops,
    "softmax, blocks of (32, 4)": softmax_loops,
    "LayerNorm, two trees": layer_norm_loops,
    "5x5 convolution": convolve_loops,
    "5x5 convolution, tiled": convolve_loops,
    "stencil": stencil_loops,
    "stencil, tiled": stencil_loops,
    "Mandelbrot": mandelbrot_loops,
    "N-body": body_loops,
}
CASES = [
    ("fast_matmul of numba's documentation", 512),
    ("fast_matmul, x the row", 512),
    ("naive matmul, x the row", 512),
    ("naive matmul, x the column", 512),
    ("transpose", 2048),
    ("sums by trees", 1 << 20),
    ("sums by shuffles", 1 << 20),
    ("shared histogram", 1 << 20),
    ("scan, Hillis and Steele", 1 << 20),
    ("scan, Blelloch", 1 << 20),
    ("softmax, blocks of (32, 4)", 4096, 256),
    ("LayerNorm, two trees", 4096, 256),
    ("5x5 convolution", 1024),
    ("5x5 convolution, tiled", 1024),
    ("stencil", 2048),
    ("stencil, tiled", 2048),
    ("Mandelbrot", 512),
    ("N-body", 2048),
]
