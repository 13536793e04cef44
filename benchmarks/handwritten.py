"""The algorithms of `launches` as a programmer writes them for a CPU: `njit(parallel=True)`, with the same arguments.

The work of a block becomes an iteration of `prange`, that of its threads inner loops, of which the innermost runs along
memory. Sums that a block adds up in many threads are added up in as many numbers here: one sum in a single number
would be another order of additions, which LLVM may not vectorize.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import get_num_threads, njit, prange

TILE, LANES, THREADS = 16, 32, 256
fast = njit(parallel=True, cache=True, error_model="numpy")


@fast
def naive_matmul(x, y, out):
    """The sums of a row of outputs grow side by side, so that y is read along its rows."""
    for i in prange(out.shape[0]):
        out[i] = 0
        for k in range(x.shape[1]):
            factor = x[i, k]
            for j in range(out.shape[1]):
                out[i, j] += factor * y[k, j]


@fast
def tiled_matmul(x, y, out):
    """Tiles of 16 x 16; the sizes are multiples of that."""
    across = out.shape[1] // TILE
    for block in prange(out.shape[0] // TILE * across):
        top, start = block // across * TILE, block % across * TILE
        left = np.empty((TILE, TILE), x.dtype)
        right = np.empty((TILE, TILE), x.dtype)
        total = np.zeros((TILE, TILE), x.dtype)
        for first in range(0, x.shape[1], TILE):
            for i in range(TILE):
                for j in range(TILE):
                    left[i, j] = x[top + i, first + j]
                    right[i, j] = y[first + i, start + j]
            for i in range(TILE):
                for j in range(TILE):
                    value = total[i, j]
                    for k in range(TILE):  # with k innermost LLVM makes four times faster code than with j
                        value += left[i, k] * right[k, j]
                    total[i, j] = value
        for i in range(TILE):
            for j in range(TILE):
                out[top + i, start + j] = total[i, j]


@fast
def layer_norm_in_warps(x, weight, bias, eps, y, mean, rstd):
    """Welford's formula in 32 lanes, which are merged by that of Chan; the width is a multiple of 32."""
    one = x.dtype.type(1)
    for row in prange(x.shape[0]):
        means, squares = np.zeros(LANES, x.dtype), np.zeros(LANES, x.dtype)
        count = x.dtype.type(0)
        for start in range(0, x.shape[1], LANES):
            count += one
            for lane in range(LANES):
                value = x[row, start + lane]
                delta = value - means[lane]
                means[lane] += delta / count
                squares[lane] += delta * (value - means[lane])
        half = LANES // 2
        while half > 0:
            for lane in range(half):
                delta = means[lane + half] - means[lane]
                squares[lane] += squares[lane + half] + delta * delta * count * x.dtype.type(0.5)
                means[lane] += delta * x.dtype.type(0.5)
            count += count
            half //= 2
        scale = 1 / math.sqrt(np.float64(squares[0]) / x.shape[1] + eps)
        factor, center = x.dtype.type(scale), means[0]
        for j in range(x.shape[1]):
            y[row, j] = (x[row, j] - center) * factor * weight[j] + bias[j]
        mean[row], rstd[row] = center, scale


@fast
def layer_norm_in_trees(x, weight, bias, eps, y):
    """Two passes over the row for mean and variance, each in 256 sums."""
    one, zero, count = x.dtype.type(1), x.dtype.type(0), x.dtype.type(x.shape[1])
    for row in prange(x.shape[0]):
        sums = np.zeros(THREADS, x.dtype)
        for start in range(0, x.shape[1], THREADS):
            for j in range(start, min(start + THREADS, x.shape[1])):
                sums[j - start] += x[row, j]
        mean = tree_sum(sums) / count
        sums[:] = zero
        for start in range(0, x.shape[1], THREADS):
            for j in range(start, min(start + THREADS, x.shape[1])):
                sums[j - start] += (x[row, j] - mean) * (x[row, j] - mean)
        rstd = one / math.sqrt(tree_sum(sums) / count + eps)
        for j in range(x.shape[1]):
            y[row, j] = (x[row, j] - mean) * rstd * weight[j] + bias[j]


@njit(cache=True)
def tree_sum(values):
    """The sum of 256 numbers, which are overwritten."""
    half = THREADS // 2
    while half > 0:
        for i in range(half):
            values[i] += values[i + half]
        half //= 2
    return values[0]


@fast
def softmax_of_rows(x, y):
    """Three passes over the row."""
    for row in prange(x.shape[0]):
        largest = x[row, 0]
        for j in range(x.shape[1]):
            largest = max(largest, x[row, j])
        sums = np.zeros(LANES, x.dtype)
        for start in range(0, x.shape[1], LANES):
            for j in range(start, min(start + LANES, x.shape[1])):
                value = math.exp(x[row, j] - largest)
                y[row, j] = value
                sums[j - start] += value
        scale = x.dtype.type(1) / sums.sum()
        for j in range(x.shape[1]):
            y[row, j] *= scale


