"""Sorting by a bitonic network (Batcher, "Sorting Networks and Their Applications", 1968).

What is sorted is not x (rows, width) itself but `positions` (rows, n) in it, n being the power of two that the width is
filled up to: positions from the width on stand behind all others. Equal elements are in the order of their positions,
so that no two compare as equal, and the result is that of a stable sort. NaN is larger than all numbers.

The network merges sorted runs of 1, 2, 4 ... n/2 into runs twice as long. Runs alternate between ascending and
descending, as two neighbours form a bitonic sequence. A merge into runs of `size` compares, and exchanges, elements
that are size/2 apart, then size/4 ... 1:

    bitonic_tile   a block owns a tile of up to 512 positions and holds them in shared memory: all merges within it,
                   or the steps of a larger merge that stay within it. Each position is read and written once.
    bitonic_step   one step of a larger merge. Thread p owns one pair.

Each comparison reads two elements of x, from the cache. A row of n takes log2(n / 512)^2 / 2 steps of their own.
"""

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import THREADS

TILE = 2 * THREADS


@cuda.jit(device=True)
def precedes(x, row, i, j, descending):
    """Whether position i is to stand before position j."""
    width = x.shape[1]
    if i >= width or j >= width:
        return i < j
    a, b = x[row, i], x[row, j]
    if a == b or (a != a and b != b):
        return i < j
    return (a > b or a != a) == descending


@cuda.jit(device=True)
def first_of_pair(p, stride):
    """The pairs of a step: p counts those places whose partner stands `stride` behind."""
    return 2 * p - p % stride


@cuda.jit
def bitonic_tile(x, descending, start, tile, positions):
    """`bitonic_tile[rows * n // tile, tile // 2]`: merges into runs of start, 2 start ... `tile`.

    Args:
        start: 2 to sort the tiles; beyond `tile`, the size of the one merge whose last steps are done.
        tile: a power of two from 2 to 512.
    """
    own = cuda.shared.array(TILE, positions.dtype)
    t, tiles = cuda.threadIdx.x, positions.shape[1] // tile
    row, offset = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles * tile
    own[t], own[t + tile // 2] = positions[row, offset + t], positions[row, offset + t + tile // 2]
    cuda.syncthreads()
    size = start
    while size <= max(tile, start):
        stride = min(size, tile) // 2
        while stride > 0:
            a = first_of_pair(t, stride)
            i, j = own[a], own[a + stride]
            upwards = (offset + a) // size % 2 == 0
            if precedes(x, row, j, i, descending) == upwards:
                own[a], own[a + stride] = j, i
            cuda.syncthreads()
            stride //= 2
        size *= 2
    positions[row, offset + t], positions[row, offset + t + tile // 2] = own[t], own[t + tile // 2]


@cuda.jit
def bitonic_step(x, descending, size, stride, positions):
    """One step of the merge into runs of `size`, over pairs `stride` apart; thread p owns a pair of all rows' pairs."""
    p = cuda.grid(1)
    pairs = positions.shape[1] // 2
    if p < positions.shape[0] * pairs:
        row, a = p // pairs, first_of_pair(p % pairs, stride)
        i, j = positions[row, a], positions[row, a + stride]
        if precedes(x, row, j, i, descending) == (a // size % 2 == 0):
            positions[row, a], positions[row, a + stride] = j, i
