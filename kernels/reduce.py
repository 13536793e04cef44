"""Reductions over any dims: sums, products, extrema, any and all, each from a term and a way to combine two results.

The dims are brought to x (outer, reduced, inner) first; y has one element for each (outer, inner).

    warp_rows   inner = 1, short rows. Each of a block's eight warps owns a row: its lanes take every 32nd element,
                then five shuffles combine the lanes. No shared memory.
    block_rows  inner = 1, long rows, cut into parts of `chunk` elements. A block owns one part: its threads take every
                256th element, then a tree in shared memory combines them: 256 values, 128, 64 ... 1.
    columns     inner > 1. Thread i of a block walks down column i of one part of reduced: a warp reads neighbours.
    narrow_columns   inner < 32, too few for a warp. In a block of (X, Y) threads, thread (i, r) takes every Y-th row of
                column i; a tree over r in shared memory combines them.

Every element of x is read once, every part written once. Where there are several parts, y is (outer, parts, inner) and
a second launch reduces it: no atomics, and the same result every time. Parts are short enough that a thread adds few
terms one after the other, so rounding errors in the array's own dtype stay small.
"""

import math

from miniflow.hostcuda import cuda

WARP = 32
FULL = 0xFFFFFFFF  # the mask of all lanes of a warp
THREADS = 256  # in a block; a power of two
WARPS = THREADS // WARP


def make_butterfly(combine):
    """across_warp(value) combines the values of the lanes of a warp, in every lane: lane i's with lane i^16's, what
    results with lane i^8's ..."""

    @cuda.jit(device=True)
    def across_warp(value):
        for k in range(5):
            value = combine(value, cuda.shfl_xor_sync(FULL, value, 16 >> k))
        return value

    return across_warp


def make_tree(combine):
    """tree(values, cell, left) combines a block's values in shared memory, of which each thread owns one cell: the two
    halves, then two quarters ... until the first `left` are the results. Both numbers are powers of two."""

    @cuda.jit(device=True)
    def tree(values, cell, left):
        cuda.syncthreads()
        half = values.size // 2
        while half >= left:
            if cell < half:
                values[cell] = combine(values[cell], values[cell + half])
            cuda.syncthreads()
            half //= 2

    return tree


class Reduction:
    """The kernels of one reduction.

    Args:
        term: term(value, shift, at) is what an element contributes to the result y[at]; the array `shift` belongs to
            the results, and only some terms read it.
        combine: combine(a, b) of two results: associative and commutative.
        finish: the reduction that combines the results of parts, whose terms are the partial results themselves.
    """

    def __init__(self, term, combine, finish=None):
        self.warp_rows = make_warp_rows(term, combine, make_butterfly(combine))
        self.tree = make_tree(combine)
        self.block_rows = make_block_rows(term, combine, self.tree)
        self.columns = make_columns(term, combine)
        self.narrow_columns = make_narrow_columns(term, combine, self.tree)
        self.finish = finish or self


def make_warp_rows(term, combine, across_warp):
    """`warp_rows[(rows + WARPS - 1) // WARPS, THREADS](x, shift, identity, y)`, x (rows, width), y (rows,)."""

    @cuda.jit
    def warp_rows(x, shift, identity, y):
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        row = cuda.blockIdx.x * WARPS + warp
        result = identity
        if row < x.shape[0]:
            for j in range(lane, x.shape[1], WARP):
                result = combine(result, term(x[row, j], shift, row))
        result = across_warp(result)
        if lane == 0 and row < x.shape[0]:
            y[row] = result

    return warp_rows


def make_block_rows(term, combine, tree):
    """`block_rows[rows * parts, THREADS](x, shift, identity, chunk, y)`, x (rows, width), y (rows, parts)."""

    @cuda.jit
    def block_rows(x, shift, identity, chunk, y):
        results = cuda.shared.array(THREADS, y.dtype)
        thread = cuda.threadIdx.x
        row, part = cuda.blockIdx.x // y.shape[1], cuda.blockIdx.x % y.shape[1]
        start = part * chunk
        stop = min(start + chunk, x.shape[1])
        result = identity
        for j in range(start + thread, stop, THREADS):
            result = combine(result, term(x[row, j], shift, row))
        results[thread] = result
        tree(results, thread, 1)
        if thread == 0:
            y[row, part] = results[0]

    return block_rows


