"""Initial values: their distributions, exact patterns and errors."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn import init
from miniflow.ops.generator import Generator


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def assert_uniform(x: flow.Tensor, bound: float) -> None:
    """Within [-bound, bound), both ends reached, and the right deviation: 5 sigma and more of room."""
    values = x.detach().double().cpu().numpy()
    assert -bound <= values.min() < -0.98 * bound and 0.98 * bound < values.max() <= bound
    assert_close([values.mean(), values.std()], [0, bound / 3**0.5], rtol=0, atol=0.03 * bound)


def assert_normal(x: flow.Tensor, std: float) -> None:
    values = x.detach().double().cpu().numpy() / std
    assert_close([values.mean(), values.std()], [0, 1], rtol=0, atol=0.05)
    assert_close((values**4).mean(), 3.0, rtol=0, atol=0.5)  # uniform numbers have 1.8


@pytest.mark.parametrize(
    "name, param, gain",
    [("linear", None, 1), ("conv2d", None, 1), ("conv_transpose3d", None, 1), ("sigmoid", None, 1),
     ("tanh", None, 5 / 3), ("relu", None, math.sqrt(2)), ("selu", None, 0.75),
     ("leaky_relu", None, math.sqrt(2 / 1.0001)),
     ("leaky_relu", 0.5, math.sqrt(2 / 1.25)), ("leaky_relu", 0, math.sqrt(2))],
)  # fmt: skip
def test_calculate_gain(name, param, gain):
    assert math.isclose(init.calculate_gain(name, param), gain)


def test_uniform_and_normal(seed):
    x = flow.empty(200, 100)
    assert init.uniform_(x, 2.0, 4.0, generator=generator(seed)) is x
    assert_uniform(x - 3, 1.0)
    assert init.normal_(x, 5.0, 2.0, generator=generator(seed)) is x
    assert_normal(x - 5, 2.0)


@pytest.mark.parametrize("kind", [flow.float16, flow.float32, flow.float64])
@pytest.mark.parametrize(
    "mean, std, a, b", [(0, 1, -2, 2), (0, 0.02, -2, 2), (1, 2, -3, 1.5), (0, 1, 2, 4), (0, 10, -1, 1)]
)
def test_trunc_normal(seed, kind, mean, std, a, b):
    x = (
        init.trunc_normal_(flow.empty(300, 100, dtype=kind), mean, std, a, b, generator=generator(seed))
        .double()
        .cpu()
        .numpy()
    )
    assert x.min() >= a and x.max() <= b
    normal = NormalDist(mean, std)
    low, high = normal.cdf(a), normal.cdf(b)
    for share in (0.1, 0.3, 0.5, 0.8):
        quantile = normal.inv_cdf(low + share * (high - low))
        assert abs((x <= quantile).mean() - share) < 0.02


def test_erfinv_inverts_erf():
    x = np.concatenate([np.linspace(-0.999, 0.999, 999), [1 - 1e-7, -1 + 1e-12, 0.0, 2.0**-30]])
    expected = [NormalDist().inv_cdf((v + 1) / 2) / math.sqrt(2) for v in x]
    assert_close(flow.erfinv(flow.tensor(x)), expected, rtol=1e-9, atol=1e-16)
    assert flow.erfinv(flow.tensor([1.0, -1.0])).tolist() == [math.inf, -math.inf]
    assert flow.erfinv(flow.tensor(1.5)).isnan()


def test_constants():
    assert_same(init.constant_(flow.empty(2, 3), 0.25), np.full((2, 3), 0.25, np.float32))
    assert_same(init.ones_(flow.empty(2, 3)), np.ones((2, 3), np.float32))
    assert_same(init.zeros_(flow.empty(3, dtype=flow.float64)), np.zeros(3))
    assert_same(init.eye_(flow.empty(3, 5)), np.eye(3, 5, dtype=np.float32))


@pytest.mark.parametrize("shape, groups", [((4, 3, 5), 1), ((3, 4, 3, 4), 1), ((6, 2, 3, 3), 3), ((2, 2, 1, 2, 3), 2)])
def test_dirac(shape, groups):
    expected = np.zeros(shape, np.float32)
    size = shape[0] // groups
    for g in range(groups):
        for d in range(min(size, shape[1])):
            expected[(g * size + d, d, *[n // 2 for n in shape[2:]])] = 1
    x = flow.full(shape, math.nan)
    assert init.dirac_(x, groups) is x
    assert_same(x, expected)


def test_fans():
    assert init._calculate_fan_in_and_fan_out(flow.empty(7, 11)) == (11, 7)
    assert init._calculate_fan_in_and_fan_out(flow.empty(7, 11, 3, 5)) == (165, 105)


def test_xavier(seed):
    x = flow.empty(60, 20, 5, 3)  # fan_in 300, fan_out 900
    assert_uniform(init.xavier_uniform_(x, gain=2.0, generator=generator(seed)), 2 * math.sqrt(6 / 1200))
    assert_normal(init.xavier_normal_(x, gain=0.5, generator=generator(seed)), 0.5 * math.sqrt(2 / 1200))


@pytest.mark.parametrize("mode, fan", [("fan_in", 300), ("fan_out", 900)])
def test_kaiming(seed, mode, fan):
    x = flow.empty(60, 20, 5, 3)
    gain = math.sqrt(2 / (1 + 0.3**2))
    assert_uniform(init.kaiming_uniform_(x, 0.3, mode, generator=generator(seed)), gain * math.sqrt(3 / fan))
    assert_normal(init.kaiming_normal_(x, 0.3, mode, generator=generator(seed)), gain / math.sqrt(fan))
    relu = init.kaiming_normal_(x, mode=mode, nonlinearity="relu", generator=generator(seed))
    assert_normal(relu, math.sqrt(2 / fan))


def test_default_of_linear_layers(seed):
    """PyTorch's layers draw with a = sqrt(5): uniform in +-1 / sqrt(fan_in)."""
    x = init.kaiming_uniform_(flow.empty(200, 64), a=math.sqrt(5), generator=generator(seed))
    assert_uniform(x, 1 / 8)


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 3, 2, 2), (20, 2, 3)])
@pytest.mark.parametrize("kind", [flow.float32, flow.float64])
def test_orthogonal(seed, shape, kind):
    x = init.orthogonal_(flow.empty(*shape, dtype=kind), gain=2.0, generator=generator(seed))
    assert x.dtype is kind and x.shape == shape
    m = x.double().cpu().numpy().reshape(shape[0], -1) / 2
    small = m @ m.T if m.shape[0] <= m.shape[1] else m.T @ m
    assert_close(small, np.eye(min(m.shape)), rtol=0, atol=1e-6)
    other = init.orthogonal_(flow.empty(*shape, dtype=kind), generator=generator(seed + 1))
    assert np.abs(other.double().cpu().numpy() * 2 - x.double().cpu().numpy()).max() > 0.1


