"""Philox against published vectors and a second implementation; draws against their distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from checks import assert_close, assert_same, check_op
from numba import njit

import miniflow as flow
from miniflow import philox
from miniflow.backends.cpu import random as kernels
from miniflow.dispatch import call
from miniflow.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from miniflow.ops.dropout import dropout
from miniflow.ops.generator import Generator, default_generator
from miniflow.ops.random import Integers, Normal, Uniform

N = 200_000  # draws for statistics: a relative error of 5 / sqrt(N) = 1.1 % is a deviation of 5 sigma

# counter, key, output: the Random123 distribution's tests/kat_vectors for philox4x32 with 10 rounds
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def philox_reference(counter: list[int], key: list[int]) -> list[int]:
    """The paper's rounds in Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b % 2**32, a >> 32 ^ c[3] ^ k[1], a % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def words_reference(seed: int, offset: int, blocks: int, first: int = 0) -> np.ndarray:
    """The words of a draw, shape (blocks, 4)."""
    split = [[x % 2**32, x >> 32] for x in (offset, seed)]
    rows = [philox_reference([i % 2**32, i >> 32, *split[0]], split[1]) for i in range(first, first + blocks)]
    return np.array(rows, np.uint64).reshape(blocks, 4)


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


@pytest.mark.parametrize("offset, gen_seed", [(0, 0), (5, 2**64 - 3), (2**40, 123456789012345)])
def test_elements_are_the_words_of_the_blocks(offset, gen_seed):
    words = words_reference(gen_seed, offset, 5)
    like = np.empty(19, np.float32)
    got = kernels.uniform(like, low=0.0, high=1.0, seed=gen_seed, offset=offset)
    assert_same(got, ((words >> np.uint64(8)) * 2.0**-24).astype(np.float32).ravel()[:19])
    got = kernels.uniform(np.empty(9), low=0.0, high=1.0, seed=gen_seed, offset=offset)
    pairs = (words[:, 0::2] >> np.uint64(5)) * 2.0**26 + (words[:, 1::2] >> np.uint64(6))
    assert_same(got, (pairs * 2.0**-53).ravel()[:9])
    got = kernels.integers(np.empty(9, np.int64), low=-3, high=8, seed=gen_seed, offset=offset)
    wide = [(int(a) << 32 | int(b)) * 11 >> 64 for a, b in words.reshape(-1, 2)]
    assert_same(got, np.array(wide[:9]) - 3)


def test_float16_and_bfloat16_keep_the_top_bits():
    words = words_reference(1, 0, 4).ravel()
    for kind, bits in ((flow.float16, 11), (flow.bfloat16, 8)):
        got = flow.rand(16, dtype=kind, generator=generator(1))
        assert_same(got, ((words >> np.uint64(32 - bits)) * 2.0**-bits).astype(kind.numpy))
        assert float(flow.rand(N, dtype=kind).float().max().item()) < 1.0


