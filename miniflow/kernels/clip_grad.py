"""Clipping of gradients: the norm of all elements of many arrays, and bounds applied in place; many arrays in a launch.

    blocks starts[k] .. starts[k + 1] - 1 of the grid  ->  array k

    partial     block b adds up PART elements of its array, thread i every THREADS-th, then a tree in shared memory
                ->  partials[first + b], float64. Every element is read once.
    finish      one block makes the norm of the partial sums, in the same order every time.
    scale       thread i of array k's blocks reads the norm and multiplies element i in place, if that is too large.
    clamp       the same with a bound.

`starts` and the arguments in the plural are tuples with an entry for each array of the launch.
"""

from __future__ import annotations

import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import add, larger

THREADS = 256  # in a block; a power of two
PART = 16 * THREADS  # elements of a partial sum


@cuda.jit(device=True)
def magnitude(value, p):
    return abs(np.float64(value))


@cuda.jit(device=True)
def square(value, p):
    return np.float64(value) * np.float64(value)


@cuda.jit(device=True)
def power(value, p):
    return abs(np.float64(value)) ** p


@cuda.jit(device=True)
def itself(value, p):
    return value


@cuda.jit(device=True)
def square_root(value, p):
    return math.sqrt(value)


@cuda.jit(device=True)
def root(value, p):
    return value ** (1 / p)


class NormKernels:
    """The kernels of one kind of norm, root(combine of all term(x, p), p)."""

    def __init__(self, term, combine, root):
        self.partial = make_partial(term, combine)
        self.finish = make_finish(combine, root)


def make_partial(term, combine):
    """`partial[blocks, THREADS](starts, arrays, p, first, partials)`; block b writes partials[first + b], float64."""

    @cuda.jit
    def partial(starts, arrays, p, first, partials):
        results = cuda.shared.array(THREADS, np.float64)
        thread = cuda.threadIdx.x
        k = 0
        while cuda.blockIdx.x >= starts[k + 1]:
            k += 1
        x = arrays[k]
        start = max(cuda.blockIdx.x - starts[k], 0) * PART
        result = 0.0
        for i in range(start + thread, min(start + PART, x.size), THREADS):
            result = combine(result, term(x[i], p))
        results[thread] = result
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if thread < half:
                results[thread] = combine(results[thread], results[thread + half])
            cuda.syncthreads()
            half //= 2
        if thread == 0:
            partials[first + cuda.blockIdx.x] = results[0]

    return partial


def make_finish(combine, root):
    """`finish[1, THREADS](partials, p, norm)`; partials (n,) float64, norm (1,)."""

    @cuda.jit
    def finish(partials, p, norm):
        results = cuda.shared.array(THREADS, np.float64)
        thread = cuda.threadIdx.x
        result = 0.0
        for i in range(thread, partials.size, THREADS):
            result = combine(result, partials[i])
        results[thread] = result
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if thread < half:
                results[thread] = combine(results[thread], results[thread + half])
            cuda.syncthreads()
            half //= 2
        if thread == 0:
            norm[0] = norm.dtype.type(root(results[0], p))

    return finish


LARGEST = NormKernels(magnitude, larger, itself)
MAGNITUDES = NormKernels(magnitude, add, itself)
SQUARES = NormKernels(square, add, square_root)
POWERS = NormKernels(power, add, root)


@cuda.jit
def scale(starts, gradients, norms, max_norm):
    """gradient *= min(1, max_norm / (norm + 1e-6)); norms (1,), max_norm float64."""
    k = 0
    while cuda.blockIdx.x >= starts[k + 1]:
        k += 1
    gradient, norm = gradients[k], norms[k]
    i = max(cuda.blockIdx.x - starts[k], 0) * cuda.blockDim.x + cuda.threadIdx.x
    if i < gradient.size:
        factor = max_norm / (np.float64(norm[0]) + 1e-6)
        if not factor >= 1:  # also when it is nan
            gradient[i] *= gradient.dtype.type(factor)


@cuda.jit
def clamp(starts, gradients, bound):
    """gradient = the nearest value from -bound to bound; nan stays."""
    k = 0
    while cuda.blockIdx.x >= starts[k + 1]:
        k += 1
    gradient = gradients[k]
    i = max(cuda.blockIdx.x - starts[k], 0) * cuda.blockDim.x + cuda.threadIdx.x
    if i < gradient.size:
        if gradient[i] < -bound:
            gradient[i] = -bound
        elif gradient[i] > bound:
            gradient[i] = bound
