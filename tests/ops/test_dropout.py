"""Dropout: its mask, its scale, its gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from checks import assert_same, check_op
from philox_reference import words_reference

import miniflow as flow
from miniflow.errors import ArgumentError, AutogradError, DTypeError
from miniflow.ops.dropout import dropout
from miniflow.ops.generator import Generator


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.parametrize("p", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("shape", [(5, 7), (4,), (3, 1, 2), ()])
def test_dropout_is_differentiable_to_any_order(p, shape):
    x = np.random.default_rng(1).uniform(0.5, 2, shape)
    keep = words_reference(9, 0, -(-x.size // 4)).ravel()[: x.size].reshape(shape) >= round(p * 2**32)
    check_op(
        lambda x: dropout(x, p, generator=generator(9)),
        [x],
        lambda x: np.where(keep, x / (1 - p) if p < 1 else 0.0, 0.0),
        dtypes=("float32", "float64", "float16", "bfloat16"),
        gradient="dense" if keep.mean() > 0.5 else "sparse" if keep.any() else "zero",
        graph=False,  # which refuses to seed
    )


def test_dropout_within_a_nonlinear_function_has_a_third_derivative():
    x = np.random.default_rng(1).uniform(0.5, 2, (3, 5))
    keep = words_reference(2, 0, 4).ravel()[:15].reshape(3, 5) >= round(0.25 * 2**32)

    def cube(x):
        y = dropout(x, 0.25, generator=generator(2))
        return y * y * y

    check_op(cube, [x], lambda x: np.where(keep, (x / 0.75) ** 3, 0), third=True, graph=False)


def test_dropout_statistics_and_modes(seed):
    x = flow.ones(200_000)
    y = dropout(x, 0.2, generator=generator(seed)).cpu().numpy()
    assert set(np.unique(y).tolist()) == {0.0, 1.25}
    assert abs((y == 0).mean() - 0.2) < 0.006
    assert dropout(x, 0.2, training=False) is x and dropout(x, 0.0) is x
    assert_same(dropout(flow.tensor([math.inf, math.nan]), 1.0), [0.0, 0.0])
    z = flow.ones(10)
    assert dropout(z, 0.5, inplace=True, generator=generator(1)) is z
    assert_same(z, dropout(flow.ones(10), 0.5, generator=generator(1)).cpu().numpy())


def test_dropout_in_place_has_the_gradient_of_dropout():
    results = []
    for inplace in (False, True):
        x = flow.arange(1.0, 8.0, requires_grad=True)
        y = dropout(x * 2, 0.5, inplace=inplace, generator=generator(1))
        (y * y).sum().backward()
        results.append(x.grad.cpu().numpy())
    assert results[0].any()
    assert_same(results[1], results[0])


ERRORS = [
    (lambda: dropout(flow.ones(2), 1.5), ArgumentError, r"dropout: got p=1.5; expected a probability from 0 to 1"),
    (lambda: dropout(flow.ones(2), math.nan), ArgumentError, "dropout: got p=nan"),
    (lambda: dropout(flow.tensor([1, 2])), DTypeError, "dropout: got int64; expected a floating dtype"),
    (lambda: dropout(flow.ones(2, requires_grad=True), inplace=True), AutogradError, "dropout_: a leaf tensor"),
]


@pytest.mark.cpu_only("arguments are checked before a kernel is chosen")
def test_errors():
    for action, error, message in ERRORS:
        with pytest.raises(error, match=message):
            action()
