"""Pointwise ops beside torch: values, dtypes and gradients, also at zeros, infinities and NaN."""

from operator import attrgetter

import numpy as np
import pytest
from checks import as_array, assert_close, check_against_torch, torch_tensor

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e30, 2.5, -2.5, 0.5, 7.0])


@pytest.fixture(autouse=True)
def quiet():
    """NumPy does not warn of infinities and NaN, which are on purpose here."""
    with np.errstate(all="ignore"):
        yield


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Random values of either sign, away from zero."""
    random = np.random.default_rng((seed, *shape))
    return random.uniform(0.3, 3.0, shape) * random.choice([-1.0, 1.0], shape)


ACTIVATIONS = """celu elu gelu hardshrink hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu silu softplus
    softshrink softsign tanhshrink""".split()
OF_ONE = """abs acos acosh asin asinh atan atanh cos cosh deg2rad erf erfc erfinv exp exp2 expm1 frac lgamma log
    log10 log1p log2 logit neg rad2deg reciprocal rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh""".split()
OF_TWO = """add atan2 div fmax fmin fmod hypot logaddexp logaddexp2 maximum minimum mul remainder special.xlog1py sub
    xlogy""".split()
ELSEWHERE = {  # where the gradients differ: at infinity, where torch has NaN, at NaN, where it has two answers, at -0.0
    "gelu": [4, 5], "hardswish": [4, 5, 6], "softsign": [4, 5], "logit": [1], "special.xlog1py": [0, 1],
    "rsqrt": [1], **dict.fromkeys("celu elu hardshrink hardtanh relu6 selu softshrink".split(), [6]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*ACTIVATIONS, *OF_ONE, *OF_TWO])
def test_gradients_at_special_values(name):
    def function(framework):
        place = framework.nn.functional if name in ACTIVATIONS else framework
        return attrgetter(name)(place)

    x = np.delete(SPECIAL, ELSEWHERE.get(name, []))
    operands = [x] if name in ACTIVATIONS + OF_ONE else np.meshgrid(x, SPECIAL)
    check_against_torch(function(flow), function(torch), operands, dtype="float64")


def test_powers_of_special_values():
    check_against_torch(flow.pow, torch.pow, [SPECIAL[:, None], SPECIAL[None]], dtype="float64", grad=False)
    for exponent in (2, 3, 0.5, -1, 0, 1, -2, 1.5):
        # at -0.0 and -inf torch takes the gradient of x ** 0.5 for that of sqrt, we that of a power
        x = SPECIAL[[0, 2, 3, 4, 6, 7, 9, 10]] if exponent == 0.5 else SPECIAL
        check_against_torch(lambda x, n=exponent: x**n, lambda x, n=exponent: x**n, [x], dtype="float64")


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_division_of_special_values(name):
    x, y = SPECIAL[[0, 2, 3, 6, 9, 10, 12]], np.array([1.0, -1.0, 2.5, -0.75, np.nan])
    check_against_torch(getattr(flow, name), getattr(torch, name), [x[:, None], y], dtype="float64", grad=False)


@pytest.mark.parametrize("bounds", [(-1, 1), (None, 0.5), (-0.5, None), (1, -1)])
def test_clamp(bounds):
    x = np.concatenate([draw(20), [-1.0, 1.0, 0.5, -0.5]])
    check_against_torch(lambda x: x.clamp(*bounds), lambda x: x.clamp(*bounds), [x])


def test_where():
    condition = np.random.default_rng(0).random((3, 4)) < 0.5
    check_against_torch(flow.where, torch.where, [condition, draw(4), draw(3, 1, seed=2)])


@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
def test_round(decimals):
    x = draw(50) * 20
    check_against_torch(
        lambda x: flow.round(x, decimals=decimals), lambda x: torch.round(x, decimals=decimals), [x], dtype="float64"
    )


def test_equal_values_share_the_gradient():
    x, y = np.array([1.0, 2.0, 3.0, -1.0]), np.array([1.0, 3.0, 2.0, -1.0])
    for name in ("maximum", "minimum"):
        check_against_torch(getattr(flow, name), getattr(torch, name), [x, y])


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_div_with_a_rounding_mode(mode):
    check_against_torch(
        lambda x, y: flow.div(x, y, rounding_mode=mode),
        lambda x, y: torch.div(x, y, rounding_mode=mode),
        [draw(4, 3), draw(3)],
        grad=mode is None,
    )


def test_mixed_dtypes_give_each_operand_its_own_gradient():
    for a in ("float16", "float32", "float64"):
        for b in ("float16", "float32", "float64"):
            results = []
            for lib, make in ((flow, flow.tensor), (torch, torch_tensor)):
                x, y = make(draw(3, 2).astype(a)).requires_grad_(), make(draw(2, seed=1).astype(b)).requires_grad_()
                (x * y + x).sum().backward()
                results.append((x * y, x.grad, y.grad, lib))
            for ours, theirs in zip(results[0][:3], results[1][:3], strict=True):
                assert_close(ours, as_array(theirs), rtol=5e-3, atol=5e-3)
