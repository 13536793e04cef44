"""`cuda.vectorize` and `cuda.guvectorize`: functions of numbers or small arrays, for all elements of large ones."""

import functools
import math

import numpy as np
import pytest

from miniflow.hostcuda import host as cuda

draw = np.random.default_rng(3)


def late(decorate):
    """Decorate a function at its first call: to compile takes a second, and every worker imports this module."""

    def wrap(function):
        made = functools.cache(lambda: decorate(function))
        return lambda *args, **options: made()(*args, **options)

    return wrap


@late(cuda.vectorize(["float32(float32, float32)", "int64(int64, int64)"], target="cuda"))
def scaled_sum(a, b):
    return a + 3 * b


@late(cuda.vectorize("float64(float64)"))
def logistic(x):
    return 1 / (1 + math.exp(-x))


@late(cuda.guvectorize(["void(float32[:,:], float32[:,:], float32[:,:])"], "(m,n),(n,p)->(m,p)", target="cuda"))
def product(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = a[i, 0] * 0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


@late(cuda.guvectorize("void(float64[:], float64, float64[:])", "(n),()->()"))
def weighted_total(values, weight, out):
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    out[0] = weight * total


@pytest.mark.parametrize("shapes", [((7,), (7,)), ((3, 1), (4,)), ((2, 3, 5), ()), ((0, 4), (4,))], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_numbers_broadcast(shapes, dtype):
    a, b = (draw.integers(-9, 9, shape).astype(dtype) for shape in shapes)
    found = scaled_sum(a, b)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, a + 3 * b, strict=True)


def test_arrays_with_gaps_and_numbers():
    a = draw.integers(-9, 9, (6, 8)).astype(np.float32)
    np.testing.assert_array_equal(scaled_sum(a[::2, ::-3], 2), a[::2, ::-3] + 6, strict=True)
    assert scaled_sum(np.float32(1), np.float32(2)) == 7


def test_device_arrays_give_device_arrays():
    a = draw.normal(size=300)
    found = logistic(cuda.to_device(a))
    assert isinstance(found, cuda.devicearray.DeviceNDArray)
    np.testing.assert_allclose(found.copy_to_host(), 1 / (1 + np.exp(-a)), rtol=1e-12)


def test_results_go_into_given_arrays():
    a, b = np.arange(5), np.arange(5)[::-1]
    host, device = np.full(5, -1), cuda.to_device(np.full(5, -1))
    assert scaled_sum(a, b, out=host) is host and scaled_sum(a, b, device, stream=cuda.stream()) is device
    np.testing.assert_array_equal(host, a + 3 * b)
    np.testing.assert_array_equal(device.copy_to_host(), a + 3 * b)


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_reductions(n):
    @cuda.vectorize(["int64(int64, int64)"])
    def largest(a, b):
        return max(a, b)

    values = draw.integers(-99, 99, n)
    assert largest.reduce(values) == largest.reduce(cuda.to_device(values)) == values.max()


@pytest.mark.parametrize(("left", "right"), [((3, 4), (4, 5)), ((6, 3, 4), (4, 2)), ((2, 1, 3, 4), (7, 4, 1))], ids=str)
def test_small_matrices(left, right):
    a, b = draw.integers(-5, 5, left).astype(np.float32), draw.integers(-5, 5, right).astype(np.float32)
    np.testing.assert_array_equal(product(a, b), a @ b, strict=True)
    target = np.full(np.broadcast_shapes(left[:-2], right[:-2]) + (left[-2], right[-1]), np.nan, np.float32)
    assert product(a, b, target) is target
    np.testing.assert_array_equal(target, a @ b)
    on_device = product(cuda.to_device(a), cuda.to_device(b))
    np.testing.assert_array_equal(on_device.copy_to_host(), a @ b)


def test_outputs_without_dims():
    values, weights = draw.integers(-5, 5, (4, 6)).astype(float), np.array([1.0, 2, 3, 4])
    np.testing.assert_array_equal(weighted_total(values, weights), weights * values.sum(1), strict=True)
    assert weighted_total(values[0], 2) == 2 * values[0].sum()


@cuda.jit(device=True)
def cube(x):
    return x * x * x


def test_device_functions_are_called():
    @cuda.vectorize("float64(float64)")
    def root_of_cube(x):
        return math.sqrt(cube(x))

    np.testing.assert_allclose(root_of_cube(np.arange(5.0)), np.arange(5.0) ** 1.5)


def test_what_is_refused():
    with pytest.raises(NameError, match="name 'float33' is not defined"):
        cuda.vectorize("float33(float32)")(lambda x: x)
    with pytest.raises(TypeError, match="inputs could not be safely coerced to any supported types"):
        scaled_sum(np.ones(3), np.ones(3))
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 1 w(as|ere) given"):
        scaled_sum(np.ones(3))
    with pytest.raises(ValueError, match="mismatch in its core dimension 0.*size 4 is different from 3"):
        product(np.ones((2, 3), np.float32), np.ones((4, 2), np.float32))
    with pytest.raises(ValueError, match="could not be broadcast together"):
        scaled_sum(np.arange(3), np.arange(4))


def test_an_index_outside_is_told():
    @cuda.guvectorize("void(float64[:], float64[:])", "(n)->(n)")
    def shifted(x, out):
        for i in range(x.shape[0]):
            out[i] = x[i + 1]

    with pytest.raises(IndexError):
        shifted(np.ones(3))
