"""Sorting: ties, NaN, dtypes, and what is refused."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow.errors import ArgumentError, DimError, DTypeError, ShapeError

nan = np.nan


def test_equal_ones_keep_their_order_if_asked():
    x = flow.tensor([2, 1, 2, 1] * 20, dtype=flow.uint8)
    assert_same(x.sort(stable=True).indices, np.argsort(x.numpy(), kind="stable"))
    assert_same(x.argsort(descending=True, stable=True), np.argsort(-x.numpy().astype(int), kind="stable"))


def test_nan_is_the_largest():
    x = flow.tensor([nan, 1.0, 3.0, 2.0])
    assert_same(x.sort().values, np.array([1, 2, 3, nan], np.float32))
    assert_same(x.sort(descending=True).indices, np.array([0, 2, 3, 1]))
    assert_same(x.topk(2).values, np.array([nan, 3], np.float32))
    assert (x.median(0).indices.item(), x.nanmedian().item()) == (0, 2.0)
    assert_same(x.median(), np.float32(nan).reshape(()))
    assert_same(x.quantile(0.5), np.float32(nan).reshape(()))
    assert x.nanquantile(0.25).item() == 1.5


def test_no_dims_and_no_elements():
    assert [y.item() for y in flow.tensor(1.5).sort()] == [1.5, 0]
    assert flow.tensor(1.5).quantile(0.5).item() == 1.5
    assert flow.zeros(0, 3).sort(0).values.shape == (0, 3)
    assert flow.zeros(2, 3).topk(0).indices.shape == (2, 0)


def test_named_results():
    x = flow.tensor([[3, 1, 2], [1, 1, 0]])
    assert x.kthvalue(2, keepdim=True).values.tolist() == [[2], [1]]
    assert x.mode().values.tolist() == [1, 1]
    assert flow.topk(x, 1, largest=False).values.tolist() == [[1], [0]]


def test_refused():
    x = flow.ones(2, 3)
    with pytest.raises(ShapeError, match="topk: got k=4 for dim 1"):
        x.topk(4)
    with pytest.raises(ShapeError, match="kthvalue: got k=0"):
        x.kthvalue(0)
    with pytest.raises(DimError):
        x.sort(2)
    assert flow.zeros(0).median().isnan().item()
    with pytest.raises(ArgumentError, match="quantile: got q=1.5"):
        x.quantile(1.5)
    with pytest.raises(ArgumentError, match="quantile: got interpolation='cubic'"):
        x.quantile(0.5, interpolation="cubic")
    with pytest.raises(DTypeError, match="nanquantile: got miniflow.float32 and a q of miniflow.float64"):
        x.nanquantile(flow.tensor([0.5], dtype=flow.float64))