def test_normals_are_box_muller():
    words = words_reference(4, 7, 500)
    u = words.astype(np.float64)
    for a, b, columns in ((u[:, 0], words[:, 1], (0, 1)), (u[:, 2], words[:, 3], (2, 3))):
        radius = np.sqrt(-2 * np.log((a + 0.5) * 2.0**-32))
        quadrant, angle = b >> np.uint64(30), (b % np.uint64(2**30)) * 2.0**-30 * np.pi / 2 - np.pi / 4
        angle = angle + quadrant * np.pi / 2
        got = kernels.normal(np.empty((500, 4), np.float32), mean=0.0, std=1.0, seed=4, offset=7)
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


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_serial_and_parallel_loops_agree_bit_for_bit(kind):
    size = 4 * 1031
    key = kernels.name_of_draw(11, 2)
    suffix = "32" if kind is np.float32 else "64"
    zero, one = kind(0), kind(1)
    shift = (np.uint64(8), np.float32(2.0**-24)) if kind is np.float32 else ()
    loops = [
        (getattr(kernels, f"fill_uniform{suffix}"), kind, (zero, one, one, *shift)),
        (getattr(kernels, f"fill_normal{suffix}"), kind, (zero, one)),
        (kernels.fill_integers, np.int64, (np.int64(-5), np.uint64(1000))),
    ]
    for fill, element, arguments in loops:
        serial, parallel = np.full(size, 77, element), np.full(size, 78, element)
        fill.serial(serial, *key, *arguments)
        fill.parallel(parallel, *key, *arguments)
        assert_same(parallel, serial)
    x = np.random.default_rng(0).standard_normal(size).astype(kind)
    results = []
    for run in (kernels.drop.serial, kernels.drop.parallel):
        y, keep = np.full(size, np.nan, kind), np.zeros(size, np.bool_)
        run(x, y, keep, *key, np.uint64(0), np.uint64(2**31), kind(2))
        dx = np.full(size, np.nan, kind)
        (kernels.scale_kept.serial if not results else kernels.scale_kept.parallel)(x, keep, dx, kind(2))
        assert_same(dx, y)
        results.append((y, keep))
    assert_same(results[0][0], results[1][0])
    assert_same(results[0][1], results[1][1])


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_element_i_does_not_depend_on_the_size(kind):
    kind = getattr(flow, kind)
    for function in (flow.rand, flow.randn):
        long = function(4099, dtype=kind, generator=generator(3))
        for size in (0, 1, 2, 3, 4, 5, 1023, 1024, 1025):
            assert_same(function(size, dtype=kind, generator=generator(3)), long._array[:size])
        assert_same(function(3, 5, 7, dtype=kind, generator=generator(3)), long._array[:105].reshape(3, 5, 7))


def test_large_draws_start_as_small_ones():
    size = 300_001  # above the switch to the parallel loops
    for function in (flow.rand, flow.randn, lambda n, generator: flow.randint(1000, (n,), generator=generator)):
        large = function(size, generator=generator(8))
        assert large.shape == (size,)
        assert_same(function(1001, generator=generator(8)), large._array[:1001])
    x = flow.ones(size)
    large = dropout(x, 0.3, generator=generator(8))
    assert_same(dropout(x[:1001], 0.3, generator=generator(8)), large._array[:1001])


def moments(x) -> list[float]:
    x = np.asarray(x._array, np.float64).ravel()
    return [x.mean(), x.std(), (x**3).mean(), (x**4).mean(), (x[::2] * x[1::2]).mean()]


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_distributions(seed, kind):
    kind = getattr(flow, kind)
    g = generator(seed)
    x = flow.rand(N, dtype=kind, generator=g)
    half_cell = 2.0**-9 if kind is flow.bfloat16 else 0  # 8 bits, cut off: the mean is half a step low
    assert_close(moments(x)[:2], [0.5 - half_cell, 12**-0.5], rtol=0, atol=0.004)
    assert 0 <= x.min().item() < 0.001 and 0.99 < x.max().item() < 1
    counts = np.histogram(x.double().numpy(), 16, (0, 1))[0]
    assert ((counts - N / 16) ** 2 / (N / 16)).sum() < 50  # chi squared with 15 degrees: 1e-5 of chance
    z = flow.randn(N, dtype=kind, generator=g)
    got = moments(z)
    assert_close(got, [0, 1, 0, 3, 0], rtol=0, atol=0.12)
    assert abs(got[0]) < 0.012 and abs(got[1] - 1) < 0.008 and abs(got[4]) < 0.02
    inside = (z.double().abs() < 1).double().mean().item()
    assert abs(inside - 0.682689) < 0.006


def test_draws_differ_by_seed_and_offset():
    g = generator(1)
    a, b = flow.rand(1000, generator=g), flow.rand(1000, generator=g)
    c = flow.rand(1000, generator=generator(2))
    for x, y in ((a, b), (a, c), (b, c)):
        assert abs(np.corrcoef(x.numpy(), y.numpy())[0, 1]) < 0.15
        assert (x.numpy() == y.numpy()).sum() < 3


