"""Searching and counting: NaN, empty tensors, dtypes, what graphs and arguments are refused."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, DTypeError, GraphTraceError, ShapeError


def test_rows_of_sorted_values():
    draw = np.random.default_rng(0)
    rows, x = np.sort(draw.integers(0, 9, (3, 7)), 1), draw.integers(-1, 10, (3, 5))
    for side in ("left", "right"):
        want = np.stack([np.searchsorted(r, v, side) for r, v in zip(rows, x, strict=True)])
        assert_same(flow.searchsorted(flow.tensor(rows), flow.tensor(x), side=side), want)
    order = np.array([2, 0, 1])
    unsorted = flow.tensor([5.0, 9.0, 1.0])
    assert_same(flow.searchsorted(unsorted, flow.tensor([6.0]), sorter=flow.tensor(order)), np.array([2]))
    assert flow.bucketize(3, flow.tensor([1, 3, 5]), out_int32=True).dtype is flow.int32
    assert flow.searchsorted(flow.tensor([1.0, 2.0]), flow.tensor([np.nan, 0.0])).tolist() == [2, 0]


def test_counts():
    x = flow.tensor([1, 3, 1], dtype=flow.uint8)
    assert_same(x.bincount(), np.array([0, 2, 0, 1]))
    assert_same(x.bincount(flow.tensor([0.5, 1.0, 2.0]), 6), np.array([0, 2.5, 0, 1, 0, 0], np.float32))
    assert_same(flow.tensor([], dtype=flow.int64).bincount(), np.zeros(0, np.int64))
    assert_same(flow.tensor([1.0, 1.0, np.nan]).histc(2, 0, 2), np.array([0, 2], np.float32))
    assert_same(flow.tensor([2.0, 2.0]).histc(2), np.array([0, 2], np.float32))


def test_unique():
    x = flow.tensor([2.0, np.nan, 1.0, np.nan, 2.0], dtype=flow.bfloat16)
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert values.dtype is flow.bfloat16 and values.shape == (4,)
    assert (inverse[0].item(), inverse[2].item(), counts[:2].tolist()) == (1, 0, [1, 2])
    rows = flow.tensor([[1, 2], [1, 2], [0, 5], [1, 2]])
    assert_same(rows.unique(dim=0), np.array([[0, 5], [1, 2]]))
    assert_same(rows.unique_consecutive(dim=0), np.array([[1, 2], [0, 5], [1, 2]]))
    assert_same(flow.zeros(0).unique(), np.zeros(0, np.float32))


def test_membership_of_numbers_and_of_nothing():
    x = flow.tensor([[1, 2], [3, 1]])
    assert_same(flow.isin(x, 1), np.array([[True, False], [False, True]]))
    assert_same(flow.isin(2, x), np.array(True))
    assert_same(flow.isin(x, flow.zeros(0, dtype=flow.int64), invert=True), np.ones((2, 2), bool))


@pytest.mark.parametrize("count", [flow.unique, flow.unique_consecutive, flow.bincount])
def test_graphs_refuse_shapes_that_depend_on_values(count):
    class Counting(nn.Graph):
        def build(self, x):
            return count(x)

    with pytest.raises(GraphTraceError):
        Counting()(flow.tensor([1, 2, 1]))


def test_refused():
    x = flow.tensor([1.0, 2.0])
    with pytest.raises(ArgumentError, match="searchsorted: got side='up'"):
        flow.searchsorted(x, x, side="up")
    with pytest.raises(ShapeError, match="searchsorted: got sequences of shape"):
        flow.searchsorted(flow.ones(2, 3), flow.ones(3, 3))
    with pytest.raises(DTypeError, match="bincount: got miniflow.float32"):
        x.bincount()
    with pytest.raises(ArgumentError, match="bincount: got minlength=0 or a negative element"):
        flow.tensor([-1, 2]).bincount()
    with pytest.raises(ArgumentError, match="histc: got bins=3, min=2, max=1"):
        x.histc(3, 2, 1)
    with pytest.raises(DTypeError, match="histc: got int64"):
        flow.tensor([1]).histc()
