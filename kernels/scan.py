"""Cumulative sums, products and extrema: y_j combines x_0 to x_j, or without x_j itself, from the front or the back.

One block owns a part of a row of x (rows, width) and goes through it in tiles of 256: thread t owns element t of the
tile. In shared memory each element combines with the one 1, 2, 4 ... 128 places before it (Hillis, Steele, "Data
Parallel Algorithms", 1986), to and fro between two buffers, so that one barrier a step is enough. `carry` takes the
result of all tiles so far to the next one.

A row of one part is read and written once. A long row would keep a single block busy while the rest of the device
waits: it is cut into parts, and three launches follow each other (reduce, then scan; Blelloch 1990, "Prefix sums and
their applications"), which read x twice:

    totals.block_rows      what each part comes to (kernels/reduce.py)
    scan_rows, exclusive   over these: what comes before each part
    scan_rows              each part, with that as its first `carry`
"""

import math

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import AMAX, AMIN, PROD, SUM, THREADS, Reduction, add, element, larger, multiply, smaller


@cuda.jit(device=True)
def logaddexp(a, b):
    """log(exp(a) + exp(b)); infinities as they are."""
    low, high = min(a, b), max(a, b)
    if a != a or b != b:
        return a + b
    return high if low == -math.inf or high == math.inf else high + math.log1p(math.exp(low - high))


def make_scan_rows(combine):
    """`scan_rows[rows * parts, THREADS](x, carries, identity, chunk, exclusive, reverse, y)`.

    x and y are (rows, width). Part p is the elements from `chunk` p on, `chunk` of them at most; carries (rows, parts)
    holds what comes before each, seen in the scan's direction; it is (0, 1) where there is a single part.

    Args:
        combine: combine(a, b), associative; a comes first.
    """

    @cuda.jit
    def scan_rows(x, carries, identity, chunk, exclusive, reverse, y):
        buffers = cuda.shared.array((2, THREADS), y.dtype)
        t = cuda.threadIdx.x
        row, part = cuda.blockIdx.x // carries.shape[1], cuda.blockIdx.x % carries.shape[1]
        start, stop = part * chunk, min((part + 1) * chunk, x.shape[1])
        carry = carries[row, part] if carries.shape[0] > 0 else identity
        for tile in range(0, stop - start, THREADS):
            j = tile + t
            at = stop - 1 - j if reverse else start + j
            inside = start <= at < stop
            buffers[0, t] = x[row, at] if inside else identity
            cuda.syncthreads()
            for step in range(8):  # 2**8 = THREADS
                source, target = step % 2, 1 - step % 2
                distance = 1 << step
                if t >= distance:
                    buffers[target, t] = combine(buffers[source, t - distance], buffers[source, t])
                else:
                    buffers[target, t] = buffers[source, t]
                cuda.syncthreads()
            preceding = carry if t == 0 else combine(carry, buffers[0, max(t - 1, 0)])
            if inside:
                y[row, at] = preceding if exclusive else combine(carry, buffers[0, t])
            carry = combine(carry, buffers[0, THREADS - 1])
            cuda.syncthreads()  # the next tile overwrites the buffer

    return scan_rows


class Scan:
    """The kernels of one scan: `totals`, whose `block_rows` says what parts come to, and `rows`."""

    def __init__(self, totals, combine):
        self.totals, self.rows = totals, make_scan_rows(combine)


SUMS, PRODUCTS, MAXIMA, MINIMA = Scan(SUM, add), Scan(PROD, multiply), Scan(AMAX, larger), Scan(AMIN, smaller)
LOGSUMEXPS = Scan(Reduction(element, logaddexp), logaddexp)