def make_columns(term, combine):
    """`columns[outer * parts * tiles, threads](x, shift, identity, chunk, y)`; x (outer, reduced, inner),
    y (outer, parts, inner), tiles = ceil(inner / threads)."""

    @cuda.jit
    def columns(x, shift, identity, chunk, y):
        tiles = max((x.shape[2] + cuda.blockDim.x - 1) // cuda.blockDim.x, 1)
        group, tile = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles
        outer, part = group // y.shape[1], group % y.shape[1]
        i = tile * cuda.blockDim.x + cuda.threadIdx.x
        stop = min((part + 1) * chunk, x.shape[1])
        if i < x.shape[2]:
            at = outer * x.shape[2] + i
            result = identity
            for r in range(part * chunk, stop):
                result = combine(result, term(x[outer, r, i], shift, at))
            y[outer, part, i] = result

    return columns


def make_narrow_columns(term, combine, tree):
    """`narrow_columns[outer * parts, (X, Y)](x, shift, identity, chunk, y)`; x (outer, reduced, inner),
    y (outer, parts, inner), inner <= X, X * Y = THREADS."""

    @cuda.jit
    def narrow_columns(x, shift, identity, chunk, y):
        results = cuda.shared.array(THREADS, y.dtype)
        i, down = cuda.threadIdx.x, cuda.threadIdx.y
        outer, part = cuda.blockIdx.x // y.shape[1], cuda.blockIdx.x % y.shape[1]
        stop = min((part + 1) * chunk, x.shape[1])
        result = identity
        if i < x.shape[2]:
            at = outer * x.shape[2] + i
            for r in range(part * chunk + down, stop, cuda.blockDim.y):
                result = combine(result, term(x[outer, r, i], shift, at))
        cell = down * cuda.blockDim.x + i
        results[cell] = result
        tree(results, cell, cuda.blockDim.x)
        if down == 0 and i < x.shape[2]:
            y[outer, part, i] = results[cell]

    return narrow_columns


# terms


@cuda.jit(device=True)
def element(value, shift, at):
    return value


@cuda.jit(device=True)
def truth(value, shift, at):
    return 1 if value != 0 else 0


@cuda.jit(device=True)
def square(value, shift, at):
    return value * value


@cuda.jit(device=True)
def square_deviation(value, shift, at):
    return (value - shift[at]) * (value - shift[at])


@cuda.jit(device=True)
def exponential(value, shift, at):
    return math.exp(value - shift[at])


@cuda.jit(device=True)
def absolute_power(value, shift, at):
    return abs(value) ** shift[0]


# combinations


@cuda.jit(device=True)
def add(a, b):
    return a + b


@cuda.jit(device=True)
def multiply(a, b):
    return a * b


@cuda.jit(device=True)
def larger_number(a, b):
    """NaNs may get lost."""
    return max(a, b)


@cuda.jit(device=True)
def larger(a, b):
    """NaN wins: it is the only value that is not equal to itself."""
    return a if a > b or a != a else b


@cuda.jit(device=True)
def smaller(a, b):
    return a if a < b or a != a else b


@cuda.jit(device=True)
def either(a, b):
    return a | b


@cuda.jit(device=True)
def both(a, b):
    return a & b


warp_sum, warp_max = make_butterfly(add), make_butterfly(larger_number)
SUM = Reduction(element, add)
PROD = Reduction(element, multiply)
AMAX = Reduction(element, larger)
AMIN = Reduction(element, smaller)
ANY = Reduction(truth, either)
ALL = Reduction(truth, both)
SQUARES = Reduction(square, add, SUM)
SQUARE_DEVIATIONS = Reduction(square_deviation, add, SUM)
EXPONENTIALS = Reduction(exponential, add, SUM)
ABSOLUTE_POWERS = Reduction(absolute_power, add, SUM)


@cuda.jit
def finite_or_zero(y):
    """0 in place of what is not finite; thread i owns result i."""
    i = cuda.grid(1)
    if i < y.size and not math.isfinite(y[i]):
        y[i] = 0
