"""Cross-entropy and the losses related to it against NumPy in float64."""

import numpy as np
import pytest
from checks import assert_close, assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.kernels import cross_entropy as kernels

WARP, BLOCK = 32, 256
IGNORED = -100
SHAPES = [(1, 1, WARP), (7, 31, WARP), (9, 33, WARP), (300, 10, WARP), (2, 255, BLOCK), (3, 1025, BLOCK)]
shapes = pytest.mark.parametrize("rows, classes, block", SHAPES)
options = pytest.mark.parametrize("weighted, smoothing", [(False, 0.0), (True, 0.0), (False, 0.2), (True, 0.2)])


def nans(shape, kind=np.float64):
    return np.full(shape, np.nan, kind)


def inputs(rows, classes, weighted):
    x = (3 * draw.normal(size=(rows, classes))).astype(np.float32)
    target = draw.integers(0, classes, rows)
    target[rows // 2 :: 4] = IGNORED
    return x, target, draw.uniform(0.5, 2, classes) if weighted else np.empty(0)


def log_softmax(x):
    shifted = x - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def target_weights(target, weight, smoothing, classes):
    """q_ic, and the w[t] of each row; zero in the rows to be ignored."""
    weight = weight if weight.size else np.ones(classes)
    counts = target != IGNORED
    q = np.eye(classes)[np.where(counts, target, 0)] * (1 - smoothing) + smoothing / classes
    return q * weight * counts[:, None], weight[np.where(counts, target, 0)] * counts


@options
@shapes
def test_forward(rows, classes, block, weighted, smoothing):
    x, target, weight = inputs(rows, classes, weighted)
    loss, lse, factor = nans(rows), nans(rows), nans(rows)
    kernels.cross_entropy_rows[rows, block](x, target, weight, IGNORED, smoothing, loss, lse, factor)
    q, expected_factor = target_weights(target, weight, smoothing, classes)
    wide = x.astype(np.float64)
    assert_close(loss, -(q * log_softmax(wide)).sum(1), rtol=2e-5, atol=2e-6)
    assert_close(lse, np.log(np.exp(wide).sum(1)), rtol=1e-6)
    assert_same(factor, expected_factor)


@options
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@shapes
def test_backward(rows, classes, block, reduction, weighted, smoothing):
    x, target, weight = inputs(rows, classes, weighted)
    wide = x.astype(np.float64)
    lse = np.log(np.exp(wide).sum(1))
    q, factor = target_weights(target, weight, smoothing, classes)
    dy = draw.normal(size=rows if reduction == "none" else 1).astype(np.float32)
    total = np.array([factor.sum() or 3.0])
    dx = nans(x.shape, np.float32)
    flags = reduction == "none", reduction == "mean"
    kernels.cross_entropy_grad_rows[rows, block](dy, x, target, weight, lse, total, IGNORED, *flags, smoothing, dx)
    dloss = (dy / total if reduction == "mean" else dy) * np.ones(rows)
    expected = (np.exp(log_softmax(wide)) * q.sum(1, keepdims=True) - q) * dloss[:, None]
    assert_close(dx, expected.astype(np.float32), atol=1e-6)


def test_a_target_that_is_not_a_class_makes_its_row_nan():
    x = draw.normal(size=(3, 5)).astype(np.float32)
    target, none = np.array([5, 2, -1]), np.empty(0)
    loss, lse, factor = nans(3), nans(3), nans(3)
    kernels.cross_entropy_rows[3, WARP](x, target, none, IGNORED, 0.0, loss, lse, factor)
    assert_same(np.isnan(loss), np.array([True, False, True]))
    dx = np.zeros_like(x)
    arguments = x, target, none, lse, np.ones(1), IGNORED, False, False, 0.0
    kernels.cross_entropy_grad_rows[3, WARP](np.ones(1, np.float32), *arguments, dx)
    assert_same(np.isnan(dx).all(1), np.array([True, False, True]))


@pytest.mark.parametrize("rows", [0, 1, 255, 257, 1000])
@pytest.mark.parametrize("mean", [False, True])
def test_reduce_losses(rows, mean):
    loss, factor = draw.normal(size=rows), draw.uniform(0.5, 1, rows)
    reduced, total = nans(1, np.float32), nans(1)
    kernels.reduce_losses[1, 256](loss, factor, mean, reduced, total)
    assert_close(total, factor.sum(keepdims=True))
    with np.errstate(invalid="ignore"):
        expected = loss.sum(keepdims=True) / (factor.sum() if mean else 1)
    assert_close(reduced, expected.astype(np.float32))


def rows(count, width):
    return inputs(count, width, True)


def backward_arguments(count, width):
    x, target, weight = rows(count, width)
    lse = np.log(np.exp(x.astype(np.float64)).sum(1))
    return [
        np.ones(1, np.float32),
        x,
        target,
        weight,
        lse,
        np.ones(1),
        IGNORED,
        False,
        True,
        0.1,
        nans(x.shape, np.float32),
    ]


CASES = [
    Case(
        "forward by warps",
        kernels.cross_entropy_rows,
        lambda: [*rows(9, 35), IGNORED, 0.1, nans(9), nans(9), nans(9)],
        9,
        WARP,
    ),
    Case(
        "forward by blocks",
        kernels.cross_entropy_rows,
        lambda: [*rows(2, 70), IGNORED, 0.1, nans(2), nans(2), nans(2)],
        2,
        64,
    ),
    Case("backward by warps", kernels.cross_entropy_grad_rows, lambda: backward_arguments(9, 35), 9, WARP),
    Case("backward by blocks", kernels.cross_entropy_grad_rows, lambda: backward_arguments(2, 70), 2, 64),
    Case(
        "reduce losses",
        kernels.reduce_losses,
        lambda: [np.ones(300), np.ones(300), True, nans(1, np.float32), nans(1)],
        1,
        256,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
