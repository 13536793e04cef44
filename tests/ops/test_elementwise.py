"""Pointwise arithmetic: values, dtypes, broadcasting, gradients to third order, integers, errors."""

import numpy as np
import pytest
from checks import assert_close, assert_same, check_op, on_device
from hypothesis import given, settings
from hypothesis import strategies as st

import miniflow as flow
from miniflow.errors import DTypeError, ShapeError

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


SMOOTH = {
    "neg": (np.negative, away),
    "abs": (np.abs, away),
    "exp": (np.exp, away),
    "log": (np.log, positive),
    "sqrt": (np.sqrt, positive),
    "rsqrt": (lambda x: 1 / np.sqrt(x), positive),
    "sin": (np.sin, away),
    "cos": (np.cos, away),
    "tanh": (np.tanh, away),
    "square": (np.square, away),
    "reciprocal": (lambda x: 1 / x, away),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_unary(name):
    reference, draw = SMOOTH[name]
    curved = name not in ("neg", "abs")
    check_op(getattr(flow, name), [draw((3, 5))], reference, dtypes=FLOATS, third=curved)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (65,), (2, 3, 4, 1)])
@pytest.mark.parametrize("name", SMOOTH)
def test_unary_shapes(name, shape):
    reference, draw = SMOOTH[name]
    check_op(getattr(flow, name), [draw(shape)], reference, second=False)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_staircases_have_zero_gradients(name):
    reference = {"round": np.rint}.get(name) or getattr(np, name)
    check_op(getattr(flow, name), [between_steps((3, 7))], reference, dtypes=FLOATS, gradient="zero", second=False)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "abs", "neg", "sign", "square"])
@pytest.mark.parametrize("kind", [flow.int8, flow.int32, flow.int64])
def test_integers_stay_integers(name, kind):
    x = np.array([[-3, 0, 2], [7, -1, 5]])
    reference = {"round": np.rint, "neg": np.negative}.get(name) or getattr(np, name)
    y = getattr(flow, name)(flow.tensor(x, dtype=kind))
    assert_same(y, reference(x).astype(kind.numpy))


@pytest.mark.parametrize("name", ["exp", "sqrt", "sin", "cos", "tanh", "rsqrt", "log", "reciprocal"])
@pytest.mark.parametrize("kind", [flow.uint8, flow.int64, flow.bool])
def test_integers_become_floats(name, kind):
    x = np.array([1, 1, 1]) if kind is flow.bool else np.array([1, 2, 5])
    reference = SMOOTH[name][0]
    assert_close(getattr(flow, name)(flow.tensor(x, dtype=kind)), reference(x.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
def test_round_to_decimals(decimals):
    x = np.array([12.345, -7.651, 0.05, 99.0])
    assert_close(flow.round(flow.tensor(x), decimals=decimals), np.round(x, decimals))


def test_round_takes_halves_to_even():
    assert_same(flow.round(flow.tensor([0.5, 1.5, 2.5, -0.5, -1.5])), np.array([0, 2, 2, -0.0, -2], np.float32))


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide}
LARGER = {"maximum": np.maximum, "minimum": np.minimum}
SHAPES = [
    ((3, 4), (3, 4)),
    ((3, 1, 2), (4, 1)),
    ((), (2, 3)),
    ((2, 3), ()),
    ((1,), (5,)),
    ((2, 1, 1), (3, 1)),
    ((), ()),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, shapes):
    x, y = away(shapes[0], seed=1), away(shapes[1], seed=2)
    check_op(getattr(flow, name), [x, y], BINARY[name], dtypes=FLOATS)


@pytest.mark.parametrize("shapes", SHAPES[:-1], ids=str)
@pytest.mark.parametrize("name", LARGER)
def test_larger_and_smaller(name, shapes):
    x, y = away(shapes[0], seed=1), away(shapes[1], seed=2) + 0.01
    check_op(getattr(flow, name), [x, y], LARGER[name], dtypes=FLOATS, gradient="sparse")


@pytest.mark.parametrize("shapes", [((0,), (0,)), ((3, 0), (1, 1)), ((0, 1), (4,)), ((2, 0, 3), ())], ids=str)
@pytest.mark.parametrize("name", [*BINARY, *LARGER])
def test_binary_of_zero_size(name, shapes):
    x, y = away(shapes[0]), away(shapes[1])
    check_op(getattr(flow, name), [x, y], (BINARY | LARGER)[name], gradient="zero")


@pytest.mark.parametrize("name", ["mul", "div"])
def test_binary_third_order(name):
    check_op(getattr(flow, name), [away((2, 1)), away((3,), seed=5)], BINARY[name], third=True)


@pytest.mark.parametrize("number", [2, 0.75, -3, True])
@pytest.mark.parametrize("name", BINARY)
def test_binary_with_a_number(name, number):
    function, reference = getattr(flow, name), BINARY[name]
    value = int(number) if number is True else number
    check_op(lambda x: function(x, number), [away((2, 3))], lambda x: reference(x, value), dtypes=FLOATS)
    check_op(lambda x: function(number, x), [away((2, 3))], lambda x: reference(value, x), dtypes=FLOATS)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "floor_divide", "remainder", "maximum", "minimum"])