def test_uniform_bounds_are_half_open():
    for kind in (flow.float16, flow.bfloat16, flow.float32, flow.float64):
        x = flow.empty(N, dtype=kind).uniform_(-3, 7.0, generator=generator(0)).double()
        assert -3 <= x.min().item() < -2.9 and 6.8 < x.max().item() < 7
        narrow = flow.empty(2000, dtype=kind).uniform_(1, 1.01, generator=generator(0))
        assert narrow.min().item() >= 1 and narrow.max().item() < float(np.array(1.01).astype(kind.numpy))
        assert_same(flow.empty(3, dtype=kind).uniform_(2, 2), np.full(3, 2, kind.numpy))


def test_normal_mean_and_std():
    x = flow.normal(3.0, 2.0, (N,), generator=generator(0))
    assert_close([x.mean().item(), x.std().item()], [3, 2], rtol=0, atol=0.03)
    mean, std = flow.tensor([[0.0], [100.0]], dtype=flow.float64, requires_grad=True), flow.tensor([1.0, 2.0, 0.0])
    y = flow.normal(mean, std.double(), generator=generator(5))
    z = flow.randn(2, 3, dtype=flow.float64, generator=generator(5))
    assert_close(y, mean.detach().numpy() + std.numpy() * z.numpy())
    assert not y.requires_grad
    assert_close(
        flow.normal(mean, 2.0, generator=generator(5)), mean.detach().numpy() + 2 * z.numpy()[0].take([0, 1])[:, None]
    )
    assert_close(
        flow.normal(1.0, std, generator=generator(5)), 1 + std.numpy() * flow.randn(3, generator=generator(5)).numpy()
    )


def test_randint(seed):
    x = flow.randint(-3, 4, (7000,), generator=generator(seed))
    assert x.dtype is flow.int64
    counts = np.bincount(x.numpy() + 3)
    assert len(counts) == 7 and ((counts - 1000) ** 2 / 1000).sum() < 40
    assert flow.randint(2, (3,), dtype=flow.uint8).dtype is flow.uint8
    assert flow.randint(high=5, size=(2, 2)).shape == (2, 2)
    full = flow.randint(-(2**63), 2**63 - 1, (5000,), generator=generator(seed)).numpy() / 2.0**63
    assert abs(full.mean()) < 0.05 and full.min() < -0.99 and full.max() > 0.99
    assert flow.randint_like(flow.zeros(2, 3), 4, 5).tolist() == [[4.0] * 3] * 2
    assert_same(flow.randint(7, (1,), generator=generator(0)), flow.randint(0, 7, (1,), generator=generator(0)).numpy())


def test_randperm(seed):
    for n in (0, 1, 2, 3, 5, 1000):
        p = flow.randperm(n, generator=generator(seed))
        assert p.dtype is flow.int64
        assert_same(np.sort(p.numpy()), np.arange(n))
    first = [tuple(flow.randperm(3, generator=g).tolist()) for g in [generator(seed)] for _ in range(6000)]
    counts = np.unique(np.array(first), axis=0, return_counts=True)[1]
    assert len(counts) == 6 and ((counts - 1000) ** 2 / 1000).sum() < 35
    assert_same(flow.randperm(50, generator=generator(2)), flow.randperm(50, generator=generator(2)).numpy())
    assert flow.randperm(5, dtype=flow.int32).dtype is flow.int32


def test_bernoulli(seed):
    p = np.linspace(0, 1, 11)
    for kind in (flow.float32, flow.float64, flow.float16, flow.bfloat16):
        x = flow.bernoulli(flow.tensor(np.tile(p, (20_000, 1)), dtype=kind), generator=generator(seed))
        assert x.dtype is kind
        assert set(np.unique(x.float().numpy())) == {0.0, 1.0}
        assert_close(x.double().numpy().mean(0), p, rtol=0, atol=0.02)
        assert x.double().numpy().mean(0)[0] == 0 and x.double().numpy().mean(0)[-1] == 1
    y = flow.bernoulli(flow.zeros(N), 0.25, generator=generator(seed))
    assert abs(y.mean().item() - 0.25) < 0.01
    z = flow.zeros(N).bernoulli_(0.75, generator=generator(seed))
    assert abs(z.mean().item() - 0.75) < 0.01


