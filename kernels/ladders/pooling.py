"""Max pooling of planes (P, H, W) over windows of size x size, a ladder of three.

    y[p, i, j] = max over a, b of x[p, i step + a, j step + b]

                 reads of an output                      of shared memory     writes
    max_pool     size^2                                  0                    1, and 1 for the index
    tiled        ((15 step + size) / 16)^2               size^2               1
    separable    ((15 step + size) / 16)^2               size (1 + R)         1

Windows that overlap see the same pixels. A block of 16 x 16 outputs sees a square of 15 step + size rows and columns,
R = (15 step + size) / 16 times as long as the block. From the second rung on it is read once, into shared memory. And a
maximum over a window is the maximum over its rows of the maxima along them: 2 size steps instead of size^2.

The library stays on the first rung, kernels/pool.py: windows in use are 2 x 2 or 3 x 3, caches serve what they share,
and no size is too large. Podlozhnyuk 2007, "Image Convolution with CUDA", has tiles with a border and separable passes.
"""

import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.ladders import Rung, blocks
from miniflow.kernels.pool import max_pool

TILE = 16  # rows and columns of a block of outputs
LARGEST = 48  # side of the square that a block sees, at most


@cuda.jit(device=True)
def load(square, x, side, step):
    """square[a, b] = x[plane, top + a, left + b], -inf beyond the border; a barrier at the end."""
    plane, top, left = cuda.blockIdx.z, cuda.blockIdx.y * TILE * step, cuda.blockIdx.x * TILE * step
    for a in range(cuda.threadIdx.y, side, TILE):
        for b in range(cuda.threadIdx.x, side, TILE):
            inside = top + a < x.shape[1] and left + b < x.shape[2]
            square[a, b] = x[plane, top + a, left + b] if inside else x.dtype.type(-math.inf)
    cuda.syncthreads()


@cuda.jit
def tiled(x, y, size, step):
    """Thread (tx, ty) of block (bx, by, plane) owns y[plane, 16 by + ty, 16 bx + tx]; its window lies in `square`.

    ((15 step + size) / 16)^2 reads of an output and a write, and size^2 reads of shared memory.

    Args:
        x: (P, H, W).
        y: (P, OH, OW), with OH = (H - size) // step + 1 and OW alike.
        size, step: of the windows, with 15 step + size <= 48.
    """
    square = cuda.shared.array((LARGEST, LARGEST), x.dtype)
    j, i = cuda.grid(2)
    load(square, x, (TILE - 1) * step + size, step)
    top, left = cuda.threadIdx.y * step, cuda.threadIdx.x * step
    largest = x.dtype.type(-math.inf)
    for a in range(size):
        for b in range(size):
            largest = max(largest, square[top + a, left + b])
    if i < y.shape[1] and j < y.shape[2]:
        y[cuda.blockIdx.z, i, j] = largest


@cuda.jit
def separable(x, y, size, step):
    """As `tiled`, with a pass along the rows of the square before the one along its columns.

    In the first, thread (tx, ty) makes row_max[a, tx] for the rows a = ty, ty + 16, ... of the square. As many reads
    and writes as `tiled`; of shared memory size (15 step + size) / 16 reads in the first pass and size in the second.
    """
    square = cuda.shared.array((LARGEST, LARGEST), x.dtype)
    row_max = cuda.shared.array((LARGEST, TILE), x.dtype)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    j, i = cuda.grid(2)
    side = (TILE - 1) * step + size
    load(square, x, side, step)
    for a in range(ty, side, TILE):
        largest = x.dtype.type(-math.inf)
        for b in range(size):
            largest = max(largest, square[a, tx * step + b])
        row_max[a, tx] = largest
    cuda.syncthreads()
    largest = x.dtype.type(-math.inf)
    for a in range(size):
        largest = max(largest, row_max[ty * step + a, tx])
    if i < y.shape[1] and j < y.shape[2]:
        y[cuda.blockIdx.z, i, j] = largest


def rungs(x: np.ndarray, size: int = 3, step: int = 1) -> dict[str, Rung]:
    """The launches for x (P, H, W) without NaN, with H and W of at least `size`, and 15 step + size <= 48."""
    planes, *counts = x.shape[0], *[(n - size) // step + 1 for n in x.shape[1:]]
    y = [np.full((planes, *counts), np.nan, x.dtype) for _ in range(3)]
    grid = blocks(counts[1], TILE), blocks(counts[0], TILE), planes
    index = np.zeros(y[0].shape, np.int32)
    direct = [x, y[0], index, (size, size), (step, step), (0, 0), (1, 1), -math.inf]
    return {
        "max_pool": Rung(max_pool, grid, (TILE, TILE, 1), direct, y[0]),
        "tiled": Rung(tiled, grid, (TILE, TILE), [x, y[1], size, step], y[1]),
        "separable": Rung(separable, grid, (TILE, TILE), [x, y[2], size, step], y[2]),
    }
