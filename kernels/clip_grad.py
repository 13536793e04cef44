"""Clipping of gradients: the norm of all elements of many arrays, and bounds applied in place; many arrays in a launch.

    blocks starts[k] .. starts[k + 1] - 1 of the grid  ->  array k

    norm        block b adds up PART elements of its array, thread i every THREADS-th, then a tree in shared memory
                ->  partials[first + b], float64. Every element is read once. In a second launch one block makes the
                norm of the partial sums, in the same order every time. `largest` is the same for p = inf.
    scale       the update of `kernels.optim` whose result is the gradient, which is bounded by the norm.
    clamp       the same with a bound for each element.

`starts` and the arguments in the plural are tuples with an entry for each array of the launch.
"""

from __future__ import annotations

import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.optim import make_update
from miniflow.kernels.reduce import add, larger, make_tree
from miniflow.kernels.together import array_and_block

THREADS = 256  # in a block; a power of two
PART = 16 * THREADS  # elements of a partial sum


@cuda.jit(device=True)
def power(magnitude, p):
    if p == 2:
        return magnitude * magnitude
    return magnitude if p == 1 or p == math.inf else magnitude**p


@cuda.jit(device=True)
def root(value, p):
    if p == 2:
        return math.sqrt(value)
    return value if p == 1 or p == math.inf else value ** (1 / p)


def make_norm(combine):
    """Block b: out[first + b] = the sum of |x|^p (the largest |x|, if p is inf) over `part` elements of its array.

    Without `partial` the elements are such results, and the root of their sum is the norm.
    `norm[starts[-1], THREADS](starts, arrays, part, p, partial, first, out)`
    """
    tree = make_tree(combine)

    @cuda.jit
    def norm(starts, arrays, part, p, partial, first, out):
        results = cuda.shared.array(THREADS, np.float64)
        thread = cuda.threadIdx.x
        k, block = array_and_block(starts)
        x, start = arrays[k], block * part
        result = 0.0
        for i in range(start + thread, min(start + part, x.size), THREADS):
            magnitude = abs(np.float64(x[i]))
            result = combine(result, power(magnitude, p) if partial else magnitude)
        results[thread] = result
        tree(results, thread, 1)
        if thread == 0:
            out[first + cuda.blockIdx.x] = out.dtype.type(results[0] if partial else root(results[0], p))

    return norm


norm, largest = make_norm(add), make_norm(larger)


def scaled(first, last, bound, numbers, p, g):
    """The gradient times its bound."""
    for i in range(first, last):
        p[i] = g[i] * bound


def clamped(first, last, bound, numbers, p, g):
    """The nearest number from -limit to limit; nan stays."""
    (limit,) = numbers
    for i in range(first, last):
        p[i] = -limit if g[i] < -limit else limit if g[i] > limit else g[i]


scale, clamp = make_update(scaled), make_update(clamped)
