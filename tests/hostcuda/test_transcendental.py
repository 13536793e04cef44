"""exp, log, erf and tanh of float32 in kernels, against float64 of the C library: all floats, by samples."""

import math

import numpy as np
import pytest

from miniflow.hostcuda import cuda

erf = np.vectorize(math.erf, otypes=[np.float64])


@cuda.jit
def single(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = math.exp(x[i])
        out[1, i] = math.log(x[i])
        out[2, i] = math.erf(x[i])
        out[3, i] = math.tanh(x[i])
        out[4, i] = np.exp(x[i])
        out[5, i] = np.log(x[i])
        out[6, i] = np.tanh(x[i])


@pytest.fixture(scope="module")
def results():
    """x, the outputs of `single`, and the float64 reference of each."""
    bits = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    special = np.array(
        [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 88.72, 88.73, -103.97, -104.0, 1e-45, -1e-45]
    )
    x = np.concatenate([bits.view(np.float32), special.astype(np.float32)])
    out = cuda.device_array((7, x.size), np.float32)
    single[-(-x.size // 256), 256](cuda.to_device(x), out)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        expected = [f(wide) for f in (np.exp, np.log, erf, np.tanh, np.exp, np.log, np.tanh)]
    return x, out.copy_to_host(), expected


@pytest.mark.parametrize("row", range(7), ids="exp log erf tanh np.exp np.log np.tanh".split())
def test_float32_is_right_within_two_units_in_the_last_place(results, row):
    x, out, expected = results[0], results[1][row], results[2][row]
    with np.errstate(all="ignore"):
        rounded = expected.astype(np.float32)
        finite = np.isfinite(rounded) & np.isfinite(out)
        compilation = np.ldexp(1.0, np.maximum(np.frexp(expected)[1] - 24, -149))
        wrong = np.abs(out.astype(np.float64) - expected) / compilation
    assert finite.sum() > 100_000
    assert wrong[finite].max() < 2, x[finite][wrong[finite].argmax()]
    np.testing.assert_array_equal(out[~finite], rounded[~finite])
    zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(out[zero]), np.signbit(rounded[zero]))


def test_other_types_use_the_c_library():
    @cuda.jit
    def kernel(x, n, z, out, complex_out):
        t = cuda.threadIdx.x
        out[0, t] = math.exp(x[t])
        out[1, t] = math.log(n[t])
        out[2, t] = math.erf(x[t])
        out[3, t] = math.tanh(n[t])
        complex_out[t] = np.exp(z[t])

    x, n = np.array([0.3, -1.7, 5.1]), np.array([1, 7, 9])
    z = np.array([1j, 2 - 1j, 0.5], np.complex64)
    out, complex_out = np.full((4, 3), np.nan), np.zeros(3, np.complex64)
    kernel[1, 3](x, n, z, out, complex_out)
    np.testing.assert_allclose(out, [np.exp(x), np.log(n), erf(x), np.tanh(n)], rtol=1e-15)
    np.testing.assert_allclose(complex_out, np.exp(z), rtol=1e-6)


def test_variables_may_have_the_names_of_the_functions():
    @cuda.jit
    def kernel(x, exp, out):
        t = cuda.threadIdx.x
        log = math.exp(x[t]) * exp
        tanh = math.tanh(log)
        out[t] = tanh

    x = np.linspace(-2, 2, 9).astype(np.float32)
    out = np.zeros(9, np.float32)
    kernel[1, 9](x, np.float32(0.5), out)
    np.testing.assert_allclose(out, np.tanh(np.exp(x.astype(np.float64)) * 0.5), rtol=1e-6)


def test_remainders_of_special_numbers():
    @cuda.jit
    def kernel(x, y, out):
        t = cuda.threadIdx.x
        out[0, t] = math.remainder(x[t], y[t])
        out[1, t] = math.fmod(x[t], y[t])
        out[2, t], out[3, t] = math.modf(x[t])

    def remainder(a, b):
        return math.nan if math.isinf(a) or b == 0 else math.remainder(a, b)

    ends = [0.0, -0.0, 1, -2.5, 7.5, math.inf, -math.inf, math.nan, 1e300, 5e-324, 0.3]
    x, y = (a.ravel() for a in np.meshgrid(ends, ends))
    out = np.zeros((4, x.size))
    kernel[1, x.size](x, y, out)
    with np.errstate(all="ignore"):
        expected = [[remainder(*pair) for pair in zip(x, y, strict=True)], np.fmod(x, y), *np.modf(x)]
    np.testing.assert_array_equal(out, expected)
