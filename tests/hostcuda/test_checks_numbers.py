"""Atomics, arithmetic and functions of numbers in the checked executor: as NumPy has them, typed as numba does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from miniflow.hostcuda import check
from miniflow.hostcuda import host as cuda


@pytest.fixture(autouse=True)
def _without_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba.cuda's own opinion is asked in test_findings and test_ptx."""
    monkeypatch.setattr(check, "cached_typing_error", lambda *_: "")


def empty(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, np.nan if np.dtype(dtype).kind in "fc" else 99, dtype)


# Atomics


@cuda.jit
def atomics(ints, floats, old):
    old[0] = cuda.atomic.add(ints, 0, 5)
    cuda.atomic.sub(ints, 1, 5)
    cuda.atomic.max(ints, 2, 50)
    cuda.atomic.min(ints, 3, -50)
    cuda.atomic.and_(ints, 4, 6)
    cuda.atomic.or_(ints, 5, 8)
    cuda.atomic.xor(ints, 6, 15)
    cuda.atomic.inc(ints, 7, 10)
    cuda.atomic.dec(ints, 8, 7)
    old[1] = cuda.atomic.exch(ints, 9, 1)
    old[2] = cuda.atomic.cas(ints, 10, 10, 77)
    old[3] = cuda.atomic.cas(ints, 11, 9, 77)
    old[4] = cuda.atomic.compare_and_swap(ints[12:], 10, 33)
    cuda.atomic.max(floats, (0, 0), 3.0)
    cuda.atomic.nanmax(floats, (0, 1), 3.0)
    cuda.atomic.nanmin(floats, (1, 0), np.nan)
    cuda.atomic.add(floats, (1, 1), 0.5)


def test_atomics():
    ints, old = np.full(13, 10, np.uint32), np.zeros(5, np.int64)
    ints[3] = 60
    floats = np.array([[1, np.nan], [2, 2]], np.float32)
    with np.errstate(all="ignore"):
        check.launch(atomics, [ints.view(np.int32), floats, old], 1, 1)
    np.testing.assert_array_equal(ints.view(np.int32), [15, 5, 50, -50, 2, 10, 5, 0, 7, 1, 77, 10, 33])
    np.testing.assert_array_equal(floats, [[3, 3], [2, 2.5]])
    np.testing.assert_array_equal(old, [10, 10, 10, 10, 10])


# Numbers as numba has them


@cuda.jit
def hashing(keys, y, z):
    i = cuda.grid(1)
    key = keys[i]
    key = (key ^ (key >> np.uint32(16))) * np.uint32(0x45D9F3B)
    y[i] = key ^ (key >> np.uint32(16))
    wide = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    z[i] = (wide << np.uint64(7)) | (wide >> np.uint64(57))


def test_unsigned_integers_wrap():
    keys = np.random.default_rng(1).integers(0, 2**32, 8, dtype=np.uint32)
    y, z = empty(8, dtype=np.uint64), empty(8, dtype=np.uint64)
    check.launch(hashing, [keys, y, z], 1, 8)
    key = keys.astype(np.uint64)
    key = (key ^ (key >> np.uint64(16))) * np.uint64(0x45D9F3B)  # uint32 * uint32 is uint64
    wide = key * np.uint64(0x9E3779B97F4A7C15)
    np.testing.assert_array_equal(y, key ^ (key >> np.uint64(16)))
    np.testing.assert_array_equal(z, (wide << np.uint64(7)) | (wide >> np.uint64(57)))


@cuda.jit
def typing(ints, floats, y):
    y[0] = ints[0] + ints[0]  # int32 + int32 is int64
    y[1] = (ints[0] + 1) * 4611686018427387904  # wraps
    y[2] = floats[0] * 0.1  # float64
    y[3] = floats[0] * np.float32(0.1)  # float32
    y[4] = floats[0] * ints[0]  # float64
    y[5] = np.int32(-floats[0] * 1e9)
    y[6] = np.uint8(ints[0])
    y[7] = -7 // 2 + -7 % 3 + 7 // -2
    y[8] = floats[0] / (ints[0] - ints[0])  # no exception
    y[9] = math.log(floats[0] - floats[0])
    y[10] = math.exp(np.float32(200))
    y[11] = 2**3 + ints[0] ** 2 + int(-2.7) + round(2.5)
    y[12] = math.sqrt(-1.0)
    y[13] = math.floor(-0.5) + math.ceil(0.5) + math.erf(0.0) + abs(-3)
    y[14] = ~ints[0] + (ints[0] >> 3) + (ints[0] << 40) + (ints[0] & 12) + (True + True)
    y[15] = 1 / 3
    y[16] = min(floats[0], 2.0) + max(1, 2)


