"""`kernels.random`: the numbers are those of Philox, and those of the cpu, bit for bit."""

import ml_dtypes
import numpy as np
import pytest
from both import agree, on_device, run_kernel
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked
from philox_reference import words_reference

from miniflow.errors import ArgumentError
from miniflow.kernels import random

DRAW = {"seed": 2**63 + 5, "offset": 2**40 + 9}
KEY = np.uint64(DRAW["seed"]), np.uint64(DRAW["offset"])
ONCE = ("contiguous",)
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
SHAPES = [(1,), (4,), (255,), (257,), (3, 5), (), (0,)]


def words(elements, per_block):
    """The random words that make this many elements, (elements, 4 / per_block)."""
    blocks = -(-elements // per_block)
    return words_reference(DRAW["seed"], DRAW["offset"], blocks).reshape(-1, 4 // per_block)[:elements]


def test_uniform_of_the_reference():
    out = np.full(1028, np.nan, np.float32)
    random.uniform_float32[5, 64](out, *KEY, *np.float32([-1, 3, 2]), np.uint64(8), np.float32(2.0**-24))
    np.testing.assert_array_equal(out, -1 + 3 * (words(1028, 4)[:, 0] >> np.uint64(8)).astype(np.float32) / 2**24)
    wide = np.full(514, np.nan)
    random.uniform_float64[5, 64](wide, *KEY, 0.0, 1.0, 1.0)
    high, low = words(514, 2).T
    bits = (high >> np.uint64(5)) << np.uint64(26) | low >> np.uint64(6)
    np.testing.assert_array_equal(wide, bits.astype(np.float64) / 2**53)


def test_integers_of_the_reference():
    out = np.full(514, -99)
    random.integers[5, 64](out, *KEY, np.int64(-7), np.uint64(1000))
    want = [-7 + (((int(h) << 32) + int(w)) * 1000 >> 64) for h, w in words(514, 2)]
    np.testing.assert_array_equal(out, want)


def test_normal_of_the_reference():
    out = np.full(1028, np.nan, np.float32)
    random.normal_float32[5, 64](out, *KEY, *np.float32([1, 2]))
    a, b = words(1028, 4).reshape(-1, 2).astype(np.float64).T
    radius, turn = np.sqrt(-2 * np.log((a + 0.5) / 2**32)), np.pi / 2 * (b / 2**30) - np.pi / 4
    want = 1 + 2 * np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1).ravel()
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    wide = np.full(514, np.nan)
    random.normal_float64[5, 64](wide, *KEY, 0.0, 1.0)
    assert abs(wide.mean()) < 0.15 and abs(wide.std() - 1) < 0.1
    assert len(np.unique(wide)) == 514


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_are_those_of_the_cpu(shape):
    for dtype in FLOATS:
        agree("Uniform", np.empty(shape, dtype), low=-1.0, high=2.0, layouts=ONCE, **DRAW)
    for dtype in (np.int64, np.uint8, np.bool_, np.float32):
        agree("Integers", np.empty(shape, dtype), low=0, high=2, layouts=ONCE, **DRAW)
    agree("Integers", np.empty(shape, np.int64), low=-(2**63), high=2**63 - 1, layouts=ONCE, **DRAW)


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_agrees_with_the_cpu(dtype):
    agree("Normal", np.empty((5, 7), dtype), mean=1.0, std=2.0, exact=False, **DRAW)


def test_choices_agree_with_the_cpu():
    p = np.linspace(0, 1, 15).reshape(3, 5)
    for dtype in FLOATS:
        agree("Bernoulli", p.astype(dtype), **DRAW)
    agree("Permutation", np.empty(100, np.int64), layouts=ONCE, **DRAW)
    agree("Multinomial", p.astype(np.float32), num_samples=3, replacement=False, **DRAW)
    agree("Multinomial", p.astype(np.float32)[1], num_samples=9, replacement=True, **DRAW)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, np.nan])
def test_probabilities_are_checked(wrong):
    with pytest.raises(ArgumentError, match="outside .0, 1."):
        run_kernel("cuda", "Bernoulli", on_device(np.float32([0.5, wrong])), **DRAW)


def room(size, dtype=np.float32):
    return np.full(size, 77, dtype)


CASES = [
    Case("uniform float32", random.uniform_float32,
         lambda: [room(68), *KEY, *np.float32([0, 1, 1]), np.uint64(8), np.float32(2.0**-24)], 1, 32),
    Case("uniform float64", random.uniform_float64, lambda: [room(34, np.float64), *KEY, 0.0, 1.0, 1.0], 1, 32),
    Case("normal float32", random.normal_float32, lambda: [room(68), *KEY, *np.float32([0, 1])], 1, 32),
    Case("normal float64", random.normal_float64, lambda: [room(34, np.float64), *KEY, 0.0, 1.0], 1, 32),
    Case("integers", random.integers, lambda: [room(34, np.int64), *KEY, np.int64(-5), np.uint64(9)], 1, 32),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