@fast
def addition(out, x, y):
    """x + y"""
    for i in prange(out.size):
        out[i] = x[i] + y[i]


@fast
def gelu(out, x):
    """x (1 + erf(x / sqrt 2)) / 2"""
    half, one, scale = np.float32(0.5), np.float32(1), np.float32(0.5**0.5)
    for i in prange(out.size):
        out[i] = half * x[i] * (one + math.erf(scale * x[i]))


@fast
def block_sums(x, shift, identity, chunk, y):
    """Each part is added up in 256 sums, those in a tree."""
    for part in prange(y.shape[1]):
        row = x[0, part * chunk : (part + 1) * chunk]
        sums = np.full(THREADS, identity, x.dtype)
        whole = chunk // THREADS * THREADS
        for start in range(0, whole, THREADS):
            for i in range(THREADS):
                sums[i] += row[start + i]
        for i in range(chunk - whole):
            sums[i] += row[whole + i]
        y[0, part] = tree_sum(sums)


@fast
def convolution(x, weight, bias, y, step, first, spread):
    """The formula, with its loops in order."""
    planes = y.shape[0] * y.shape[1]
    for plane in prange(planes):
        n, g = plane // y.shape[1], plane % y.shape[1]
        for i in range(y.shape[3]):
            for j in range(y.shape[4]):
                total = bias[g]
                for a in range(weight.shape[3]):
                    h = i * step[0] + first[0] + a * spread[0]
                    if h >= 0 and h < x.shape[3]:
                        for b in range(weight.shape[4]):
                            w = j * step[1] + first[1] + b * spread[1]
                            if w >= 0 and w < x.shape[4]:
                                total += weight[g, 0, 0, a, b] * x[n, g, 0, h, w]
                y[n, g, 0, i, j] = total


def histogram(values, counts):
    """A histogram for each thread, added up at the end: no atomics."""
    own_histograms(values, counts, get_num_threads())


@fast
def own_histograms(values, counts, threads):
    """The same for a number of threads."""
    own = np.zeros((threads, counts.size), counts.dtype)
    for thread in prange(threads):
        for i in range(thread * values.size // threads, (thread + 1) * values.size // threads):
            own[thread, values[i]] += 1
    counts += own.sum(axis=0)


HANDWRITTEN: dict[str, Callable] = {
    "naive matmul": naive_matmul,
    "tiled matmul": tiled_matmul,
    "LayerNorm, Welford in warps": layer_norm_in_warps,
    "LayerNorm, trees in blocks": layer_norm_in_trees,
    "softmax of rows": softmax_of_rows,
    "add": addition,
    "gelu": gelu,
    "sums of blocks": block_sums,
    "3x3 convolution, depthwise": convolution,
    "histogram": histogram,
}


# the same results by NumPy's functions, for orientation


def numpy_layer_norm(x, weight, bias, eps, y, *statistics):
    """In NumPy's own order; `statistics` are mean and 1 / sqrt(variance + eps), where asked for."""
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(1, keepdims=True) + eps)
    np.copyto(y, (x - mean) * rstd * weight + bias)
    for array, value in zip(statistics, (mean, rstd), strict=False):
        array[:] = value[:, 0]


def numpy_softmax(x, y):
    """exp(x - max) / sum"""
    np.exp(x - x.max(1, keepdims=True), out=y)
    y /= y.sum(1, keepdims=True)


def numpy_convolution(x, weight, bias, y, step, first, spread):
    """The sum of nine shifted images."""
    height, width = x.shape[3:]
    wide = np.pad(x, ((0, 0),) * 3 + ((1, 1),) * 2)
    y[...] = bias[:, None, None, None]
    for a in range(3):
        for b in range(3):
            y += weight[:, :, :, a : a + 1, b : b + 1][:, :, 0] * wide[:, :, :, a : a + height, b : b + width]


def numpy_histogram(values, counts):
    """By bincount."""
    counts += np.bincount(values, minlength=counts.size).astype(counts.dtype)


def numpy_block_sums(x, shift, identity, chunk, y):
    """By a view with a row for each part."""
    np.sum(x.reshape(y.size, chunk), axis=1, out=y[0])


NUMPY: dict[str, Callable] = {  # NumPy has no erf
    "naive matmul": lambda x, y, out: np.matmul(x, y, out=out),
    "tiled matmul": lambda x, y, out: np.matmul(x, y, out=out),
    "LayerNorm, Welford in warps": numpy_layer_norm,
    "LayerNorm, trees in blocks": numpy_layer_norm,
    "softmax of rows": numpy_softmax,
    "add": lambda out, x, y: np.add(x, y, out=out),
    "sums of blocks": numpy_block_sums,
    "3x3 convolution, depthwise": numpy_convolution,
    "histogram": numpy_histogram,
}
