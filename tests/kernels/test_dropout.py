"""`kernels.dropout`: the mask is that of Philox, kept elements are scaled, ragged ends included."""

import numpy as np
import pytest
from both import agree
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked
from philox_reference import words_reference

from miniflow.kernels.dropout import drop, drop_rest

SEED, OFFSET = 7, 3
KEY = np.uint64(SEED), np.uint64(OFFSET)


def values(size):
    return np.random.default_rng(0).standard_normal(size).astype(np.float32)


def nan(size):
    return np.full(size, np.nan, np.float32)


def room(size):
    return np.full(size, 77, np.uint8)


def threshold(p):
    return np.uint64(round(p * 2**32))


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 255, 256, 257, 1023])
def test_drop(size, p):
    x, y, keep, scale = values(size), nan(size), room(size), np.float32(1.5)
    if size >= 4:
        drop[-(-size // 256), 64](x, y, keep, *KEY, threshold(p), scale)
    drop_rest[1, 4](x, y, keep, *KEY, threshold(p), scale)
    want = words_reference(SEED, OFFSET, -(-size // 4)).ravel()[:size] >= threshold(p)
    np.testing.assert_array_equal(keep, want)
    np.testing.assert_array_equal(y, np.where(want, x * scale, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(3, 5), (4,), (), (0, 2)], ids=str)
def test_agrees_with_the_cpu(shape, dtype):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    agree("Dropout", x, p=0.4, seed=SEED, offset=OFFSET)
    agree("DropoutGrad", x, np.asarray(x > 0), scale=2.5)


def test_dropped_infinities_are_zero():
    agree("Dropout", np.float32([np.inf, np.nan, -np.inf, 1, np.nan]), p=1.0, seed=SEED, offset=OFFSET)


CASES = [
    Case("drop", drop, lambda: [values(68), nan(68), room(68), *KEY, threshold(0.4), np.float32(2)], 1, 32),
    Case("rest", drop_rest, lambda: [values(7), nan(7), room(7), *KEY, threshold(0.4), np.float32(2)], 1, 4),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
