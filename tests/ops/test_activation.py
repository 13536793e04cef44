"""Activation functions against NumPy in float64 and the C library's erf."""

import math

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.backends.cpu.loops import PARALLEL_FROM
from miniflow.errors import ArgumentError, DTypeError
from miniflow.ops.activation import erf, gelu, relu, sigmoid, silu, softplus

ALL_FLOATS = ("float16", "bfloat16", "float32", "float64")
SHAPES = [(3, 5), (7,), (2, 1, 3), ()]
draw = np.random.default_rng(0)

reference_erf = np.vectorize(math.erf, otypes=[np.float64])


def reference_sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference_gelu(x):
    return 0.5 * x * (1 + reference_erf(x / math.sqrt(2)))


def reference_gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def reference_softplus(x):
    return np.where(1.5 * x > 2.0, x, np.log1p(np.exp(1.5 * x)) / 1.5)


FUNCTIONS = {
    "relu": (relu, lambda x: np.maximum(x, 0)),
    "sigmoid": (sigmoid, reference_sigmoid),
    "erf": (erf, reference_erf),
    "gelu": (gelu, reference_gelu),
    "gelu_tanh": (lambda x: gelu(x, approximate="tanh"), reference_gelu_tanh),
    "silu": (silu, lambda x: x * reference_sigmoid(x)),
    "softplus": (lambda x: softplus(x, beta=1.5, threshold=2.0), reference_softplus),
}
SMOOTH = [name for name in FUNCTIONS if name != "relu"]


def values(shape):
    """Of either sign, away from relu's kink at 0 and from softplus's seam at 4/3."""
    x = draw.uniform(0.2, 1.2, shape) * draw.choice([-1, 1], shape)
    return np.asarray(np.where(draw.random(shape) < 0.2, np.abs(x) + 1.4, x))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth(name, shape):
    function, reference = FUNCTIONS[name]
    checks.check_op(function, [values(shape)], reference, dtypes=ALL_FLOATS, third=shape == (3, 5))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_relu(shape):
    x = values(shape)
    x.flat[0] = abs(x.flat[0])  # at least one gradient is not zero
    checks.check_op(relu, [x], FUNCTIONS["relu"][1], dtypes=(*ALL_FLOATS, "int32", "int8", "uint8"), gradient="sparse")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zero_size(name):
    checks.check_op(FUNCTIONS[name][0], [np.empty((0, 3))], FUNCTIONS[name][1], grad=False)


@pytest.mark.parametrize("size", [4095, 4096, 4097, PARALLEL_FROM - 1, PARALLEL_FROM + 1])
@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_sizes_around_the_switch_of_variants(name, size):
    function, reference = FUNCTIONS[name]
    x = draw.normal(size=size)
    tensor = flow.tensor(x, dtype=flow.float32, requires_grad=True)
    y = function(tensor)
    x = tensor.detach().cpu().numpy().astype(np.float64)
    checks.assert_close(y, reference(x).astype(np.float32))
    cotangent = draw.normal(size=size).astype(np.float32)
    y.backward(flow.tensor(cotangent))
    slope = (x > 0) if name == "relu" else (reference_gelu(x + 1e-5) - reference_gelu(x - 1e-5)) / 2e-5
    checks.assert_close(tensor.grad, (slope * cotangent).astype(np.float32), atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_the_whole_range(name, kind):
    """Relative accuracy near 0, absolute elsewhere, up to where the exponential overflows."""
    function, reference = FUNCTIONS[name]
    sizes = np.concatenate([10.0 ** np.arange(-30, 2, 0.37), np.linspace(0.1, 120, 4000)])
    x = np.concatenate([-sizes, sizes]).astype(kind)
    with np.errstate(over="ignore"):
        expected = reference(x.astype(np.float64))
    tolerance = 2e-6 if kind == "float32" else 1e-12
    checks.assert_close(function(flow.tensor(x)), expected.astype(kind), rtol=tolerance, atol=tolerance)
    if name in ("erf", "silu", "gelu", "gelu_tanh"):
        small = np.abs(x) < 0.5
        checks.assert_close(function(flow.tensor(x[small])), expected[small].astype(kind), rtol=tolerance, atol=0)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_nan_and_infinities(kind):
    x = flow.tensor(np.array([np.nan, np.inf, -np.inf], kind))
    for function, expected in [
        (relu, [np.nan, np.inf, 0]),
        (sigmoid, [np.nan, 1, 0]),
        (erf, [np.nan, 1, -1]),
        (softplus, [np.nan, np.inf, 0]),
    ]:
        checks.assert_same(function(x), np.array(expected, kind))
    for function in (gelu, silu, lambda x: gelu(x, approximate="tanh")):
        checks.assert_same(function(x)[:2], np.array([np.nan, np.inf], kind))


def test_relu_gradient_at_the_kink_and_at_nan():
    x = flow.tensor([0.0, -0.0, float("nan"), 1.0], requires_grad=True)
    relu(x).backward(flow.tensor([float("inf"), 2.0, 3.0, 4.0]))
    checks.assert_same(x.grad, np.array([0, 0, 3, 4], np.float32))


@pytest.mark.parametrize("name", ["sigmoid", "erf"])
@pytest.mark.parametrize("kind", ["int64", "uint8", "bool"])
def test_integers_become_floats(name, kind):
    function, reference = FUNCTIONS[name]
    x = np.array([0, 1, 1, 0]).astype(kind)
    checks.assert_close(function(flow.tensor(x)), reference(x.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("name", ["gelu", "silu", "softplus"])
def test_integers_are_refused(name):
    with pytest.raises(DTypeError, match=rf"{name}: got int64; expected a floating dtype: use x.float\(\)"):
        FUNCTIONS[name][0](flow.tensor([1, 2]))


def test_bad_arguments():
    with pytest.raises(DTypeError, match=r"relu: got bool; expected .* use x.float\(\)"):
        relu(flow.tensor([True]))
    with pytest.raises(ArgumentError, match="gelu: got approximate='fast'; expected 'none' or 'tanh'"):
        gelu(flow.tensor([1.0]), approximate="fast")
    with pytest.raises(ArgumentError, match="softplus: got beta=0, .* expected another number"):
        softplus(flow.tensor([1.0]), beta=0)
