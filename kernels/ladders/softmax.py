"""Softmax of the rows of x (rows, width), a ladder of three.

    y[r, j] = exp(x[r, j] - m_r) / d_r,   m_r = max over k of x[r, k],   d_r = sum over k of exp(x[r, k] - m_r)

                           reads     writes     exponentials of an element
    three_passes           3         1          2
    online                 2         1          2, and a few more where the maximum grows
    cached_softmax_rows    1         1          1

Without m_r, exp overflows from 89 on in float32. The first rung goes over a row once for the maximum, once for the sum
and once for the result. `online` finds maximum and sum in one pass: Milakov and Gimelshein 2018, "Online normalizer
calculation for softmax"; FlashAttention is built on it. The last, which the library runs, keeps the row in shared
memory, where there is room for some 12,000 float32; of what a multiprocessor has, a warp then takes 4 bytes an element,
which limits how many warps run at once. A warp owns a row on all rungs: lane l takes the elements l, l + 32, ..., so
that lanes read neighbours.
"""

import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.ladders import Rung
from miniflow.kernels.reduce import FULL, WARP, warp_max, warp_sum
from miniflow.kernels.softmax import cached_softmax_rows


@cuda.jit
def three_passes(x, y):
    """One pass for the maximum, one for the sum, one for the result: of an element three reads and a write.

    `three_passes[rows, 32](x, y)`
    """
    row, lane, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    largest = x.dtype.type(-math.inf)
    for j in range(lane, width, WARP):
        largest = max(largest, x[row, j])
    largest = warp_max(largest)
    total = x.dtype.type(0)
    for j in range(lane, width, WARP):
        total += math.exp(x[row, j] - largest)
    total = warp_sum(total)
    for j in range(lane, width, WARP):
        y[row, j] = math.exp(x[row, j] - largest) / total


@cuda.jit(device=True)
def merged(m, d, other_m, other_d):
    """Maximum and sum of exponentials of two sets together: the sum of the set whose maximum is smaller is scaled.

    An empty set has -inf and 0. NaN is neither larger nor equal, and makes the sum NaN.
    """
    if m > other_m:
        return m, d + other_d * math.exp(other_m - m)
    if m == other_m:
        return m, d + other_d
    return other_m, other_d + d * math.exp(m - other_m)


@cuda.jit
def online(x, y):
    """One pass for maximum and sum together, one for the result: of an element two reads and a write.

    `online[rows, 32](x, y)`. Each lane merges its elements, sets of one with the sum exp(0) = 1, into what it has; then
    lanes merge, by shuffles.
    """
    row, lane, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    m, d = x.dtype.type(-math.inf), x.dtype.type(0)
    for j in range(lane, width, WARP):
        m, d = merged(m, d, x[row, j], x.dtype.type(1))
    for k in range(5):
        other_m = cuda.shfl_xor_sync(FULL, m, 16 >> k)
        other_d = cuda.shfl_xor_sync(FULL, d, 16 >> k)
        m, d = merged(m, d, other_m, other_d)
    for j in range(lane, width, WARP):
        y[row, j] = math.exp(x[row, j] - m) / d


def rungs(x: np.ndarray) -> dict[str, Rung]:
    """The launches for x (rows, width), of a floating dtype, at least one row."""
    kernels = {"three_passes": three_passes, "online": online, "cached_softmax_rows": cached_softmax_rows}
    y = {name: np.full(x.shape, np.nan, x.dtype) for name in kernels}
    shared = {"cached_softmax_rows": x.shape[1] * x.itemsize}
    return {
        name: Rung(kernel, x.shape[0], WARP, [x, y[name]], y[name], shared.get(name, 0))
        for name, kernel in kernels.items()
    }
