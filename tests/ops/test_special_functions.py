"""The gamma family: identities that hold for all orders, poles, and refusals."""

import math

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.errors import ArgumentError, AutogradError
from miniflow.formulas import scalar

X = np.concatenate([np.linspace(0.2, 3.1, 7), [25.0, 1e6], np.linspace(-7.3, -0.3, 8)])


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_one_step_up_adds_a_power(n):
    """psi_n(x + 1) = psi_n(x) + (-1)^n n! / x^(n + 1): DLMF 5.15.5."""
    x = flow.tensor(X)
    assert_close(flow.polygamma(n, x + 1) - flow.polygamma(n, x), (-1) ** n * math.factorial(n) / X ** (n + 1),
                 rtol=1e-6, atol=1e-9)  # fmt: skip


def test_halves_below_zero():
    """psi_n(1/2 - m) is psi_n(1/2 + m) for even n: DLMF 5.15.6; the cotangent and its even derivatives are 0 there."""
    for n in (2, 4, 10):
        above, below = (flow.polygamma(n, flow.tensor([x])) for x in (11.5, -10.5))
        assert_close(below, above, rtol=1e-5)
    assert_close(flow.polygamma(4, flow.tensor([-10.5])), np.array([-4.0703e-4], np.float32), rtol=1e-4)


def test_orders_without_end():
    x = flow.tensor([1.0, 2.5, -1.5], dtype=flow.float64)
    assert_close(flow.polygamma(171, x), [math.inf] * 3)
    assert_close(flow.polygamma(172, x), [-math.inf] * 3)
    assert flow.polygamma(170, x)[:2].isfinite().all()


def test_in_place():
    x = flow.tensor([1.0], dtype=flow.float64)
    assert x.polygamma_(1) is x
    assert_close(x, [math.pi**2 / 6], rtol=1e-12)


def test_known_values():
    assert_close(flow.digamma(flow.tensor([1.0, 0.5], dtype=flow.float64)),
                 [-np.euler_gamma, -np.euler_gamma - 2 * math.log(2)], rtol=1e-14)  # fmt: skip
    assert_close(flow.special.zeta(2, flow.tensor([1.0, 0.5], dtype=flow.float64)),
                 [math.pi**2 / 6, math.pi**2 / 2], rtol=1e-14)  # fmt: skip
    assert_close(flow.special.zeta(60, flow.tensor(10.0, dtype=flow.float64)),
                 sum((10.0 + k) ** -60 for k in range(99)), rtol=1e-13)  # fmt: skip


def test_gradients_of_every_order_are_polygamma():
    y = x = flow.tensor(X[:-1], requires_grad=True)
    y = flow.lgamma(x)
    for n in range(5):
        (y,) = flow.autograd.grad(y.sum(), x, create_graph=True)
        assert_close(y, flow.polygamma(n, x.detach()), rtol=1e-12)


def test_poles():
    x = flow.tensor([0.0, -0.0, -1.0, -7.0, math.inf, -math.inf, math.nan])
    assert_close(flow.lgamma(x), [math.inf] * 6 + [math.nan])
    assert_close(flow.digamma(x), [-math.inf, math.inf, math.nan, math.nan, math.inf, math.nan, math.nan])
    assert_close(flow.special.zeta(3, x), [math.inf] * 4 + [0.0, math.inf, math.nan])
    assert_close(flow.special.zeta(1.5, flow.tensor([-0.5])), [math.nan])


def test_refusals():
    x = flow.ones(2, requires_grad=True)
    with pytest.raises(AutogradError, match="zeta: got an input that requires grad"):
        flow.special.zeta(x, 2.0)
    with pytest.raises(ArgumentError, match="polygamma: got n=-1; expected 0 or more"):
        flow.polygamma(-1, x)
    with pytest.raises(ArgumentError, match="mvlgamma: got p=0; expected 1 or more"):
        flow.mvlgamma(x, 0)


def test_a_fused_loop_has_them():
    class Deviance(flow.nn.Graph):
        def build(self, x):
            return (flow.lgamma(x) * 2 + flow.digamma(x)).exp() - flow.special.zeta(2, x)

    x = flow.tensor(X[:7])
    eager = (flow.lgamma(x) * 2 + flow.digamma(x)).exp() - flow.special.zeta(2, x)
    assert_close(Deviance()(x), eager, rtol=1e-12)


def test_lgamma_is_infinite_at_its_poles_in_every_evaluator():
    x = np.array([0.0, -1.0, -3.0, 1e308, np.inf, 3.0])
    want = np.array([np.inf, np.inf, np.inf, np.inf, np.inf, np.log(2.0)])
    np.testing.assert_allclose(scalar.lgamma.numpy(x), want, rtol=1e-15)
    assert_close(flow.tensor(x, dtype=flow.float64).lgamma(), want, rtol=1e-15)
