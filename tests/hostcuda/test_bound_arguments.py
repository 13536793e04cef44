"""Device functions that take functions, dtypes and sizes of arrays; and their names and docstrings."""

import numpy as np
import pytest
from numba import float32, float64

from miniflow.hostcuda import UnsupportedKernelError
from miniflow.hostcuda import host as cuda


@cuda.jit(device=True)
def half(x):
    return x // 2


@cuda.jit(device=True)
def same(x):
    return x


@cuda.jit(device=True)
def atomic_histogram(x, bins, size, dtype, change, bin_of, shift=0):
    """Its name begins as those of the generated code do.

    Its lines are indented.
    """
    counts = cuda.shared.array(size, dtype)
    i = cuda.threadIdx.x
    if i < len(bins):
        counts[i] = 0
    cuda.syncthreads()
    change(counts, bin_of(x[i]) + shift, 1)
    cuda.syncthreads()
    if i < len(bins):
        bins[i] = counts[i]


@pytest.mark.parametrize("check", [False, True])
def test_functions_dtypes_and_sizes_are_known_when_a_device_function_is_compiled(check):
    @cuda.jit(check=check)
    def kernel(x, first, second):
        atomic_histogram(x, first, 8, float32, cuda.atomic.add, half)
        cuda.syncthreads()
        atomic_histogram(x, second, (9,), change=cuda.atomic.sub, dtype=float64, bin_of=same, shift=1)

    x = np.random.default_rng(0).integers(0, 8, 64)
    first, second = cuda.to_device(np.full(8, np.nan)), cuda.to_device(np.full(9, np.nan))
    kernel[1, 64](cuda.to_device(x), first, second)
    np.testing.assert_array_equal(first, np.bincount(x // 2, minlength=8))
    np.testing.assert_array_equal(second, -np.bincount(x + 1, minlength=9))


def test_a_nested_kernel_has_a_docstring_of_several_lines():
    @cuda.jit
    def kernel(x):
        """
        The first line,

            and another.
        """
        x[cuda.grid(1)] = 3

    x = cuda.to_device(np.zeros(4))
    kernel[1, 4](x)
    np.testing.assert_array_equal(x, [3, 3, 3, 3])


def test_a_size_that_depends_on_the_thread_is_still_refused():
    @cuda.jit
    def kernel(x, bins):
        atomic_histogram(x, bins, x[0], float32, cuda.atomic.add, half)

    with pytest.raises(UnsupportedKernelError, match="the shape of cuda.shared.array given by size"):
        kernel[1, 4](cuda.to_device(np.ones(4, np.int64)), cuda.to_device(np.zeros(4)))
