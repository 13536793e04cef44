"""Activation functions: special values and refusals; `samples.py` has the rest."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, DTypeError
from miniflow.ops.activation import gelu, leaky_relu, relu, sigmoid, silu, softplus
from miniflow.ops.special_functions import erf


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


def test_attributes_and_numbers_of_calls_are_told_apart():
    """Calls of one geometry share a launch, but not what else they are given."""
    x = flow.tensor([-1.0, 3.0])
    for slope in (0.5, 0.25, 0.5):
        assert leaky_relu(x, slope).tolist() == [-slope, 3.0]
    for bound in (2.0, 1.0, 2.0):
        assert x.clamp(max=bound).tolist() == [-1.0, bound]
    assert x.clamp(min=0.0).tolist() == [0.0, 3.0]


def test_integers_are_refused():
    for function in (gelu, silu, softplus):
        words = rf"{function.__name__}: got int64; expected a floating dtype: use x.float\(\)"
        with pytest.raises(DTypeError, match=words):
            function(flow.tensor([1, 2]))


def test_bad_arguments():
    with pytest.raises(DTypeError, match=r"relu: got bool; expected numbers: cast first"):
        relu(flow.tensor([True]))
    with pytest.raises(ArgumentError, match="gelu: got approximate='fast'; expected 'none' or 'tanh'"):
        gelu(flow.tensor([1.0]), approximate="fast")