def test_orthogonal_is_uniform_over_rotations_and_reflections():
    g = generator(0)
    draws = np.array(
        [init.orthogonal_(flow.empty(2, 2, dtype=flow.float64), generator=g).cpu().numpy() for _ in range(600)]
    )
    assert_close(draws.mean(0), np.zeros((2, 2)), rtol=0, atol=0.15)
    assert 200 < (np.linalg.det(draws) > 0).sum() < 400


def test_sparse(seed):
    x = init.sparse_(flow.empty(50, 400), 0.33, std=0.1, generator=generator(seed)).cpu().numpy()
    assert ((x == 0).sum(0) == math.ceil(0.33 * 50)).all()
    assert_close(x[x != 0].astype(np.float64).std(), 0.1, rtol=0.05)
    assert_close((x == 0).mean(1), np.full(50, 17 / 50), rtol=0, atol=0.13)


def test_leaves_stay_leaves_and_versions_count():
    x = flow.empty(4, 4, requires_grad=True)
    fills = [init.uniform_, init.normal_, init.trunc_normal_, init.ones_, init.zeros_, init.eye_, init.xavier_uniform_,
             init.xavier_normal_, init.kaiming_uniform_, init.kaiming_normal_, init.orthogonal_]  # fmt: skip
    for count, fill in enumerate(fills, 1):
        assert fill(x) is x
        assert x.is_leaf and x.requires_grad and x.version == count


def test_a_generator_decides_the_numbers():
    for fill in (init.uniform_, init.normal_, init.trunc_normal_, init.kaiming_uniform_, init.orthogonal_):
        first, second = (fill(flow.empty(3, 4), generator=generator(5)) for _ in range(2))
        assert_same(first, second.cpu().numpy())
        flow.manual_seed(5)
        assert_same(fill(flow.empty(3, 4)), first.cpu().numpy())


ERRORS = [
    (
        lambda: init.calculate_gain("softmax"),
        ArgumentError,
        "calculate_gain: got nonlinearity='softmax'; expected one of conv1d",
    ),
    (
        lambda: init.calculate_gain("leaky_relu", "x"),
        ArgumentError,
        "calculate_gain: got param='x'; expected the negative slope",
    ),
    (lambda: init.uniform_(flow.empty(2), 1, 0), ArgumentError, "uniform_: got low=1.0, high=0.0"),
    (lambda: init.normal_(flow.empty(2), 0, -1), ArgumentError, "normal_: got std=-1.0"),
    (
        lambda: init.trunc_normal_(flow.empty(2), std=0),
        ArgumentError,
        "trunc_normal_: got std=0, a=-2.0, b=2.0; expected std > 0",
    ),
    (
        lambda: init.trunc_normal_(flow.empty(2), a=50, b=60),
        ArgumentError,
        "expected bounds within a few std of the mean",
    ),
    (lambda: init.eye_(flow.empty(2)), ShapeError, r"eye_: got a tensor of shape \(2,\); expected a matrix"),
    (
        lambda: init.dirac_(flow.empty(2, 2)),
        ShapeError,
        r"dirac_: got a tensor of shape \(2, 2\); expected a convolution weight",
    ),
    (lambda: init.dirac_(flow.empty(3, 2, 1), 2), ShapeError, "dirac_: got 3 output channels and groups=2"),
    (lambda: init.xavier_uniform_(flow.empty(3)), ShapeError, r"fan_in and fan_out: got a tensor of shape \(3,\)"),
    (lambda: init.kaiming_normal_(flow.empty(3)), ShapeError, "expected a weight of at least 2 dims"),
    (
        lambda: init.kaiming_uniform_(flow.empty(3, 3), mode="fan"),
        ArgumentError,
        "kaiming: got mode='fan'; expected 'fan_in' or",
    ),
    (
        lambda: init.orthogonal_(flow.empty(3)),
        ShapeError,
        r"orthogonal_: got a tensor of shape \(3,\); expected at least 2 dims",
    ),
    (lambda: init.sparse_(flow.empty(3), 0.5), ShapeError, r"sparse_: got a tensor of shape \(3,\); expected a matrix"),
    (
        lambda: init.sparse_(flow.empty(3, 3), 1.5),
        ArgumentError,
        "sparse_: got sparsity=1.5; expected a fraction from 0 to 1",
    ),
]


@pytest.mark.cpu_only("arguments are checked before a kernel is chosen")
def test_errors():
    for action, error, message in ERRORS:
        with pytest.raises(error, match=message):
            action()
