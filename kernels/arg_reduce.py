"""Where the largest or the smallest element stands; the first of equal ones, and NaN wins.

x is (rows, width), or (outer, reduced, inner) with the reduced dim in the middle. Threads hand each other positions
only: whoever receives one reads the element there again, from the cache.

    warp_rows   short rows. Each of a block's eight warps owns a row: its lanes take every 32nd element, five shuffles
                find the best of the lanes.
    block_rows  long rows, cut into parts of `chunk` elements: a block owns one part and finds its best element by a
                tree of positions in shared memory. The best of the parts is found by `warp_rows`.
    columns     inner > 1. Thread i of a block owns one column, and walks down it: a warp reads neighbours.

Every element of x is read once and, in the combining steps, a few per row again.
"""

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import FULL, THREADS, WARP, WARPS


class ArgReduction:
    """The kernels for one order of elements.

    Args:
        beats: beats(a, b) says whether a stands before b among numbers that are not NaN.
    """

    def __init__(self, beats):
        wins = make_wins(beats)
        self.warp_rows, self.block_rows = make_warp_rows(wins), make_block_rows(wins)
        self.columns = make_columns(wins)


def make_wins(beats):
    @cuda.jit(device=True)
    def wins(a, i, b, j):
        """Whether a, at position i, is to be chosen rather than b at position j."""
        if a != a:  # NaN
            return b == b or i < j
        return beats(a, b) or (a == b and i < j)

    return wins


def make_warp_rows(wins):
    """`warp_rows[(rows + 7) // 8, 256](x, values, indices)`; values and indices are (rows,)."""

    @cuda.jit
    def warp_rows(x, values, indices):
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        row = cuda.blockIdx.x * WARPS + warp
        source = min(row, x.shape[0] - 1)  # so that all lanes of all warps have elements to compare
        at = 0
        best = x[source, 0]
        for j in range(lane, x.shape[1], WARP):
            if wins(x[source, j], j, best, at):
                best, at = x[source, j], j
        for k in range(5):
            other = cuda.shfl_xor_sync(FULL, at, 16 >> k)
            if wins(x[source, other], other, x[source, at], at):
                at = other
        if lane == 0 and row < x.shape[0]:
            values[row], indices[row] = x[row, at], at

    return warp_rows


def make_block_rows(wins):
    """`block_rows[rows * parts, THREADS](x, chunk, values, indices)`; values and indices are (rows, parts)."""

    @cuda.jit
    def block_rows(x, chunk, values, indices):
        positions = cuda.shared.array(THREADS, indices.dtype)
        thread = cuda.threadIdx.x
        row, part = cuda.blockIdx.x // indices.shape[1], cuda.blockIdx.x % indices.shape[1]
        start = part * chunk
        stop = min(start + chunk, x.shape[1])
        at = start
        best = x[row, start]
        for j in range(start + thread, stop, THREADS):
            if wins(x[row, j], j, best, at):
                best, at = x[row, j], j
        positions[thread] = at
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if thread < half:
                i, j = positions[thread], positions[thread + half]
                if wins(x[row, j], j, x[row, i], i):
                    positions[thread] = j
            cuda.syncthreads()
            half //= 2
        if thread == 0:
            values[row, part], indices[row, part] = x[row, positions[0]], positions[0]

    return block_rows


def make_columns(wins):
    """`columns[outer * tiles, THREADS](x, values, indices)`; x (outer, reduced, inner), the results (outer, inner),
    tiles = ceil(inner / THREADS)."""

    @cuda.jit
    def columns(x, values, indices):
        tiles = max((x.shape[2] + cuda.blockDim.x - 1) // cuda.blockDim.x, 1)
        outer, tile = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles
        i = tile * cuda.blockDim.x + cuda.threadIdx.x
        if i < x.shape[2]:
            best = x[outer, 0, i]
            at = 0
            for r in range(1, x.shape[1]):
                if wins(x[outer, r, i], r, best, at):
                    best, at = x[outer, r, i], r
            values[outer, i], indices[outer, i] = best, at

    return columns


@cuda.jit(device=True)
def is_larger(a, b):
    return a > b


@cuda.jit(device=True)
def is_smaller(a, b):
    return a < b


ARGMAX = ArgReduction(is_larger)
ARGMIN = ArgReduction(is_smaller)
