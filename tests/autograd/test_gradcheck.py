"""gradcheck is strict: wrong gradients, dead gradients and imprecise inputs are refused."""

import numpy as np
import pytest

import miniflow as flow
from miniflow.autograd import Function, gradcheck, gradgradcheck
from miniflow.errors import DTypeError, GradientCheckError


def leaf(*shape: int, seed: int = 0) -> flow.Tensor:
    """A random leaf in float64, away from zero."""
    draw = np.random.default_rng(seed)
    return flow.tensor(draw.uniform(0.5, 2.0, shape) * draw.choice([-1, 1], shape), requires_grad=True)


def with_gradient(gradient):
    """sin(x) with a gradient of the caller's making: `gradient(x, dy)`."""

    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return flow.sin(x)

        @staticmethod
        def backward(ctx, dy):
            return gradient(*ctx.saved_tensors, dy)

    return Sine.apply


WRONG = {
    "zero": lambda x, dy: dy * 0.0,
    "sign": lambda x, dy: -(dy * flow.cos(x)),
    "one percent": lambda x, dy: dy * flow.cos(x) * 1.01,
    "one in a thousand": lambda x, dy: dy * flow.cos(x) * 1.001,
    "permuted": lambda x, dy: (dy * flow.cos(x)).flip(0),
    "cotangent forgotten": lambda x, dy: flow.cos(x),
    "cotangent summed": lambda x, dy: flow.cos(x) * dy.mean(),
    "nan": lambda x, dy: dy * float("nan"),
    "one element": lambda x, dy: dy * flow.cos(x) * flow.tensor([1.0, 1.0, 1.0, 1.0, 1.02]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_gradients_are_refused(name):
    with pytest.raises(
        GradientCheckError, match=r"gradient of input 0 at \(\d,\) is .*finite differences give .* of 5 elements"
    ):
        gradcheck(with_gradient(WRONG[name]), leaf(5))


def test_right_gradients_pass():
    right = with_gradient(lambda x, dy: dy * flow.cos(x))
    assert gradcheck(right, leaf(5)) is True
    assert gradgradcheck(right, leaf(5)) is True


def test_a_gradient_that_is_right_once_may_be_wrong_twice():
    detached = with_gradient(lambda x, dy: dy * flow.cos(x).detach())
    assert gradcheck(detached, leaf(5))
    with pytest.raises(GradientCheckError, match="gradient of input 0"):
        gradgradcheck(detached, leaf(5))


def test_flat_regions_are_refused():
    with pytest.raises(GradientCheckError, match="4 of 4 true gradients are below 0.0001.*choose other inputs"):
        gradcheck(lambda x: flow.relu(x - 10), leaf(4))
    assert gradcheck(lambda x: flow.relu(x - 10), leaf(4), check_alive=False)


def test_half_flat_is_allowed_and_more_is_not():
    x = flow.tensor([1.0, 2.0, -1.0, -2.0], dtype=flow.float64, requires_grad=True)
    assert gradcheck(flow.relu, x)
    x = flow.tensor([1.0, -3.0, -1.0, -2.0], dtype=flow.float64, requires_grad=True)
    with pytest.raises(GradientCheckError, match="3 of 4 true gradients"):
        gradcheck(flow.relu, x)


def test_less_than_float64_is_refused():
    with pytest.raises(DTypeError, match=r"input 1 has miniflow.float32; expected float64: x.double\(\)"):
        gradcheck(flow.mul, [leaf(2), flow.ones(2, requires_grad=True)])


def test_something_must_be_checked():
    with pytest.raises(GradientCheckError, match="no input requires grad"):
        gradcheck(flow.sin, leaf(3).detach())
    with pytest.raises(GradientCheckError, match="no output requires grad"):
        gradcheck(lambda x: x.detach(), leaf(3))


def test_an_unused_input_counts_as_zero():
    with pytest.raises(GradientCheckError, match="of 6 true gradients|of 4 true gradients"):
        gradcheck(lambda x, y, z: x * 2, [leaf(1), leaf(2), leaf(3)])
    assert gradcheck(lambda x, y: x * 2, [leaf(3), leaf(1)])


def test_several_outputs_and_arguments_that_are_not_tensors():
    assert gradcheck(lambda x, n, y: (x * n, x @ y, y.detach()), [leaf(2, 3), 3, leaf(3, 2)])
    assert gradgradcheck(lambda x, n, y: (x * n, x @ y), [leaf(2, 3), 3, leaf(3, 2)])


def test_the_inputs_are_left_as_they_were():
    x = leaf(3, 2)
    before = x.detach().cpu().numpy().copy()
    gradcheck(lambda x: x.t().exp(), x)
    gradgradcheck(lambda x: x.t().exp(), x)
    assert (x.detach().cpu().numpy() == before).all() and x.grad is None


def test_different_seeds_draw_different_cotangents():
    """A gradient that is right for cotangents of one sign only is found by nearly every seed."""
    wrong = with_gradient(lambda x, dy: flow.where(dy > 0, dy, dy * 2) * flow.cos(x))
    found = 0
    for seed in range(5):
        try:
            gradcheck(wrong, leaf(6), seed=seed)
        except GradientCheckError:
            found += 1
    assert found >= 4
