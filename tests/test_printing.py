"""The printed form of tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import miniflow as flow
from miniflow.ops.printing import set_printoptions


@pytest.fixture(autouse=True)
def default_options() -> Iterator[None]:
    """Each test starts and ends with the default options."""
    set_printoptions(profile="default")
    yield
    set_printoptions(profile="default")


@pytest.mark.parametrize(
    "data, expected",
    [
        ([[1.0, 2.0]], "tensor([[1., 2.]], dtype=miniflow.float32)"),
        ([1, 20, -3], "tensor([ 1, 20, -3], dtype=miniflow.int64)"),
        ([True, False], "tensor([ True, False], dtype=miniflow.bool)"),
        (2.5, "tensor(2.5000, dtype=miniflow.float32)"),
        (7, "tensor(7, dtype=miniflow.int64)"),
        (True, "tensor(True, dtype=miniflow.bool)"),
        ([], "tensor([], dtype=miniflow.float32)"),
        ([[], []], "tensor([], size=(2, 0), dtype=miniflow.float32)"),
        ([0.0, float("nan"), float("-inf")], "tensor([0., nan, -inf], dtype=miniflow.float32)"),
        ([1.5, float("nan"), float("inf")], "tensor([1.5000,    nan,    inf], dtype=miniflow.float32)"),
        ([1.0, 10000.0], "tensor([1.0000e+00, 1.0000e+04], dtype=miniflow.float32)"),
        ([1.0, 1000.0], "tensor([   1., 1000.], dtype=miniflow.float32)"),
        ([1e-5], "tensor([1.0000e-05], dtype=miniflow.float32)"),
        ([-1e-4], "tensor([-1.0000e-04], dtype=miniflow.float32)"),
        ([0.5, 0.0], "tensor([0.5000, 0.0000], dtype=miniflow.float32)"),
        ([2e8], "tensor([2.0000e+08], dtype=miniflow.float32)"),
        (
            [[[1], [2]], [[3], [4]]],
            "tensor([[[1],\n         [2]],\n\n        [[3],\n         [4]]], dtype=miniflow.int64)",
        ),
    ],
)
def test_small_tensors(data, expected):
    assert repr(flow.tensor(data)) == expected
    assert str(flow.tensor(data)) == expected


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "int8", "uint8", "int32"])
def test_dtypes(kind):
    text = repr(flow.tensor([1, 2], dtype=getattr(flow, kind)))
    numbers = "1., 2." if "float" in kind else "1, 2"
    assert text == f"tensor([{numbers}], dtype=miniflow.{kind})"


def test_the_place_on_the_tape():
    x = flow.tensor([1.0], requires_grad=True)
    assert repr(x) == "tensor([1.], dtype=miniflow.float32, requires_grad=True)"
    assert repr(x + 1) == "tensor([2.], dtype=miniflow.float32, grad_fn=<add_backward>)"
    assert repr((x + 1).detach()) == "tensor([2.], dtype=miniflow.float32)"
    empty = flow.zeros(0, 2, requires_grad=True)
    assert repr(empty) == "tensor([], size=(0, 2), dtype=miniflow.float32, requires_grad=True)"


def test_long_lines_break():
    assert repr(flow.arange(30)) == (
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29], dtype=miniflow.int64)"
    )
    assert repr(flow.arange(16.0)) == (
        "tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n"
        "        14., 15.], dtype=miniflow.float32)"
    )
    assert repr(flow.full((8,), 123456)) == (
        "tensor([123456, 123456, 123456, 123456, 123456, 123456, 123456, 123456],\n       dtype=miniflow.int64)"
    )


def test_large_tensors_are_summarised():
    assert repr(flow.arange(1001)) == "tensor([   0,    1,    2,  ...,  998,  999, 1000], dtype=miniflow.int64)"
    assert "..." not in repr(flow.arange(1000))
    assert repr(flow.arange(2000).reshape(20, 100)) == (
        "tensor([[   0,    1,    2,  ...,   97,   98,   99],\n"
        "        [ 100,  101,  102,  ...,  197,  198,  199],\n"
        "        [ 200,  201,  202,  ...,  297,  298,  299],\n"
        "        ...,\n"
        "        [1700, 1701, 1702,  ..., 1797, 1798, 1799],\n"
        "        [1800, 1801, 1802,  ..., 1897, 1898, 1899],\n"
        "        [1900, 1901, 1902,  ..., 1997, 1998, 1999]], dtype=miniflow.int64)"
    )


def test_views_print_their_own_elements():
    x = flow.arange(6).reshape(2, 3)
    assert repr(x.T) == "tensor([[0, 3],\n        [1, 4],\n        [2, 5]], dtype=miniflow.int64)"
    assert repr(x[:, ::2]) == "tensor([[0, 2],\n        [3, 5]], dtype=miniflow.int64)"


def test_options():
    x = flow.tensor([1 / 3, 2.0])
    set_printoptions(precision=2)
    assert repr(x) == "tensor([0.33, 2.00], dtype=miniflow.float32)"
    set_printoptions(sci_mode=True)
    assert repr(x) == "tensor([3.33e-01, 2.00e+00], dtype=miniflow.float32)"
    set_printoptions(sci_mode=False, precision=3)
    assert repr(flow.tensor([1e-6, 1.5])) == "tensor([0.000, 1.500], dtype=miniflow.float32)"
    set_printoptions(profile="default", threshold=4, edgeitems=1)
    assert repr(flow.arange(5)) == "tensor([0,  ..., 4], dtype=miniflow.int64)"
    set_printoptions(profile="default", linewidth=20)
    assert repr(flow.arange(6)) == "tensor([0, 1, 2, 3,\n        4, 5],\n       dtype=miniflow.int64)"
    set_printoptions(profile="short")
    assert repr(x) == "tensor([0.33, 2.00], dtype=miniflow.float32)"
    set_printoptions(profile="full")
    assert "..." not in repr(flow.zeros(1500))


def test_format():
    assert f"{flow.tensor(1.23456):.2f}" == "1.23"
    assert f"{flow.tensor([1])}" == "tensor([1], dtype=miniflow.int64)"
    assert repr(flow.zeros(2, 3).shape) == "miniflow.Size([2, 3])"
    assert repr(flow.from_numpy(np.array(2.5))) == "tensor(2.5000, dtype=miniflow.float64)"
