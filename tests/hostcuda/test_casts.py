"""Floats as integers, for every pair of types, by the definition of PTX's `cvt.rzi`."""

import math

import numba
import numpy as np
import pytest
from expectations import launch

from miniflow.hostcuda import cuda

INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
VALUES = [math.nan, math.inf, -math.inf, 1e30, -1e30, 300, -300, 4e4, 7e4, -1, -0.5, 3.99, -3.99, 2.0**31, 2.0**63, 3e9]


def converted(value, bits, signed, wide):
    """The bit pattern of a float as an integer of so many bits."""
    lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if math.isnan(value):
        return 2 ** (bits - 1) if wide else 0
    if math.isinf(value):
        return highest if value > 0 else lowest
    return min(max(int(value), lowest), highest)


@pytest.mark.few(4)
@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
def test_casts_and_stores_saturate(source, integer):
    @cuda.jit
    def kernel(x, cast, stored, fields, shared):
        room = cuda.shared.array(32, integer)
        t = cuda.threadIdx.x
        cast[t] = integer(x[t])
        stored[t] = x[t]
        fields[t].a = x[t]
        room[t] = x[t]
        cuda.syncthreads()
        shared[t] = room[t]

    half = source is np.float16
    with np.errstate(over="ignore"):
        x = np.array(VALUES).astype(source)
    info = np.iinfo(integer)
    width = info.bits if half else max(info.bits, 16)
    wide = 64 in (width, x.itemsize * 8)
    whole = [converted(float(np.rint(v) if half else v), width, info.min < 0, wide) % 2**info.bits for v in x]
    expected = np.array(whole, np.uint64).astype(integer)
    got = [np.full(x.size, 77, integer) for _ in range(3)]
    fields = np.zeros(x.size, [("a", integer)])
    launch(kernel, 1, x.size, [x, *got[:2], fields, got[2]])
    for found in (*got, fields["a"]):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_round_saturates(source):
    @cuda.jit
    def kernel(x, out):
        t = cuda.threadIdx.x
        out[t] = round(x[t])

    x = np.array([*VALUES, 0.5, 1.5, 2.5, -2.5, -3.5, 1e18 + 130], source)
    out = np.full(x.size, 77)
    launch(kernel, 1, x.size, [x, out])
    rounded = [converted(float(v) if math.isnan(v) or math.isinf(v) else round(float(v)), 64, True, True) for v in x]
    np.testing.assert_array_equal(out, np.array([r % 2**64 for r in rounded], np.uint64).view(np.int64))


@pytest.mark.parametrize("pair", [(np.float32, np.float32), (np.float64, np.float64), (np.float32, np.float64)])
def test_max_and_min_of_two_floats_pass_over_nan(pair):
    @cuda.jit
    def kernel(a, b, greater, less):
        t = cuda.threadIdx.x
        greater[t] = max(a[t], b[t])
        less[t] = min(a[t], b[t])

    numbers = [math.nan, math.inf, -math.inf, 1.5, -2, 0, 7]
    a, b = (np.array(side, dtype).ravel() for side, dtype in zip(np.meshgrid(numbers, numbers), pair, strict=True))
    greater, less = np.zeros(a.size), np.zeros(a.size)
    launch(kernel, 1, a.size, [a, b, greater, less])
    np.testing.assert_array_equal(greater, np.fmax(a, b))
    np.testing.assert_array_equal(less, np.fmin(a, b))


def test_numba_itself_is_left_alone():
    compiled = numba.njit("int32(float64)")(lambda x: np.int32(x))
    assert "fptosi double" in compiled.inspect_llvm()[compiled.signatures[0]]
    assert ".sat" not in compiled.inspect_llvm()[compiled.signatures[0]]