def test_multinomial_with_replacement(seed):
    weights = np.array([0, 1, 0, 3, 6, 0.0])
    x = flow.multinomial(flow.tensor(weights).float(), 50_000, replacement=True, generator=generator(seed))
    assert x.dtype is flow.int64 and x.shape == (50_000,)
    assert_close(np.bincount(x.numpy(), minlength=6) / 50_000, weights / 10.0, rtol=0, atol=0.012)
    rows = flow.multinomial(flow.tensor([[1.0, 0.0], [0.0, 5.0]]), 9, replacement=True)
    assert_same(rows, np.repeat([[0], [1]], 9, axis=1))


def test_multinomial_without_replacement(seed):
    weights = np.array([1.0, 2.0, 0.0, 5.0])
    rows = flow.tensor(np.tile(weights, (20_000, 1)))
    x = flow.multinomial(rows, 3, generator=generator(seed)).numpy()
    assert (np.sort(x, axis=1) == [0, 1, 3]).all()
    pairs = np.zeros((4, 4))
    np.add.at(pairs, (x[:, 0], x[:, 1]), 1 / len(x))
    p = weights / weights.sum()
    expected = np.where(np.eye(4), 0, p[:, None] * p / (1 - p[:, None]))  # drawn one after the other
    assert_close(pairs, expected, rtol=0, atol=0.02)
    assert flow.multinomial(flow.tensor([0.0, 1.0]), 1).tolist() == [1]


def test_multinomial_never_picks_a_category_of_no_weight():
    tiny = np.array([0, 1e-30, 0, 1e-30, 0])
    x = flow.multinomial(flow.tensor(tiny), 10_000, replacement=True, generator=generator(0)).numpy()
    assert set(x.tolist()) == {1, 3}


@pytest.mark.parametrize("x", [np.zeros((2, 0)), np.zeros(())], ids=["zero-size", "0-dim"])
def test_odd_shapes(x):
    like = flow.tensor(x)
    for function in (flow.rand_like, flow.randn_like, lambda t: flow.randint_like(t, 3), dropout, flow.bernoulli):
        assert function(like).shape == x.shape
        assert function(like).dtype is like.dtype
    assert flow.rand(*x.shape).dtype is flow.float32