def test_numbers_are_typed_as_numba_does():
    third = np.float32(1) / np.float32(3)
    y = empty(17, dtype=np.float64)
    check.launch(typing, [np.array([2**31 - 1], np.int32), np.array([third]), y], 1, 1)
    big = 2**31 - 1
    expected = [
        2.0 * big, float(2**31 * 2**62 % 2**64), np.float64(third) * 0.1, third * np.float32(0.1),
        np.float64(third) * big, int(-np.float64(third) * 1e9), 255, -4 + 2 - 4, np.inf, -np.inf, np.inf,
        8 + big * big - 2 + 2, np.nan, -1 + 1 + 3,
        ~big + (big >> 3) + ((big << 40) + 2**63) % 2**64 - 2**63 + (big & 12) + 2, 1 / 3, np.float64(third) + 2,
    ]  # fmt: skip
    np.testing.assert_array_equal(y, expected)


@cuda.jit
def bools(x, y):
    i = cuda.grid(1)
    y[0, i] = x[i, 0] - x[i, 1]
    y[1, i] = x[i, 0] + x[i, 1]


def test_bools_are_integers():
    y = empty(2, 4, dtype=np.int64)
    check.launch(bools, [np.array([[False, False], [False, True], [True, False], [True, True]]), y], 1, 4)
    np.testing.assert_array_equal(y, [[0, -1, 1, 0], [0, 1, 1, 2]])


@cuda.jit
def bits_of_floats(x, y):
    y[0] = np.float32(x[0]).view(np.int32)
    y[1] = np.int64(1023 << 52).view(np.float64)
    y[2] = np.uint32(0x40000000).view(np.float32)


def test_views_of_numbers():
    y = empty(3, dtype=np.float64)
    check.launch(bits_of_floats, [np.array([-1.0], np.float32), y], 1, 1)
    np.testing.assert_array_equal(y, [-(2**31) + 0x3F800000, 1.0, 2.0])


@cuda.jit
def bits(x, y):
    i = cuda.threadIdx.x
    y[0, i] = cuda.popc(x[i])
    y[1, i] = cuda.clz(x[i])
    y[2, i] = cuda.ffs(x[i])
    y[3, i] = cuda.brev(x[i])


def test_bits_of_an_int32():
    x, y = np.array([0, 1, 6, -1], np.int32), empty(4, 4, dtype=np.int64)
    check.launch(bits, [x, y], 1, 4)
    np.testing.assert_array_equal(y, [[0, 1, 2, 32], [32, 31, 29, 0], [0, 1, 2, 1], [0, -(2**31), 0x60000000, -1]])


@cuda.jit
def scalars(x, z, y):
    i = cuda.threadIdx.x
    y[0, i] = cuda.fma(x[i], x[i], 1.0)
    y[1, i] = cuda.cbrt(x[i]) + cuda.rsqrt(x[i])
    y[2, i] = cuda.selp(x[i] > 1, x[i], -x[i])
    y[3, i] = cuda.libdevice.fast_expf(x[i]) + cuda.libdevice.hypot(x[i], 1.0)
    y[4, i] = (z[i] * z[i].conjugate()).real + abs(z[i])
    y[5, i] = math.atan2(x[i], 2.0) + math.pow(x[i], 2.0) + math.hypot(x[i], 1.0)


def test_functions_of_numbers():
    x, y = np.array([0.5, 1, 2], np.float32), empty(6, 3)
    z = np.array([1 + 2j, 3j, -1], np.complex64)
    check.launch(scalars, [x, z, y], 1, 3)
    expected = [
        x * x + 1, np.cbrt(x) + 1 / np.sqrt(x), np.where(x > 1, x, -x), np.exp(x) + np.hypot(x, 1),
        np.abs(z) ** 2 + np.abs(z), np.arctan2(x, 2) + x**2 + np.hypot(x, 1),
    ]  # fmt: skip
    np.testing.assert_allclose(y, expected, rtol=1e-6)


INT32, FLOAT32 = np.array([2**31 - 1], np.int32), np.array([1 / 3], np.float32)
SAME = [
    (typing, lambda: [INT32, FLOAT32, empty(17, dtype=np.float64)], 1),
    (hashing, lambda: [np.arange(8, dtype=np.uint32) << 28, *np.zeros((2, 8), np.uint64)], 8),
    (bits, lambda: [np.array([0, 1, 6, -1], np.int32), empty(4, 4, dtype=np.int64)], 4),
    (scalars, lambda: [np.array([0.5, 1, 2], np.float32), np.array([1 + 2j, 3j, -1], np.complex64), empty(6, 3)], 3),
    (atomics, lambda: [np.full(13, 10, np.int32), np.full((2, 2), 2, np.float32), np.zeros(5, np.int64)], 1),
]


@pytest.mark.parametrize("kernel, arguments, threads", SAME, ids=[kernel.__name__ for kernel, *_ in SAME])
@pytest.mark.filterwarnings("ignore")
def test_the_compiled_executor_agrees(kernel: Any, arguments: Any, threads: int):
    checked, compiled = arguments(), arguments()
    check.launch(kernel, checked, 1, threads)
    kernel[1, threads](*compiled)
    np.testing.assert_allclose(checked[-1], compiled[-1], rtol=1e-6)
    np.testing.assert_allclose(checked[-2], compiled[-2], rtol=1e-6)
