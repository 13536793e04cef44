"""What users do with kernels on the host: reduce, vectorize, exec, metadata."""

import linecache
import math

import numba
import numpy as np
import pytest
from expectations import launch
from numba import float64

from miniflow.hostcuda import UnsupportedKernelError, cuda


def test_reduce_with_a_lambda():
    total = cuda.reduce(lambda a, b: a + b)
    np.testing.assert_array_equal(total(np.arange(1000.0)), 499500.0)


def test_a_kernel_made_by_exec():
    text = "def doubled(x):\n    i = cuda.grid(1)\n    x[i] *= 2\n"
    linecache.cache["<made by exec>"] = (len(text), None, text.splitlines(True), "<made by exec>")
    names = {"cuda": cuda}
    exec(compile(text, "<made by exec>", "exec"), names)
    x = np.arange(8.0)
    launch(cuda.jit(names["doubled"]), 1, 8, [x])
    np.testing.assert_array_equal(x, np.arange(8) * 2)


def test_vectorize():
    @cuda.vectorize([float64(float64, float64)])
    def hypotenuse(a, b):
        return math.sqrt(a * a + b * b)

    np.testing.assert_allclose(hypotenuse(np.full(5, 3.0), np.full(5, 4.0)), np.full(5, 5.0))


def test_guvectorize():
    @cuda.guvectorize([(float64[:], float64[:])], "(n)->()")
    def row_sum(x, out):
        total = 0.0
        for k in range(x.shape[0]):
            total += x[k]
        out[0] = total

    np.testing.assert_allclose(row_sum(np.arange(12.0).reshape(3, 4)), [6, 22, 38])


def test_metadata_of_a_kernel():
    @cuda.jit
    def plain(x):
        x[cuda.grid(1)] = 1

    x = cuda.to_device(np.zeros(8))
    plain[1, 8](x)
    (signature,) = plain.overloads
    assert signature[0] == numba.float64[::1]
    assert plain.overloads[signature] is not None
    with pytest.raises(UnsupportedKernelError, match="only a GPU's compiler knows how many"):
        plain.get_regs_per_thread()


def test_numba_cuda_random_says_what_to_import():
    try:
        from numba.cuda.random import xoroshiro128p_uniform_float32 as uniform
    except ImportError:
        np.testing.assert_equal(cuda.random.__name__, "miniflow.hostcuda.random")
        return

    def noise(states, out):
        i = cuda.grid(1)
        out[i] = uniform(states, i)

    with pytest.raises(UnsupportedKernelError, match="cuda.random.xoroshiro128p_uniform_float32"):
        cuda.jit(noise)
