"""Comparisons, logic and bits: operators, shifts, refusals; `samples.py` has the rest."""

import numpy as np
import pytest
from checks import as_array, assert_same, on_device

import miniflow as flow
from miniflow.errors import DTypeError


def test_bits_of_floats_are_refused():
    for name, count in (("bitwise_and", 2), ("bitwise_or", 2), ("bitwise_xor", 2), ("bitwise_not", 1)):
        with pytest.raises(DTypeError, match=rf"{name}: got .*float32.*expected integers or bools"):
            getattr(flow, name)(*[flow.ones(2)] * count)


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
