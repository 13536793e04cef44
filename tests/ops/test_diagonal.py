"""Triangles and diagonals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from checks import assert_same, check_op

import miniflow as flow
from miniflow.errors import ShapeError


@pytest.mark.parametrize("diagonal", [-4, -1, 0, 1, 2, 6])
@pytest.mark.parametrize("shape", [(4, 5), (5, 4), (2, 3, 3)])
def test_tril_and_triu(shape, diagonal):
    x = np.random.default_rng(0).standard_normal(shape)
    for function, reference in ((flow.tril, np.tril), (flow.triu, np.triu)):
        kept = reference(np.ones(shape), diagonal)
        check_op(
            lambda x, f=function: f(x, diagonal),
            [x],
            lambda x, kept=kept: np.where(kept, x, 0),
            dtypes=("float32", "float64", "float16", "bfloat16", "int64", "uint8"),
            gradient="dense" if kept.mean() > 0.5 else "sparse" if kept.any() else "zero",
        )


def test_triangles_of_infinities_and_of_nothing():
    x = flow.full((2, 2), math.inf)
    assert_same(x.tril(), np.array([[math.inf, 0], [math.inf, math.inf]], np.float32))
    assert_same(x.triu(1), np.array([[0, math.inf], [0, 0]], np.float32))
    assert flow.zeros(0, 3).tril().shape == (0, 3)
    assert_same(flow.ones(2, 2, dtype=flow.bool).triu(1), np.array([[False, True], [False, False]]))


@pytest.mark.parametrize("diagonal", [-2, 0, 1])
def test_diag_of_a_vector(diagonal):
    x = np.random.default_rng(0).standard_normal(3)
    check_op(
        lambda x: flow.diag(x, diagonal), [x], lambda x: np.diag(x, diagonal), dtypes=("float32", "float64", "int64")
    )


@pytest.mark.parametrize("diagonal", [-3, -1, 0, 2, 5])
def test_diag_of_a_matrix(diagonal):
    x = np.random.default_rng(0).standard_normal((3, 5))
    check_op(
        lambda x: flow.diag(x, diagonal),
        [x],
        lambda x: np.diag(x, diagonal),
        dtypes=("float32", "float64", "int64"),
        gradient="zero" if diagonal in (-3, 5) else "sparse",
    )


def test_diag_is_a_copy():
    x = flow.ones(2, 2)
    x.diag().fill_(5)
    assert_same(x, np.ones((2, 2), np.float32))
    assert flow.diag(flow.ones(2, 3), 4).shape == (0,)
    assert flow.diag(flow.zeros(0)).shape == (0, 0) and flow.diag(flow.zeros(0), 2).shape == (2, 2)


ERRORS = [
    (
        lambda: flow.tril(flow.ones(3)),
        ShapeError,
        r"tril: got a tensor of shape \(3,\); expected matrices, at least 2 dims",
    ),
    (lambda: flow.triu(flow.tensor(1.0)), ShapeError, r"triu: got a tensor of shape \(\); expected matrices"),
    (
        lambda: flow.diag(flow.ones(2, 2, 2)),
        ShapeError,
        r"diag: got shape \(2, 2, 2\); expected a vector or a matrix",
    ),
]


@pytest.mark.cpu_only("arguments are checked before a kernel is chosen")
def test_errors():
    for action, error, message in ERRORS:
        with pytest.raises(error, match=message):
            action()
