"""Random tensors against their distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from checks import as_array, assert_close, assert_same, on_device

import miniflow as flow
from miniflow.backends.cpu import random as kernels
from miniflow.dispatch.dispatcher import call
from miniflow.errors import ArgumentError, ArgumentTypeError, AutogradError, DTypeError, ShapeError
from miniflow.ops.dropout import dropout
from miniflow.ops.generator import Generator
from miniflow.ops.random import Integers, Normal, Uniform

N = 200_000  # draws for statistics: a relative error of 5 / sqrt(N) = 1.1 % is a deviation of 5 sigma


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_element_i_does_not_depend_on_the_size(kind):
    kind = getattr(flow, kind)
    for function in (flow.rand, flow.randn):
        long = function(4099, dtype=kind, generator=generator(3))
        for size in (0, 1, 2, 3, 4, 5, 1023, 1024, 1025):
            assert_same(function(size, dtype=kind, generator=generator(3)), as_array(long)[:size])
        assert_same(function(3, 5, 7, dtype=kind, generator=generator(3)), as_array(long)[:105].reshape(3, 5, 7))


def test_large_draws_start_as_small_ones():
    size = 300_001  # above the switch to the parallel loops
    for function in (flow.rand, flow.randn, lambda n, generator: flow.randint(1000, (n,), generator=generator)):
        large = function(size, generator=generator(8))
        assert large.shape == (size,)
        assert_same(function(1001, generator=generator(8)), as_array(large)[:1001])
    x = flow.ones(size)
    large = dropout(x, 0.3, generator=generator(8))
    assert_same(dropout(x[:1001], 0.3, generator=generator(8)), as_array(large)[:1001])


def moments(x) -> list[float]:
    x = np.asarray(as_array(x), np.float64).ravel()
    return [x.mean(), x.std(), (x**3).mean(), (x**4).mean(), (x[::2] * x[1::2]).mean()]


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_distributions(seed, kind):
    kind = getattr(flow, kind)
    g = generator(seed)
    x = flow.rand(N, dtype=kind, generator=g)
    half_cell = 2.0**-9 if kind is flow.bfloat16 else 0  # 8 bits, cut off: the mean is half a step low
    assert_close(moments(x)[:2], [0.5 - half_cell, 12**-0.5], rtol=0, atol=0.004)
    assert 0 <= x.min().item() < 0.001 and 0.99 < x.max().item() < 1
    counts = np.histogram(x.double().cpu().numpy(), 16, (0, 1))[0]
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
        assert abs(np.corrcoef(x.cpu().numpy(), y.cpu().numpy())[0, 1]) < 0.15
        assert (x.cpu().numpy() == y.cpu().numpy()).sum() < 3


@pytest.mark.parametrize(
    ("kind", "most"),
    [(flow.uint8, 255), (flow.int8, 127), (flow.int64, 2**63 - 1), (flow.float32, 2**24), (flow.float16, 2**11)],
)
def test_random_integers_fill_what_the_dtype_holds(kind, most):
    drawn = flow.empty(N, dtype=kind).random_(generator=generator(0)).double().numpy()
    assert (drawn == np.floor(drawn)).all() and 0 <= drawn.min() < 0.05 * most and 0.95 * most < drawn.max() <= most
    few = flow.empty(N, dtype=kind).random_(3, 7, generator=generator(1)).double().numpy()
    assert set(few) == {3, 4, 5, 6} and set(flow.empty(N, dtype=kind).random_(2).double().tolist()) == {0, 1}


@pytest.mark.parametrize("rate", [0.5, 1.0, 4.0])
def test_exponential_numbers_have_their_quantiles(rate):
    drawn = np.sort(flow.empty(N, dtype=flow.float64).exponential_(rate, generator=generator(0)).numpy())
    share = 1 - np.exp(-rate * drawn)
    assert drawn.min() >= 0 and np.abs(share - np.arange(N) / N).max() < 1.95 / N**0.5  # Kolmogorov, p = 0.001


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
    assert_close(y, mean.detach().cpu().numpy() + std.cpu().numpy() * z.cpu().numpy())
    assert not y.requires_grad
    assert_close(
        flow.normal(mean, 2.0, generator=generator(5)),
        mean.detach().cpu().numpy() + 2 * z.cpu().numpy()[0].take([0, 1])[:, None],
    )
    assert_close(
        flow.normal(1.0, std, generator=generator(5)),
        1 + std.cpu().numpy() * flow.randn(3, generator=generator(5)).cpu().numpy(),
    )


def test_randint(seed):
    x = flow.randint(-3, 4, (7000,), generator=generator(seed))
    assert x.dtype is flow.int64
    counts = np.bincount(x.cpu().numpy() + 3)
    assert len(counts) == 7 and ((counts - 1000) ** 2 / 1000).sum() < 40
    assert flow.randint(2, (3,), dtype=flow.uint8).dtype is flow.uint8
    assert flow.randint(high=5, size=(2, 2)).shape == (2, 2)
    full = flow.randint(-(2**63), 2**63 - 1, (5000,), generator=generator(seed)).cpu().numpy() / 2.0**63
    assert abs(full.mean()) < 0.05 and full.min() < -0.99 and full.max() > 0.99
    assert flow.randint_like(flow.zeros(2, 3), 4, 5).tolist() == [[4.0] * 3] * 2
    assert_same(
        flow.randint(7, (1,), generator=generator(0)), flow.randint(0, 7, (1,), generator=generator(0)).cpu().numpy()
    )


def test_randperm(seed):
    for n in (0, 1, 2, 3, 5, 1000):
        p = flow.randperm(n, generator=generator(seed))
        assert p.dtype is flow.int64
        assert_same(np.sort(p.cpu().numpy()), np.arange(n))
    first = [tuple(flow.randperm(3, generator=g).tolist()) for g in [generator(seed)] for _ in range(6000)]
    counts = np.unique(np.array(first), axis=0, return_counts=True)[1]
    assert len(counts) == 6 and ((counts - 1000) ** 2 / 1000).sum() < 35
    assert_same(flow.randperm(50, generator=generator(2)), flow.randperm(50, generator=generator(2)).cpu().numpy())
    assert flow.randperm(5, dtype=flow.int32).dtype is flow.int32


def test_bernoulli(seed):
    p = np.linspace(0, 1, 11)
    for kind in (flow.float32, flow.float64, flow.float16, flow.bfloat16):
        x = flow.bernoulli(flow.tensor(np.tile(p, (20_000, 1)), dtype=kind), generator=generator(seed))
        assert x.dtype is kind
        assert set(np.unique(x.float().cpu().numpy())) == {0.0, 1.0}
        assert_close(x.double().cpu().numpy().mean(0), p, rtol=0, atol=0.02)
        assert x.double().cpu().numpy().mean(0)[0] == 0 and x.double().cpu().numpy().mean(0)[-1] == 1
    y = flow.bernoulli(flow.zeros(N), 0.25, generator=generator(seed))
    assert abs(y.mean().item() - 0.25) < 0.01
    z = flow.zeros(N).bernoulli_(0.75, generator=generator(seed))
    assert abs(z.mean().item() - 0.75) < 0.01


def test_multinomial_with_replacement(seed):
    weights = np.array([0, 1, 0, 3, 6, 0.0])
    x = flow.multinomial(flow.tensor(weights).float(), 50_000, replacement=True, generator=generator(seed))
    assert x.dtype is flow.int64 and x.shape == (50_000,)
    assert_close(np.bincount(x.cpu().numpy(), minlength=6) / 50_000, weights / 10.0, rtol=0, atol=0.012)
    rows = flow.multinomial(flow.tensor([[1.0, 0.0], [0.0, 5.0]]), 9, replacement=True)
    assert_same(rows, np.repeat([[0], [1]], 9, axis=1))


def test_multinomial_without_replacement(seed):
    weights = np.array([1.0, 2.0, 0.0, 5.0])
    rows = flow.tensor(np.tile(weights, (20_000, 1)))
    x = flow.multinomial(rows, 3, generator=generator(seed)).cpu().numpy()
    assert (np.sort(x, axis=1) == [0, 1, 3]).all()
    pairs = np.zeros((4, 4))
    np.add.at(pairs, (x[:, 0], x[:, 1]), 1 / len(x))
    p = weights / weights.sum()
    expected = np.where(np.eye(4), 0, p[:, None] * p / (1 - p[:, None]))  # drawn one after the other
    assert_close(pairs, expected, rtol=0, atol=0.02)
    assert flow.multinomial(flow.tensor([0.0, 1.0]), 1).tolist() == [1]


@pytest.mark.parametrize("u, category", [(0.0, 1), (0.25, 3), (np.nextafter(1.0, 0.0), 3), (1.0, 3)])
def test_multinomial_at_the_edges_of_categories(u, category):
    """u = 0 can be drawn, and u times the total may round up to it: neither may give a category of no weight."""
    weights = np.array([[0.0, 1.0, 0.0, 3.0, 0.0]])
    assert_same(kernels.inverse_cdf(weights, np.full((1, 2), u)), np.array([[category, category]]))


def test_multinomial_never_picks_a_category_of_no_weight():
    tiny = np.array([0, 1e-30, 0, 1e-30, 0])
    x = flow.multinomial(flow.tensor(tiny), 10_000, replacement=True, generator=generator(0)).cpu().numpy()
    assert set(x.tolist()) == {1, 3}


@pytest.mark.parametrize("x", [np.zeros((2, 0)), np.zeros(())], ids=["zero-size", "0-dim"])
def test_odd_shapes(x):
    like = flow.tensor(x)
    for function in (flow.rand_like, flow.randn_like, lambda t: flow.randint_like(t, 3), dropout, flow.bernoulli):
        assert function(like).shape == x.shape
        assert function(like).dtype is like.dtype
    assert flow.rand(*x.shape).dtype is flow.float32


def test_filling_in_place():
    x = flow.zeros(4, 6)
    view = x[:, 1::2]
    assert view.normal_(generator=generator(0)) is view
    assert_same(view, flow.randn(4, 3, generator=generator(0)).cpu().numpy())
    assert (x.cpu().numpy()[:, ::2] == 0).all() and x.version == 1
    leaf = flow.zeros(3, requires_grad=True)
    with pytest.raises(AutogradError, match="uniform_: a leaf tensor that requires grad"):
        leaf.uniform_()
    with flow.no_grad():
        assert leaf.uniform_(1, 2).requires_grad


# errors


ERRORS = [
    (lambda: flow.rand(2, dtype=flow.int64), DTypeError, "rand: got int64; expected a floating dtype"),
    (lambda: flow.randn(-2), ShapeError, r"randn: got sizes \(-2,\); expected sizes of at least 0"),
    (lambda: flow.randn(2, dtype=flow.bool), DTypeError, "randn: got bool; expected a floating dtype"),
    (lambda: flow.zeros(2).random_(3, 3), ArgumentError, "random_: got low=3, high=3; expected low < high"),
    (lambda: flow.zeros(2, dtype=flow.int8).random_(200), DTypeError, "random_: got low=0, high=200 for miniflow.int8"),
    (lambda: flow.zeros(2).random_(1.5), ArgumentTypeError, "random_: got from_=0 and to=1.5; expected integers"),
    (lambda: flow.zeros(2).exponential_("a"), ArgumentError, "exponential_: got lambd='a'; expected a positive rate"),
    (lambda: flow.rand(2, generator=3), ArgumentTypeError, "rand: got generator=3; expected a flow.Generator, or None"),
    (lambda: flow.zeros(2).exponential_(0), ArgumentError, "exponential_: got lambd=0; expected a positive rate"),
    (lambda: flow.zeros(2).uniform_(1, 0), ArgumentError, "uniform_: got low=1.0, high=0.0; expected finite bounds"),
    (lambda: flow.zeros(2).uniform_(0, math.inf), ArgumentError, "high=inf; expected finite bounds"),
    (lambda: flow.zeros(2).uniform_(math.nan, 1), ArgumentError, "low=nan"),
    (lambda: flow.zeros(2).normal_(0, -1), ArgumentError, "normal_: got std=-1.0; expected .* at least 0"),
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
    (lambda: flow.bernoulli(flow.tensor([1])), DTypeError, "bernoulli: got int64"),
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
    (lambda: flow.multinomial(flow.ones(1, 2, 3), 1), ShapeError, r"multinomial: got weights \(1, 2, 3\)"),
    (lambda: flow.multinomial(flow.tensor([1, 2]), 1), DTypeError, "multinomial: got int64"),
]


@pytest.mark.cpu_only("arguments are checked before a kernel is chosen")
def test_errors():
    for action, error, message in ERRORS:
        with pytest.raises(error, match=message):
            action()


def test_ops_announce_their_results():
    for op, kind, attrs in (
        (Uniform, np.float16, {"low": 0.0, "high": 1.0}),
        (Normal, np.float64, {"mean": 0.0, "std": 1.0}),
        (Integers, np.int32, {"low": 0, "high": 9}),
    ):
        like = on_device(np.empty((3, 5), kind).T)
        got = call(op, like, **attrs, seed=1, offset=2)
        shape, numpy_dtype = op.infer(like._array, **attrs, seed=1, offset=2)
        assert (got.shape, got._array.dtype) == (shape, numpy_dtype) == ((5, 3), kind)
        assert_same(got, call(op, on_device(np.empty((5, 3), kind)), **attrs, seed=1, offset=2))
