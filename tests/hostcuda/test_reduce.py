"""`cuda.reduce`: reductions by a function of two elements."""

import numpy as np
import pytest

from miniflow.hostcuda import host as cuda
from miniflow.hostcuda.errors import DeviceArrayTypeError


@cuda.reduce
def total(a, b):
    return a + b


@cuda.reduce
def largest(a, b):
    return max(a, b)


def test_sums_and_maxima():
    values = np.random.default_rng(0).integers(-1000, 1000, 257)
    assert total(values) == values.sum() and total(values, init=5) == values.sum() + 5
    assert largest(values.astype(np.float32), init=-np.inf) == np.float32(values.max())
    assert type(largest(values.astype(np.float32))) is np.float32


def test_a_part_of_a_device_array_into_a_device_array():
    array, result = cuda.to_device(np.arange(10)), cuda.to_device(np.zeros(2, np.int64))
    assert total(array, size=4, res=result, stream=cuda.stream()) is None
    np.testing.assert_array_equal(result.copy_to_host(), [6, 0])
    np.testing.assert_array_equal(array.copy_to_host(), np.arange(10))
    assert total(array[::2]) == 20


def test_no_elements_give_the_initial_value():
    assert total(np.zeros(0), init=3) == 3 and total(np.arange(4), size=0) == 0


def test_only_one_dimension():
    with pytest.raises(DeviceArrayTypeError, match=r"reduce takes a 1-D array, got shape \(2, 3\); ravel.. it"):
        total(np.zeros((2, 3)))
