"""Batch norm and its gradients against NumPy in float64, for planes around the sizes of warps and segments."""

import numpy as np
import pytest
from checks import assert_close
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.kernels import batch_norm as kernels
from miniflow.kernels.batch_norm import SEGMENT

EPS = 1e-3
BLOCK = 64  # two warps
SHAPES = [(1, 1, 2), (2, 3, 31), (5, 2, 33), (1, 3, 200), (3, 2, SEGMENT), (2, 3, SEGMENT + 1)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def nans(shape, kind=np.float64):
    return np.full(shape, np.nan, kind)


def inputs(shape):
    """x far from zero, dy, and weight and bias of the channels."""
    x, dy = 5 + draw.normal(size=shape), draw.normal(size=shape)
    weight, bias = draw.uniform(0.5, 2, shape[1]), draw.normal(size=shape[1])
    return [v.astype(np.float32) for v in (x, dy, weight, bias)]


def launch_of(shape):
    """The grid for the planes of a shape, and the shape of what is kept of the segments."""
    segments = -(-shape[2] // SEGMENT)
    return (shape[0] * shape[1], segments), (shape[1], shape[0] * segments)


def planes(x):
    """A view of (images, channels, size) as the kernels take it."""
    return x.reshape(-1, x.shape[2])


def statistics(x):
    x = x.astype(np.float64)
    return x.mean((0, 2)), x.var((0, 2))


def normalized(x):
    mean, var = statistics(x)
    return (x - mean[:, None]) / np.sqrt(var + EPS)[:, None]


@shapes
def test_statistics(shape):
    x = inputs(shape)[0]
    grid, kept = launch_of(shape)
    parts = [nans(kept) for _ in range(3)]
    kernels.channel_statistics[grid, BLOCK](planes(x), *parts)
    mean, var = nans(shape[1]), nans(shape[1])
    kernels.merge_statistics[shape[1], 32](*parts, mean, var)
    expected = statistics(x)
    assert_close(mean, expected[0], rtol=1e-6)
    assert_close(var, expected[1], rtol=1e-5)


@shapes
def test_normalize(shape):
    x, _, weight, bias = inputs(shape)
    y = nans(shape, np.float32)
    grid, kept = launch_of(shape)
    kernels.ALONE.normalize[grid, BLOCK](planes(x), planes(x), *statistics(x), weight, bias, EPS, planes(y))
    assert_close(y, (normalized(x) * weight[:, None] + bias[:, None]).astype(np.float32), atol=2e-5)


@shapes
@pytest.mark.parametrize("training", [True, False])
def test_gradients(shape, training):
    x, dy, weight, _ = inputs(shape)
    mean, var = statistics(x)
    grid, kept = launch_of(shape)
    parts = [nans(kept) for _ in range(2)]
    kernels.ALONE.products[grid, BLOCK](planes(dy), planes(dy), planes(x), mean, *parts)
    dweight, dbias, dx = nans(shape[1]), nans(shape[1]), nans(shape, np.float32)
    kernels.merge_products[shape[1], 32](*parts, var, EPS, dweight, dbias)
    wide, xhat = dy.astype(np.float64), normalized(x)
    expected = (wide * xhat).sum((0, 2)), wide.sum((0, 2))
    assert_close(dweight, expected[0], rtol=1e-4, atol=1e-4)
    assert_close(dbias, expected[1], rtol=1e-4, atol=1e-4)
    kernels.ALONE.gradient[grid, BLOCK](
        planes(dy), planes(dy), planes(x), mean, var, weight, EPS, training, *expected, planes(dx)
    )
    count = shape[0] * shape[2]
    if training:
        wide = wide - (expected[1][:, None] + xhat * expected[0][:, None]) / count
    assert_close(dx, (wide * (weight / np.sqrt(var + EPS))[:, None]).astype(np.float32), rtol=1e-4, atol=2e-5)


def far_from_zero():
    return (1e4 + draw.normal(size=(64, 2, 50))).astype(np.float32)


def test_variance_of_values_far_from_zero():
    x = far_from_zero()
    parts, mean, var = [nans((2, 64)) for _ in range(3)], nans(2), nans(2)
    kernels.channel_statistics[128, BLOCK](planes(x), *parts)
    kernels.merge_statistics[2, 32](*parts, mean, var)
    assert_close(var, statistics(x)[1], rtol=2e-3)


SHAPE = (3, 3, 35)
PARTS = (3, 3)


def with_statistics():
    x, dy, weight, bias = inputs(SHAPE)
    return x, dy, weight, bias, *statistics(x)


def gradient_arguments(training):
    x, dy, weight, _, mean, var = with_statistics()
    return [
        planes(dy),
        planes(dy),
        planes(x),
        mean,
        var,
        weight,
        EPS,
        training,
        np.ones(3),
        np.ones(3),
        planes(nans(SHAPE, np.float32)),
    ]


def normalize_arguments():
    x, _, weight, bias, mean, var = with_statistics()
    return [planes(x), planes(x), mean, var, weight, bias, EPS, planes(nans(SHAPE, np.float32))]


def product_arguments():
    x, dy, _, _, mean, _ = with_statistics()
    return [planes(dy), planes(dy), planes(x), mean, nans(PARTS), nans(PARTS)]


CASES = [
    Case(
        "statistics",
        kernels.channel_statistics,
        lambda: [planes(inputs(SHAPE)[0]), *(nans(PARTS) for _ in "cms")],
        9,
        BLOCK,
    ),
    Case(
        "merge statistics",
        kernels.merge_statistics,
        lambda: [*(np.ones(PARTS) for _ in "cms"), nans(3), nans(3)],
        3,
        32,
    ),
    Case("normalize", kernels.ALONE.normalize, normalize_arguments, 9, BLOCK),
    Case("products", kernels.ALONE.products, product_arguments, 9, BLOCK),
    Case(
        "merge products",
        kernels.merge_products,
        lambda: [np.ones(PARTS), np.ones(PARTS), np.ones(3), EPS, nans(3), nans(3)],
        3,
        32,
    ),
    Case("gradient in training", kernels.ALONE.gradient, lambda: gradient_arguments(True), 9, BLOCK),
    Case("gradient", kernels.ALONE.gradient, lambda: gradient_arguments(False), 9, BLOCK),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
