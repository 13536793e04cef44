"""Combining at indices: NaN, integers, places named twice, views, and what is refused."""

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError

nan = np.nan


def test_nan_is_an_extremum():
    index, src = flow.tensor([0, 0, 1]), flow.tensor([nan, 1.0, 2.0])
    for reduce in ("amax", "amin"):
        y = flow.zeros(3).scatter_reduce(0, index, src, reduce, include_self=False)
        assert_same(y, np.array([nan, 2, 0], np.float32))


def test_integers_and_no_dims():
    index, src = flow.tensor([0, 0, 1, 0]), flow.tensor([3, 4, 5, 6])
    x = flow.tensor([2, 7, 1])
    assert x.scatter_reduce(0, index, src, "prod").tolist() == [144, 35, 1]
    assert x.scatter_reduce(0, index, src, "mean", include_self=False).tolist() == [4, 5, 1]
    assert x.scatter_reduce(0, index, src, "amin").tolist() == [2, 5, 1]
    assert flow.tensor(2.0).scatter_reduce(0, flow.tensor(0), flow.tensor(3.0), "prod").item() == 6.0
    assert x.scatter(0, flow.tensor([1]), value=9).tolist() == [2, 9, 1]
    assert x.scatter(0, index, 2, reduce="multiply").tolist() == [16, 14, 1]


def test_in_place_forms_write_through_views():
    x = flow.zeros(2, 3)
    x[0].index_fill_(0, flow.tensor([0, -1]), 1.0)
    x[1].index_put_((flow.tensor([1, 1]),), flow.tensor([2.0, 3.0]), accumulate=True)
    x.masked_scatter_(x == 0, flow.tensor([7.0, 8.0, 9.0]))
    assert x.tolist() == [[1, 7, 1], [8, 5, 9]]


def test_index_put():
    x = flow.zeros(2, 3, requires_grad=True)
    values = flow.tensor([1.0, 2.0], requires_grad=True)
    y = x.index_put((flow.tensor([0, 1]), flow.tensor([2, 0])), values)
    assert y.tolist() == [[0, 0, 1], [2, 0, 0]]
    y = x.index_put((flow.tensor([True, False]),), flow.tensor(4.0), accumulate=True)
    assert y.tolist() == [[4, 4, 4], [0, 0, 0]]
    for accumulate in (False, True):
        y = x.index_put((flow.tensor(1), flow.tensor(-1)), flow.tensor(4.0), accumulate)
        assert y.tolist() == [[0, 0, 0], [0, 0, 4]]
    (g,) = flow.autograd.grad(
        (x.index_put((flow.tensor([0, 0]),), values[:, None], True) * flow.arange(6.0).view(2, 3)).sum(), [values]
    )
    assert_close(g, np.array([3, 3], np.float32))


def test_refused():
    x = flow.ones(2, 3)
    with pytest.raises(ArgumentError, match="scatter_reduce: got reduce='max'"):
        x.scatter_reduce(0, flow.zeros(1, 1, dtype=flow.int64), x, "max")
    with pytest.raises(ArgumentError, match="scatter: got reduce='sum'"):
        x.scatter(0, flow.zeros(1, 1, dtype=flow.int64), x, reduce="sum")
    with pytest.raises(ShapeError, match=r"select_scatter: got a src of shape \(3,\); expected \(2,\)"):
        x.select_scatter(flow.ones(3), 1, 0)
    with pytest.raises(ShapeError, match=r"index_copy: got a source of shape \(2, 3\); expected \(1, 3\)"):
        x.index_copy(0, flow.tensor([0]), x)
    with pytest.raises(ShapeError, match="index_fill: got a value of shape"):
        x.index_fill(0, flow.tensor([0]), flow.ones(2))
    with pytest.raises(DTypeError, match="masked_scatter: got miniflow.float32, a mask of miniflow.int64"):
        x.masked_scatter(flow.ones(2, 3, dtype=flow.int64), x)
    with pytest.raises(DTypeError, match="index_put: got miniflow.float32 and values of miniflow.int64"):
        x.index_put((flow.tensor([0]),), flow.tensor([1]))
    with pytest.raises(IndexRangeError):
        x.masked_scatter(x > 0, flow.ones(4))
    with pytest.raises(IndexRangeError):
        x.take(flow.tensor([6]))
