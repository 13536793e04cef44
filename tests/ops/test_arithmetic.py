"""Pointwise arithmetic beyond the rows of `samples.py`: ties, powers, divisions, numbers, operators, refusals."""

import numpy as np
import pytest
from checks import assert_close, assert_same, check_op, on_device
from hypothesis import given, settings
from hypothesis import strategies as st

import miniflow as flow
from miniflow.errors import DTypeError
from miniflow.formulas import scalar

FLOATS = ("float32", "float64", "float16", "bfloat16")


def away(shape: tuple[int, ...], low: float = 0.5, high: float = 2.0, seed: int = 0) -> np.ndarray:
    """Random values of either sign whose magnitude lies between `low` and `high`."""
    draw = np.random.default_rng(seed)
    return draw.uniform(low, high, shape) * draw.choice([-1.0, 1.0], shape)


def positive(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random values between 0.5 and 2."""
    return np.random.default_rng(seed).uniform(0.5, 2.0, shape)


def between_steps(shape: tuple[int, ...]) -> np.ndarray:
    """Random values that are not near a whole number or its half."""
    draw = np.random.default_rng(3)
    return draw.integers(-4, 5, shape) + draw.choice([0.15, 0.3, 0.7, 0.85], shape)


@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
def test_round_to_decimals(decimals):
    x = np.array([12.345, -7.651, 0.05, 99.0])
    assert_close(flow.round(flow.tensor(x), decimals=decimals), np.round(x, decimals))


def test_equal_operands_share_the_gradient():
    for function in (flow.maximum, flow.minimum):
        x = flow.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = flow.tensor([1.0, 5.0, 3.0], requires_grad=True)
        function(x, y).backward(flow.tensor([4.0, 6.0, 8.0]))
        assert_same(x.grad + y.grad, np.array([4, 6, 8], np.float32))
        assert x.grad.tolist()[::2] == [2.0, 4.0]


# division


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int8"])
def test_div_with_a_rounding_mode(mode, kind):
    x, y = np.array([7, -7, 7, -7, 6]), np.array([2, 2, -2, -2, 3])
    result = flow.div(*(flow.tensor(v, dtype=getattr(flow, kind)) for v in (x, y)), rounding_mode=mode)
    assert_same(result, (np.floor(x / y) if mode == "floor" else np.trunc(x / y)).astype(kind))


def test_div_refuses_an_unknown_rounding_mode():
    with pytest.raises(ValueError, match="rounding_mode='up'.*'floor' or 'trunc'"):
        flow.div(flow.ones(2), 2, rounding_mode="up")


def test_remainder_has_the_sign_of_the_divisor():
    check_op(flow.remainder, [away((4, 3), 1.2, 5.0), away((3,), 0.6, 0.9, seed=9)], np.remainder, second=False)
    check_op(lambda x: flow.remainder(x, 1.5), [between_steps((4, 3))], lambda x: x % 1.5)
    check_op(lambda x: flow.remainder(7.2, x), [away((4,), 0.6, 0.9)], lambda x: 7.2 % x, second=False)


# powers


def test_power_zero_is_one_without_gradient():
    check_op(lambda x: x**0, [away((3, 4))], lambda x: np.ones_like(x), gradient="zero", second=False)
    x = flow.tensor([0.0, 2.0], requires_grad=True)
    (x**0).sum().backward()
    assert_same(x.grad, np.zeros(2, np.float32))


def test_pow_at_zero_base():
    x = flow.tensor([0.0, 0.0, 0.0], requires_grad=True)
    y = flow.tensor([0.0, 1.0, 2.0], requires_grad=True)
    (x**y).sum().backward()
    assert_same(x.grad, np.array([0, 1, 0], np.float32))
    assert_same(y.grad, np.zeros(3, np.float32))


def test_square_keeps_its_gradient_at_zero():
    x = flow.tensor([0.0, -3.0], requires_grad=True)
    (x**2).sum().backward()
    assert_same(x.grad, np.array([0, -6], np.float32))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["int8", "int64", "uint8"])
def test_pow_of_integers(exponent, kind):
    x = np.array([0, 1, 2, 3], kind)
    assert_same(on_device(x) ** exponent, x**exponent)


def test_pow_of_integers_to_a_negative_power_is_refused():
    with pytest.raises(DTypeError, match="pow: got integers to the negative power -1.*x.float"):
        flow.tensor([1, 2]) ** -1


# clamp and where


def test_clamp_keeps_the_gradient_at_its_bounds():
    x = flow.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
    flow.clamp(x, 0, 1).sum().backward()
    assert_same(x.grad, np.array([0, 1, 1, 1, 0], np.float32))


def test_clamp_by_tensors():
    x, low, high = away((3, 4), 0.2, 2.0), -positive((4,)), positive((3, 1), seed=8) + 0.05
    check_op(flow.clamp, [x, low, high], lambda x, a, b: np.minimum(np.maximum(x, a), b), gradient="sparse")


def test_clamp_of_integers():
    x = np.array([-5, 0, 3, 9])
    assert_same(flow.clamp(flow.tensor(x), 0, 4), np.clip(x, 0, 4))
    assert_same(flow.clamp(flow.tensor(x), -0.5, 4.5), np.clip(x, -0.5, 4.5).astype(np.float32))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_numbers_beside_integers_that_floats_cannot_hold(device):
    large = 2**62 + 1
    x, condition = flow.tensor([5, large + 4], device=device), flow.tensor([True, False], device=device)
    assert flow.where(condition, x, large).tolist() == [5, large]
    assert x.clamp(max=large).tolist() == [5, large]


@pytest.mark.parametrize("compute", [lambda x: x + 2**70, lambda x: 2**70 * x, lambda x: flow.where(x > 0, x, 2**70)])
def test_numbers_of_more_than_64_bits_beside_integers(compute):
    with pytest.raises(DTypeError, match=f"(add|mul|where): got the value {2**70}, which miniflow.int64 cannot hold"):
        compute(flow.tensor([1, 2]))


def test_where_and_clamp_promote_floats():
    x, y, condition = flow.ones(2), flow.full((2,), 1 / 3, dtype=flow.float64), flow.tensor([True, False])
    assert_same(flow.where(condition, x, y), np.array([1, 1 / 3]))
    assert_same(flow.clamp(x, None, y), np.array([1 / 3, 1 / 3]))


def test_clamp_needs_a_bound():
    with pytest.raises(ValueError, match="clamp: got neither min nor max"):
        flow.clamp(flow.ones(2))


def test_where_with_numbers():
    condition = np.array([True, False, True])
    x = away((3,))
    check_op(lambda x: flow.where(flow.tensor(condition), x, 2.5), [x], lambda x: np.where(condition, x, 2.5))
    check_op(
        lambda x: flow.where(flow.tensor(condition), -1, x),
        [x],
        lambda x: np.where(condition, -1, x),
        gradient="sparse",
    )
    assert_same(flow.where(flow.tensor(condition), 1.0, 0.0), np.array([1, 0, 1], np.float32))
    assert_same(flow.where(flow.tensor(condition), 1, 0), np.array([1, 0, 1]))


def test_where_needs_a_bool_condition():
    with pytest.raises(DTypeError, match="where: got a condition of float32; expected bool"):
        flow.where(flow.ones(3), flow.ones(3), flow.zeros(3))


# operators


@pytest.mark.parametrize(
    "operate",
    [
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y, lambda x, y: x // y,
        lambda x, y: x % y, lambda x, y: x**y,
    ],
)  # fmt: skip
def test_operators_and_reflected_operators(operate):
    x = np.array([[1.5, 2.0, 7.25]])
    ours = flow.tensor(x, dtype=flow.float64)
    assert_close(operate(ours, 2), operate(x, 2))
    assert_close(operate(2, ours), operate(2, x))
    assert_close(operate(ours, x[0]), operate(x, x[0]))
    assert_close(operate(x[0], ours), operate(x[0], x))
    assert isinstance(operate(x[0], ours), flow.Tensor)
    assert isinstance(operate(np.float64(2), ours), flow.Tensor)


def test_unary_operators():
    x = flow.tensor([1.0, -2.0])
    assert_same(-x, np.array([-1, 2], np.float32))
    assert_same(abs(x), np.array([1, 2], np.float32))
    assert_same(+x, np.array([1, -2], np.float32))


def test_synonyms_are_the_same_function():
    pairs = {
        "multiply": "mul",
        "subtract": "sub",
        "divide": "div",
        "clip": "clamp",
        "negative": "neg",
        "absolute": "abs",
    }
    for synonym, name in pairs.items():
        assert getattr(flow.Tensor, synonym) is getattr(flow.Tensor, name)
        assert getattr(flow.Tensor, name) is getattr(flow, name)


# errors


@pytest.mark.parametrize("operand", ["3", None, [1, 2], 1j])
def test_foreign_operands_are_refused(operand):
    with pytest.raises(TypeError):
        flow.ones(2) + operand
    with pytest.raises(TypeError):
        operand - flow.ones(2)


sides = st.lists(st.integers(1, 4), max_size=3)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    shape=sides, holes=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3), cut=st.integers(0, 3)
)
def test_any_broadcast_shapes(shape, holes, cut):
    """Two shapes made from one by setting sizes to 1 and cutting dims off in front always broadcast."""
    first = [1 if hole[0] else n for n, hole in zip(shape, holes, strict=False)]
    second = [1 if hole[1] else n for n, hole in zip(shape, holes, strict=False)][cut:]
    x, y = away(tuple(first), seed=1), away(tuple(second), seed=2)
    check_op(lambda x, y: x * y + x / y, [x, y], lambda x, y: x * y + x / y, second=False, gradient="sparse")


def test_the_builtin_abs_makes_formulas():
    x = scalar.Expr()
    y = abs(x)
    assert y.function is scalar.abs and y.operands[0] is x
