"""Cumulative sums, products and extrema: y_j combines x_0 to x_j, or without x_j itself, from the front or the back.

One block owns a row of x (rows, width) and goes through it in tiles of 256: thread t owns element t of the tile. In
shared memory each element combines with the one 1, 2, 4 ... 128 places before it (Hillis, Steele, "Data Parallel
Algorithms", 1986), to and fro between two buffers, so that one barrier a step is enough. `carry` takes the result of
all tiles so far to the next one. Every element of x is read once, every element of y written once.
"""

import math

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import THREADS, add, larger, multiply, smaller


@cuda.jit(device=True)
def logaddexp(a, b):
    """log(exp(a) + exp(b)); infinities as they are."""
    low, high = min(a, b), max(a, b)
    if a != a or b != b:
        return a + b
    return high if low == -math.inf or high == math.inf else high + math.log1p(math.exp(low - high))


def make_scan_rows(combine):
    """`scan_rows[rows, THREADS](x, identity, exclusive, reverse, y)`; x and y are (rows, width).

    Args:
        combine: combine(a, b), associative; a comes first.
    """

    @cuda.jit
    def scan_rows(x, identity, exclusive, reverse, y):
        buffers = cuda.shared.array((2, THREADS), y.dtype)
        t, row, width = cuda.threadIdx.x, cuda.blockIdx.x, x.shape[1]
        carry = identity
        for tile in range(0, width, THREADS):
            j = tile + t
            at = width - 1 - j if reverse else j
            buffers[0, t] = x[row, at] if j < width else identity
            cuda.syncthreads()
            for step in range(8):  # 2**8 = THREADS
                source, target = step % 2, 1 - step % 2
                distance = 1 << step
                if t >= distance:
                    buffers[target, t] = combine(buffers[source, t - distance], buffers[source, t])
                else:
                    buffers[target, t] = buffers[source, t]
                cuda.syncthreads()
            before = carry if t == 0 else combine(carry, buffers[0, max(t - 1, 0)])
            if j < width:
                y[row, at] = before if exclusive else combine(carry, buffers[0, t])
            carry = combine(carry, buffers[0, THREADS - 1])
            cuda.syncthreads()  # the next tile overwrites the buffer

    return scan_rows


cumulative_sum, cumulative_product = make_scan_rows(add), make_scan_rows(multiply)
cumulative_max, cumulative_min = make_scan_rows(larger), make_scan_rows(smaller)
cumulative_logsumexp = make_scan_rows(logaddexp)