@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint8"])
def test_binary_of_integers(name, kind):
    signed = kind != "uint8"
    x = np.array([[7, -7, 3], [0, 5, -2]]) * (1 if signed else 0) + (0 if signed else 9)
    y = np.array([2, -3, 4]) if signed else np.array([2, 3, 4])
    reference = {"sub": np.subtract, "mul": np.multiply}.get(name) or getattr(np, name)
    result = getattr(flow, name)(flow.tensor(x, dtype=getattr(flow, kind)), flow.tensor(y, dtype=getattr(flow, kind)))
    assert_same(result, reference(x, y).astype(kind))


@pytest.mark.parametrize("alpha", [1, 2.5, -3])
def test_add_and_sub_scale_the_second_operand(alpha):
    x, y = away((2, 3)), away((3,), seed=4)
    check_op(lambda x, y: flow.add(x, y, alpha=alpha), [x, y], lambda x, y: x + alpha * y)
    check_op(lambda x, y: flow.sub(x, y, alpha=alpha), [x, y], lambda x, y: x - alpha * y)


def test_equal_operands_share_the_gradient():
    for function in (flow.maximum, flow.minimum):
        x = flow.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = flow.tensor([1.0, 5.0, 3.0], requires_grad=True)
        function(x, y).backward(flow.tensor([4.0, 6.0, 8.0]))
        assert_same(x.grad + y.grad, np.array([4, 6, 8], np.float32))
        assert x.grad.tolist()[::2] == [2.0, 4.0]


def test_nan_wins_in_maximum_and_minimum():
    x, y = flow.tensor([np.nan, 1.0]), flow.tensor([0.0, np.nan])
    assert_same(flow.maximum(x, y), np.array([np.nan, np.nan], np.float32))
    assert_same(flow.minimum(x, y), np.array([np.nan, np.nan], np.float32))


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


def test_floor_divide_has_zero_gradient():
    x, y = away((4, 3), 1.2, 5.0), away((3,), 0.6, 0.9, seed=9)
    check_op(flow.floor_divide, [x, y], np.floor_divide, dtypes=FLOATS[:2], gradient="zero", second=False)


# powers


@pytest.mark.parametrize("exponent", [2, 3, -1, 0.5, -0.5, 2.7, 1, 4])
def test_pow_of_a_number(exponent):
    check_op(lambda x: flow.pow(x, exponent), [positive((3, 4))], lambda x: x**exponent, dtypes=FLOATS, third=True)


@pytest.mark.parametrize("exponent", [2, 3, -1, -2])
def test_whole_powers_of_negative_values(exponent):
    check_op(lambda x: x**exponent, [away((3, 4))], lambda x: x**exponent)


def test_power_zero_is_one_without_gradient():
    check_op(lambda x: x**0, [away((3, 4))], lambda x: np.ones_like(x), gradient="zero", second=False)
    x = flow.tensor([0.0, 2.0], requires_grad=True)
    (x**0).sum().backward()
    assert_same(x.grad, np.zeros(2, np.float32))


def test_pow_of_tensors():
    check_op(flow.pow, [positive((3, 1)), away((4,), seed=3)], np.power, third=True)
    check_op(lambda y: flow.pow(2.5, y), [away((2, 3))], lambda y: 2.5**y, third=True)


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
    with pytest.raises(DTypeError, match="pow: integers to the negative power -1.*x.float"):
        flow.tensor([1, 2]) ** -1


# clamp and where


@pytest.mark.parametrize("bounds", [(-0.4, 0.9), (None, 0.9), (-0.4, None)])
def test_clamp(bounds):
    x = away((4, 5), 0.05, 0.3) * 6
    low, high = bounds
    reference = lambda x: np.clip(x, low, high)  # noqa: E731
    check_op(lambda x: flow.clamp(x, low, high), [x], reference, dtypes=("float32", "float64"), gradient="sparse")


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


def test_clamp_needs_a_bound():
    with pytest.raises(ValueError, match="clamp: got neither min nor max"):
        flow.clamp(flow.ones(2))


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4), (3, 4)), ((4,), (3, 1), ()), ((3, 1), (4,), (2, 1, 1))], ids=str)
def test_where(shapes):
    condition = np.random.default_rng(5).random(shapes[0]) < 0.5
    condition.flat[:2] = [True, False]
    check_op(
        lambda x, y, c: flow.where(c, x, y),
        [away(shapes[1]), away(shapes[2], seed=6), condition],
        lambda x, y, c: np.where(c, x, y),
        dtypes=FLOATS,
        gradient="sparse",
    )


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


@pytest.mark.parametrize("name", [*BINARY, *LARGER, "pow", "remainder", "floor_divide"])
def test_shapes_that_cannot_be_broadcast(name):
    with pytest.raises(ShapeError, match=rf"{name}: shapes \(2, 3\) and \(4, 3\) cannot be broadcast"):
        getattr(flow, name)(flow.ones(2, 3), flow.ones(4, 3))


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
