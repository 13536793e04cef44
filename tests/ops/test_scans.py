"""Scans at ties, NaN, infinities and zeros, and what they refuse."""

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow.errors import ArgumentError, DimError, DTypeError


def test_extrema_take_the_last_of_equal_ones_and_nan_stays():
    x = flow.tensor([1.0, 3.0, 3.0, 2.0, np.nan, 5.0, np.nan])
    values, indices = x.cummax(0)
    assert_same(values, np.array([1, 3, 3, 3, np.nan, np.nan, np.nan], np.float32))
    assert_same(indices, np.array([0, 1, 2, 2, 4, 4, 6]))
    assert flow.cummin(flow.tensor([2, 1, 1], dtype=flow.int8), 0).indices.tolist() == [0, 1, 2]


def test_no_dims():
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        assert_same(getattr(flow.tensor(1.5), name)(0), np.float32(1.5).reshape(()))
    assert [y.item() for y in flow.tensor(1.5).cummax(0)] == [1.5, 0]


def test_logcumsumexp_of_infinities():
    x = flow.tensor([-np.inf, -np.inf, 10.0, 11.0, np.inf, 0.0])
    y = x.logcumsumexp(0)
    assert_close(y, np.array([-np.inf, -np.inf, 10, 11.3132617, np.inf, np.inf], np.float32))
    x = x[:4].requires_grad_()
    (g,) = flow.autograd.grad(x.logcumsumexp(0)[2:].sum(), [x])
    assert_close(g, np.array([0, 0, 1 + 1 / (1 + np.e), 1 / (1 + 1 / np.e)], np.float32))


def test_dtypes():
    x = flow.tensor([True, True, False])
    assert_same(x.cumsum(0), np.array([1, 2, 2]))
    assert_same(flow.tensor([100, 100], dtype=flow.int8).cumsum(0, dtype=flow.float64), np.array([100.0, 200.0]))
    assert_same(x.diff(), np.array([False, True]))


def test_refused():
    with pytest.raises(DimError):
        flow.ones(2, 3).cumsum(2)
    with pytest.raises(DTypeError, match="logcumsumexp: got int64"):
        flow.tensor([1, 2]).logcumsumexp(0)
    with pytest.raises(ArgumentError, match="diff: got n=-1"):
        flow.ones(3).diff(-1)


def test_joined_differences():
    x = flow.tensor([[1.0, 4.0], [2.0, 8.0]])
    assert flow.diff(x, prepend=flow.zeros(2, 1), append=flow.zeros(2, 2)).tolist() == [[1, 3, -4, 0], [2, 6, -8, 0]]
    same = flow.diff(x, 0, prepend=flow.zeros(2, 1))
    same.add_(1)
    assert x.tolist() == [[1, 4], [2, 8]] and same.tolist() == [[2, 5], [3, 9]]
    assert flow.trapz(flow.tensor([[1.0, 4.0], [2.0, 8.0]]), flow.tensor([1.0, 3.0]), dim=0).tolist() == [3.0, 12.0]
