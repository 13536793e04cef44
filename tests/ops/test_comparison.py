"""Comparisons, logic and bits: values, result dtype, broadcasting, numbers, errors."""

import numpy as np
import pytest
from checks import as_array, assert_same, check_op, on_device

import miniflow as flow
from miniflow.errors import DTypeError, ShapeError

COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
BITWISE = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64")


def whole(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Whole numbers from -2 to 2 as floats: many are equal, some are zero."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float64)


@pytest.mark.parametrize("shapes", [((5, 7), (5, 7)), ((3, 1, 2), (4, 1)), ((), (6,)), ((0, 2), (1,))], ids=str)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison(name, shapes):
    x, y = whole(shapes[0]), whole(shapes[1], seed=1)
    check_op(getattr(flow, name), [x, y], COMPARISONS[name], dtypes=DTYPES, grad=False)


@pytest.mark.parametrize("number", [0, 1, 1.0, True])
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison_with_a_number(name, number):
    function, reference = getattr(flow, name), COMPARISONS[name]
    check_op(lambda x: function(x, number), [whole((4, 5))], lambda x: reference(x, number), dtypes=DTYPES, grad=False)


def test_nan_is_unequal_to_everything():
    x = flow.tensor([np.nan, 1.0, np.inf])
    for name in ("eq", "lt", "le", "gt", "ge"):
        assert getattr(flow, name)(x, x)[0].item() is False
    assert flow.ne(x, x).tolist() == [True, False, False]


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("name", BITWISE)
def test_bitwise(name, kind):
    draw = np.random.default_rng(2)
    x, y = (draw.integers(0, 2 if kind == "bool" else 100, shape).astype(kind) for shape in ((3, 4), (4,)))
    check_op(
        getattr(flow, name),
        [x, y],
        lambda x, y: BITWISE[name](x, y).astype(kind),
        dtypes=(kind,),
        grad=False,
        result=kind,
    )
    assert_same(flow.bitwise_not(on_device(x)), np.invert(x))


@pytest.mark.parametrize("name", [*BITWISE, "bitwise_not"])
def test_bits_of_floats_are_refused(name):
    arguments = (flow.ones(2),) if name == "bitwise_not" else (flow.ones(2), flow.ones(2))
    with pytest.raises(DTypeError, match=rf"{name}: got .*float32.*expected integers or bools"):
        getattr(flow, name)(*arguments)


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite", "logical_not"])
def test_questions_about_values(name):
    x = np.array([[0.0, 1.0, np.nan], [np.inf, -np.inf, -2.0]])
    floats = ("float32", "float64", "float16", "bfloat16")
    check_op(getattr(flow, name), [x], getattr(np, name), dtypes=floats, grad=False)
    whole_numbers = np.array([0, 1, -5])
    assert_same(getattr(flow, name)(flow.tensor(whole_numbers)), getattr(np, name)(whole_numbers))


def test_operators():
    x, y = np.array([1, 2, 3]), np.array([3, 2, 1])
    a, b = flow.tensor(x), flow.tensor(y)
    for ours, numpys in (
        (a == b, x == y),
        (a != b, x != y),
        (a < b, x < y),
        (a <= b, x <= y),
        (a > b, x > y),
        (a >= b, x >= y),
    ):
        assert_same(ours, numpys)
    for ours, numpys in (
        (a & b, x & y),
        (a | b, x | y),
        (a ^ b, x ^ y),
        (~a, ~x),
        (1 & a, 1 & x),
        (2 > a, 2 > x),
        (y == a, y == x),
    ):
        assert_same(ours, numpys)
    assert (a == "text") is False
    assert (a != None) is True  # noqa: E711
    with pytest.raises(TypeError):
        a < "text"  # noqa: B015


def test_results_do_not_require_grad():
    x = flow.ones(3, requires_grad=True)
    for y in (x == x, x > 0, flow.logical_not(x), flow.isnan(x), flow.logical_and(x, x)):
        assert not y.requires_grad and y.dtype is flow.bool


@pytest.mark.parametrize("name", COMPARISONS)
def test_shapes_that_cannot_be_broadcast(name):
    with pytest.raises(ShapeError, match=rf"{name}: shapes \(2,\) and \(3,\) cannot be broadcast"):
        getattr(flow, name)(flow.ones(2), flow.ones(3))


@pytest.mark.parametrize("name", ["int8", "uint8", "int64"])
def test_shifts(name):
    values = np.array([[1, 3, 100], [7, 0, 5]], name)
    places = np.array([2, 0, 1], name)
    x, n = on_device(values), on_device(places)
    for ours, expected in [(x << n, values << places), (x >> n, values >> places), (x >> 1, values >> 1)]:
        assert ours.dtype is x.dtype
        np.testing.assert_array_equal(ours.cpu().numpy(), expected)
    np.testing.assert_array_equal((1 << n).cpu().numpy(), 1 << places)
    x <<= 1
    assert as_array(x)[1].tolist() == [14, 0, 10]


@pytest.mark.parametrize("kind", [flow.float32, flow.bool])
def test_shifts_refuse_what_is_not_an_integer(kind):
    x = flow.ones(2).to(kind)
    with pytest.raises(DTypeError, match="bitwise_left_shift: got .*expected integers"):
        flow.bitwise_left_shift(x, x)
