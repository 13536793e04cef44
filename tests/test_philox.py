"""Philox against published vectors, and the loops over its blocks against a second implementation."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from checks import assert_close, assert_same
from numba import njit
from philox_reference import philox_reference, words_reference

import miniflow as flow
from miniflow.backends.cpu import random as kernels
from miniflow.formulas import philox
from miniflow.nn.functional import dropout

# counter, key, output: the Random123 distribution's tests/kat_vectors for philox4x32 with 10 rounds
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@njit
def compiled_philox(c0, c1, c2, c3, k0, k1):
    return philox.philox4x32(c0, c1, c2, c3, k0, k1)


@njit
def compiled_below(high, low, bound):
    return philox.below(high, low, bound)


@njit
def compiled_normal64(a, b, c, d):
    return philox.normal64(a, b, c, d)


@pytest.mark.parametrize("counter, key, expected", KNOWN_ANSWERS)
def test_philox_known_answers(counter, key, expected):
    words = [np.uint64(int(w, 16)) for w in f"{counter} {key}".split()]
    wanted = [int(w, 16) for w in expected.split()]
    assert [int(w) for w in compiled_philox(*words)] == wanted
    assert philox_reference([int(w) for w in words[:4]], [int(w) for w in words[4:]]) == wanted


def test_below_is_the_high_half_of_the_product(seed):
    draw = np.random.default_rng(seed)
    cases = [(2**64 - 1, 2**64 - 1), (2**64 - 1, 1), (0, 2**64 - 1), (2**63, 10), (2**64 - 1, 2**33 + 1)]
    cases += [tuple(int(v) for v in draw.integers(0, 2**64, 2, np.uint64)) for _ in range(200)]
    for bits, bound in cases:
        high, low = np.uint64(bits >> 32), np.uint64(bits % 2**32)
        assert int(compiled_below(high, low, np.uint64(bound))) == bits * bound >> 64


def drawn(kernel, like, **options):
    """What a kernel draws for an array like this."""
    out = np.empty_like(like)
    kernel(out, like, **options)
    return out


@pytest.fixture(params=["fill_uniform32", "fill_uniform32_by_numpy"])
def loop_of_uniform32(request, monkeypatch):
    """The loop that draws uniform float32 numbers in a test."""
    monkeypatch.setattr(kernels.first_numbers, "loop", lambda size: getattr(kernels, request.param))


def test_numpy_draws_the_first_numbers_until_the_loop_is_there(monkeypatch):
    compiled = SimpleNamespace(signatures=[])
    monkeypatch.setattr(kernels, "fill_uniform32", compiled)
    first = kernels.FirstNumbers()
    sizes = [100, 3 * 2**17, 2**18, 100]
    found = [first.loop(size) is kernels.fill_uniform32_by_numpy for size in sizes]
    assert found == [True, True, False, True] and first.left == 2**17 - 2 * 2**14
    calls = [first.loop(1) for _ in range(8)]
    assert calls == 6 * [kernels.fill_uniform32_by_numpy] + 2 * [compiled], "small draws count too"
    compiled.signatures.append("there")
    assert kernels.FirstNumbers().loop(1) is compiled


@pytest.mark.usefixtures("loop_of_uniform32")
@pytest.mark.parametrize("offset, gen_seed", [(0, 0), (5, 2**64 - 3), (2**40, 123456789012345)])
def test_elements_are_the_words_of_the_blocks(offset, gen_seed):
    words = words_reference(gen_seed, offset, 5)
    like = np.empty(19, np.float32)
    got = drawn(kernels.uniform, like, low=0.0, high=1.0, seed=gen_seed, offset=offset)
    assert_same(got, ((words >> np.uint64(8)) * 2.0**-24).astype(np.float32).ravel()[:19])
    got = drawn(kernels.uniform, np.empty(9), low=0.0, high=1.0, seed=gen_seed, offset=offset)
    pairs = (words[:, 0::2] >> np.uint64(5)) * 2.0**26 + (words[:, 1::2] >> np.uint64(6))
    assert_same(got, (pairs * 2.0**-53).ravel()[:9])
    got = drawn(kernels.integers, np.empty(9, np.int64), low=-3, high=8, seed=gen_seed, offset=offset)
    wide = [(int(a) << 32 | int(b)) * 11 >> 64 for a, b in words.reshape(-1, 2)]
    assert_same(got, np.array(wide[:9]) - 3)


@pytest.mark.usefixtures("loop_of_uniform32")
def test_float16_and_bfloat16_keep_the_top_bits():
    words = words_reference(1, 0, 4).ravel()
    for kind, bits in ((flow.float16, 11), (flow.bfloat16, 8)):
        got = flow.rand(16, dtype=kind, generator=flow.Generator().manual_seed(1))
        assert_same(got, ((words >> np.uint64(32 - bits)) * 2.0**-bits).astype(kind.numpy))
        assert float(flow.rand(100_000, dtype=kind).float().max().item()) < 1.0


def test_normals_are_box_muller():
    words = words_reference(4, 7, 500)
    u = words.astype(np.float64)
    for a, b, columns in ((u[:, 0], words[:, 1], (0, 1)), (u[:, 2], words[:, 3], (2, 3))):
        radius = np.sqrt(-2 * np.log((a + 0.5) * 2.0**-32))
        quadrant, angle = b >> np.uint64(30), (b % np.uint64(2**30)) * 2.0**-30 * np.pi / 2 - np.pi / 4
        angle = angle + quadrant * np.pi / 2
        got = drawn(kernels.normal, np.empty((500, 4), np.float32), mean=0.0, std=1.0, seed=4, offset=7)
        near_zero = 2e-5 * np.maximum(
            1, 1 / np.maximum(radius, 1e-3)
        )  # u near 1 has few float32 digits of its logarithm
        assert (np.abs(got[:, columns[0]] - radius * np.cos(angle)) < near_zero).all()
        assert (np.abs(got[:, columns[1]] - radius * np.sin(angle)) < near_zero).all()


def test_normal64_is_as_accurate_as_libm(seed):
    draw = np.random.default_rng(seed)
    for words in [
        *draw.integers(0, 2**32, (300, 4), np.uint64),
        np.zeros(4, np.uint64),
        np.full(4, 2**32 - 1, np.uint64),
    ]:
        a, b, c, d = (int(w) for w in words)
        u = ((a >> 5 << 26 | b >> 6) * 2.0**-53) + 2.0**-54
        angle = ((c % 2**30 << 23 | d >> 9) * 2.0**-53 - 0.5 + (c >> 30)) * math.pi / 2
        radius = math.sqrt(-2 * math.log(u))
        assert_close(
            compiled_normal64(*words), [radius * math.cos(angle), radius * math.sin(angle)], rtol=0, atol=4e-15
        )


@pytest.mark.usefixtures("loop_of_uniform32")
@pytest.mark.parametrize("dtype", [flow.float32, flow.float64])
def test_parts_have_the_bits_of_the_whole(monkeypatch, dtype):
    def draws():
        generator = flow.Generator()
        generator.manual_seed(11)
        x = flow.ones(4127, dtype=dtype)
        return [
            flow.rand(4127, dtype=dtype, generator=generator),
            flow.randn(4127, dtype=dtype, generator=generator),
            flow.randint(-5, 995, (4127,), generator=generator),
            dropout(x, 0.5, generator=generator),
        ]

    def in_parts(work, items, elements, *args):
        for start, stop in ((700, items), (0, 1), (1, 700)):
            work(start, stop, *args)

    whole = draws()
    monkeypatch.setattr(kernels, "share", in_parts)
    for part, expected in zip(draws(), whole, strict=True):
        assert_same(part, expected.numpy())
