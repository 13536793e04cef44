"""Clipping of gradients: the norm of all elements of many arrays, and bounds applied in place; many arrays in a launch.

    blocks starts[k] .. starts[k + 1] - 1 of the grid  ->  array k

    norm        block b adds up PART elements of its array, thread i every THREADS-th, then a tree in shared memory
                ->  partials[first + b], float64. Every element is read once. In a second launch one block makes the
                norm of the partial sums, in the same order every time.
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


def make_norm(term, combine, root):
    """`norm[blocks, THREADS](starts, arrays, part, p, first, out)`; block b writes out[first + b].

    That is root(combine of all term(x, p), p) over `part` elements of its array.
    """

    @cuda.jit
    def norm(starts, arrays, part, p, first, out):
        results = cuda.shared.array(THREADS, np.float64)
        thread = cuda.threadIdx.x
        k = 0
        while cuda.blockIdx.x >= starts[k + 1]:
            k += 1
        x = arrays[k]
        start = max(cuda.blockIdx.x - starts[k], 0) * part
        result = 0.0
        for i in range(start + thread, min(start + part, x.size), THREADS):
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
            out[first + cuda.blockIdx.x] = out.dtype.type(root(results[0], p))

    return norm


# for each kind of norm the kernels of the partial results and of the last step
LARGEST = make_norm(magnitude, larger, itself), make_norm(itself, larger, itself)
MAGNITUDES = make_norm(magnitude, add, itself), make_norm(itself, add, itself)
SQUARES = make_norm(square, add, itself), make_norm(itself, add, square_root)
POWERS = make_norm(power, add, itself), make_norm(itself, add, root)


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