@pytest.mark.parametrize("p", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("shape", [(5, 7), (4,), (3, 1, 2), ()])
def test_dropout_is_differentiable_to_any_order(p, shape):
    x = np.random.default_rng(1).uniform(0.5, 2, shape)
    keep = words_reference(9, 0, -(-x.size // 4)).ravel()[: x.size].reshape(shape) >= round(p * 2**32)
    check_op(
        lambda x: dropout(x, p, generator=generator(9)),
        [x],
        lambda x: np.where(keep, x / (1 - p) if p < 1 else 0.0, 0.0),
        dtypes=("float32", "float64", "float16", "bfloat16"),
        gradient="dense" if keep.mean() > 0.5 else "sparse" if keep.any() else "zero",
    )


def test_dropout_within_a_nonlinear_function_has_a_third_derivative():
    x = np.random.default_rng(1).uniform(0.5, 2, (3, 5))
    keep = words_reference(2, 0, 4).ravel()[:15].reshape(3, 5) >= round(0.25 * 2**32)

    def cube(x):
        y = dropout(x, 0.25, generator=generator(2))
        return y * y * y

    check_op(cube, [x], lambda x: np.where(keep, (x / 0.75) ** 3, 0), third=True)


def test_dropout_statistics_and_modes(seed):
    x = flow.ones(N)
    y = dropout(x, 0.2, generator=generator(seed)).numpy()
    assert set(np.unique(y).tolist()) == {0.0, 1.25}
    assert abs((y == 0).mean() - 0.2) < 0.006
    assert dropout(x, 0.2, training=False) is x and dropout(x, 0.0) is x
    assert_same(dropout(flow.tensor([math.inf, math.nan]), 1.0), [0.0, 0.0])
    z = flow.ones(10)
    assert dropout(z, 0.5, inplace=True, generator=generator(1)) is z
    assert_same(z, dropout(flow.ones(10), 0.5, generator=generator(1)).numpy())


def test_dropout_in_place_has_the_gradient_of_dropout():
    results = []
    for inplace in (False, True):
        x = flow.arange(1.0, 8.0, requires_grad=True)
        y = dropout(x * 2, 0.5, inplace=inplace, generator=generator(1))
        (y * y).sum().backward()
        results.append(x.grad.numpy())
    assert results[0].any()
    assert_same(results[1], results[0])


def test_filling_in_place():
    x = flow.zeros(4, 6)
    view = x[:, 1::2]
    assert view.normal_(generator=generator(0)) is view
    assert_same(view, flow.randn(4, 3, generator=generator(0)).numpy())
    assert (x.numpy()[:, ::2] == 0).all() and x.version == 1
    leaf = flow.zeros(3, requires_grad=True)
    with pytest.raises(AutogradError, match="uniform_: a leaf tensor that requires grad"):
        leaf.uniform_()
    with flow.no_grad():
        assert leaf.uniform_(1, 2).requires_grad


# generators


def test_manual_seed_repeats():
    flow.manual_seed(42)
    a = [flow.rand(3), flow.randn(3), flow.randperm(9), dropout(flow.ones(9))]
    flow.manual_seed(42)
    b = [flow.rand(3), flow.randn(3), flow.randperm(9), dropout(flow.ones(9))]
    for x, y in zip(a, b, strict=True):
        assert_same(x, y.numpy())


def test_generator_state():
    g = generator(7)
    flow.rand(3, generator=g)
    state = g.get_state()
    assert state.dtype is flow.uint8 and state.shape == (16,)
    a = flow.rand(5, generator=g)
    assert_same(flow.rand(5, generator=g.set_state(state)), a.numpy())
    assert_same(flow.rand(5, generator=Generator().set_state(state)), a.numpy())
    assert g.initial_seed() == 7 and "seed=7" in repr(g)
    assert Generator().initial_seed() == 67280421310721
    assert generator(-1).initial_seed() == 2**64 - 1
    assert g.seed() == g.initial_seed() != Generator().seed()


def test_default_generator_state():
    state = flow.get_rng_state()
    a = flow.rand(5)
    flow.set_rng_state(state)
    assert_same(flow.rand(5), a.numpy())
    assert flow.manual_seed(3) is default_generator and flow.initial_seed() == 3
    own = Generator()
    before = flow.get_rng_state()
    flow.rand(3, generator=own)
    assert_same(flow.get_rng_state(), before.numpy())


def test_two_threads_never_share_a_draw():
    from concurrent.futures import ThreadPoolExecutor

    g = generator(0)
    with ThreadPoolExecutor(4) as pool:
        draws = list(pool.map(lambda _: g.next_draw(), range(2000)))
    assert sorted(draws) == [(0, i) for i in range(2000)]


# errors


ERRORS = [
    (lambda: flow.rand(2, dtype=flow.int64), DTypeError, "uniform: got miniflow.int64; expected a floating dtype"),
    (lambda: flow.randn(-2), ShapeError, r"empty: got sizes \(-2,\); expected sizes of at least 0"),
    (lambda: flow.randn(2, dtype=flow.bool_), DTypeError, "normal: got miniflow.bool; expected a floating dtype"),
    (lambda: flow.zeros(2).uniform_(1, 0), ArgumentError, "uniform: got low=1.0, high=0.0; expected finite bounds"),
    (lambda: flow.zeros(2).uniform_(0, math.inf), ArgumentError, "high=inf; expected finite bounds"),
    (lambda: flow.zeros(2).uniform_(math.nan, 1), ArgumentError, "low=nan"),
    (lambda: flow.zeros(2).normal_(0, -1), ArgumentError, "normal: got std=-1.0; expected .* at least 0"),
    (lambda: flow.normal(flow.zeros(2), flow.tensor([1.0, -1.0])), ArgumentError, "std with negative elements"),
    (lambda: flow.normal(0.0, 1.0), ArgumentError, "normal: expected a size if mean and std are numbers"),
    (lambda: flow.normal(flow.zeros(2), 1.0, (2,)), ArgumentError, "and none if one of them is a tensor"),
    (lambda: flow.normal(flow.zeros(2), flow.zeros(3)), ShapeError, r"normal: shapes \(2,\) and \(3,\)"),
    (lambda: flow.randint(5, 5, (2,)), ArgumentError, "randint: got low=5, high=5; expected low < high"),
    (lambda: flow.randint(5), ArgumentError, "randint: got no size"),
    (
        lambda: flow.randint(300, (2,), dtype=flow.uint8),
        DTypeError,
        "high=300 for miniflow.uint8; expected values from 0 to 255",
    ),
    (lambda: flow.randint(-1, 2, (2,), dtype=flow.uint8), DTypeError, "low=-1, .*expected values from 0 to 255"),
    (lambda: flow.randperm(-1), ArgumentError, "randperm: got n=-1"),
    (lambda: flow.randperm(129 + 128, dtype=flow.uint8), ArgumentError, "randperm: got n=257 for miniflow.uint8"),
    (lambda: flow.bernoulli(flow.tensor([0.5, 1.5])), ArgumentError, r"bernoulli: got probabilities outside \[0, 1\]"),
    (lambda: flow.bernoulli(flow.tensor([math.nan])), ArgumentError, "or nan"),
    (lambda: flow.bernoulli(flow.tensor([0.5]), 2), ArgumentError, "bernoulli: got p=2"),
    (lambda: flow.bernoulli(flow.tensor([1])), DTypeError, "bernoulli: got miniflow.int64"),
    (
        lambda: flow.multinomial(flow.tensor([1.0, -1.0]), 1),
        ArgumentError,
        "multinomial: got weights that are negative",
    ),
    (lambda: flow.multinomial(flow.tensor([1.0, math.inf]), 1), ArgumentError, "infinite or nan"),
    (lambda: flow.multinomial(flow.zeros(3), 1, replacement=True), ArgumentError, "expected at least 1 in each row"),
    (lambda: flow.multinomial(flow.tensor([0.0, 1.0]), 2), ArgumentError, "too few categories of positive weight"),
    (lambda: flow.multinomial(flow.ones(3), 4), ArgumentError, "num_samples=4 of 3 categories"),
    (
        lambda: flow.multinomial(flow.ones(3), 0, True),
        ArgumentError,
        "num_samples=0 of 3 categories; expected at least 1",
    ),
    (lambda: flow.multinomial(flow.ones(1, 2, 3), 1), ShapeError, r"multinomial: got weights of shape \(1, 2, 3\)"),
    (lambda: flow.multinomial(flow.tensor([1, 2]), 1), DTypeError, "multinomial: got miniflow.int64"),
    (lambda: dropout(flow.ones(2), 1.5), ArgumentError, r"dropout: got p=1.5; expected a probability from 0 to 1"),
    (lambda: dropout(flow.tensor([1, 2])), DTypeError, "dropout: got miniflow.int64; expected a floating dtype"),
    (lambda: flow.manual_seed(2**64), ArgumentError, "manual_seed: got 18446744073709551616; expected an integer from"),
    (
        lambda: flow.set_rng_state(flow.zeros(3)),
        ArgumentError,
        r"set_state: .*expected the uint8 tensor of shape \(16,\)",
    ),
]


@pytest.mark.parametrize("action, error, message", ERRORS)
def test_errors(action, error, message):
    with pytest.raises(error, match=message):
        action()


def test_ops_announce_their_results():
    for op, kind, attrs in (
        (Uniform, np.float16, {"low": 0.0, "high": 1.0}),
        (Normal, np.float64, {"mean": 0.0, "std": 1.0}),
        (Integers, np.int32, {"low": 0, "high": 9}),
    ):
        like = flow.from_numpy(np.empty((3, 5), kind).T)
        got = call(op, like, **attrs, seed=1, offset=2)
        shape, numpy_dtype = op.infer(like._array, **attrs, seed=1, offset=2)
        assert (got.shape, got._array.dtype) == (shape, numpy_dtype) == ((5, 3), kind)
        assert_same(got, call(op, flow.from_numpy(np.empty((5, 3), kind)), **attrs, seed=1, offset=2)._array)
