"""Batch norm with ReLU and a shortcut: against the kernels of the single ops in NumPy's float64, and the cpu's."""

import numpy as np
import pytest
from both import on_device, results, run_kernel
from checks import assert_close
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

import miniflow.ops.normalization  # noqa: F401  (eager mode does not use these ops)
from miniflow.kernels import batch_norm as kernels
from miniflow.kernels.batch_norm import SEGMENT

EPS = 1e-3
BLOCK = 64  # two warps
SHAPES = [(1, 1, 2), (2, 3, 31), (5, 2, 33), (2, 3, SEGMENT + 1)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def inputs(shape):
    """x, z, dy, y, and weight and bias of the channels."""
    draw = np.random.default_rng(0)
    x, z, dy, y = draw.normal(size=(4, *shape))
    arrays = x, z, dy, np.maximum(y, 0), draw.uniform(0.5, 2, shape[1]), draw.normal(size=shape[1])
    return [v.astype(np.float32) for v in arrays]


def statistics(x):
    return x.astype(np.float64).mean((0, 2)), x.astype(np.float64).var((0, 2))


def launch_of(shape):
    """The grid for the planes of a shape, and the shape of what is kept of the segments."""
    segments = -(-shape[2] // SEGMENT)
    return (shape[0] * shape[1], segments), (shape[1], shape[0] * segments)


def planes(x):
    """A view of (images, channels, size) as the kernels take it."""
    return x.reshape(-1, x.shape[2])


def nans(shape, kind=np.float32):
    return np.full(shape, np.nan, kind)


@shapes
@pytest.mark.parametrize("shortcut", [True, False])
def test_normalize(shape, shortcut):
    x, z, _, _, weight, bias = inputs(shape)
    mean, var = statistics(x)
    y, (grid, _) = nans(shape), launch_of(shape)
    kernel = (kernels.ADD_RELU if shortcut else kernels.RELU).normalize
    kernel[grid, BLOCK](planes(x), planes(z), mean, var, weight, bias, EPS, planes(y))
    normal = (x - mean[:, None]) / np.sqrt(var + EPS)[:, None] * weight[:, None] + bias[:, None]
    assert_close(y, np.maximum(normal + z * shortcut, 0).astype(np.float32), atol=2e-5)


@shapes
@pytest.mark.parametrize("training", [True, False])
def test_gradients(shape, training):
    x, _, dy, y, weight, _ = inputs(shape)
    mean, var = statistics(x)
    grid, kept = launch_of(shape)
    parts = [nans(kept, np.float64) for _ in range(2)]
    kernels.RELU.products[grid, BLOCK](planes(dy), planes(y), planes(x), mean, *parts)
    g, deviation = np.where(y > 0, dy, 0).astype(np.float64), x - mean[:, None]
    assert_close(parts[0].sum(1), g.sum((0, 2)), rtol=1e-4, atol=1e-4)
    assert_close(parts[1].sum(1), (g * deviation).sum((0, 2)), rtol=1e-4, atol=1e-4)
    rstd = 1 / np.sqrt(var + EPS)
    dweight, dbias, dx = (g * deviation).sum((0, 2)) * rstd, g.sum((0, 2)), nans(shape)
    kernels.RELU.gradient[grid, BLOCK](
        planes(dy), planes(y), planes(x), mean, var, weight, EPS, training, dweight, dbias, planes(dx)
    )
    if training:
        g = g - (dbias[:, None] + deviation * (rstd * dweight)[:, None]) / (shape[0] * shape[2])
    assert_close(dx, (g * (weight * rstd)[:, None]).astype(np.float32), rtol=1e-4, atol=2e-5)


def agree_roughly(op, *arrays, **attrs):
    """Both devices give the same within the precision of float32, in which the statistics are added up."""
    wanted = results(run_kernel("cpu", op, *arrays, **attrs))
    for layout in ("contiguous", "transposed"):
        placed = [on_device(x, layout) if isinstance(x, np.ndarray) else x for x in arrays]
        for got, want in zip(results(run_kernel("cuda", op, *placed, **attrs)), wanted, strict=True):
            assert_close(got.numpy(), want, rtol=1e-4, atol=1e-5, what=f"{op}, {layout}")


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 7, 9)], ids=str)
def test_agrees_with_the_cpu(shape):
    draw = np.random.default_rng(1)
    x, z, dy, y = draw.normal(size=(4, *shape)).astype(np.float32)
    weight, bias = draw.normal(size=(2, 3)).astype(np.float32)
    mean, var = draw.normal(size=3), draw.uniform(0.5, 2, 3)
    agree_roughly("BatchNormRelu", x, weight, None, z, eps=EPS)
    agree_roughly("BatchNormRelu", x, None, bias, None, eps=EPS)
    running = mean.astype(np.float32), var.astype(np.float32)
    agree_roughly("BatchNormReluInference", x, *running, weight, bias, z, eps=EPS)
    for training in (True, False):
        given = np.maximum(y, 0), x, weight, mean, var
        agree_roughly("BatchNormReluGrad", dy, *given, eps=EPS, training=training)


SHAPE = (3, 3, 35)


def forward_arguments(shortcut):
    x, z, _, _, weight, bias = inputs(SHAPE)
    return [planes(x), planes(z), *statistics(x), weight, bias, EPS, planes(nans(SHAPE))]


def product_arguments():
    x, _, dy, y, _, _ = inputs(SHAPE)
    parts = [nans((3, 3), np.float64) for _ in range(2)]
    return [planes(dy), planes(y), planes(x), statistics(x)[0], *parts]


def gradient_arguments(training):
    x, _, dy, y, weight, _ = inputs(SHAPE)
    sums = [np.ones(3), np.ones(3)]
    return [planes(dy), planes(y), planes(x), *statistics(x), weight, EPS, training, *sums, planes(nans(SHAPE))]


CASES = [
    Case("normalize", kernels.RELU.normalize, lambda: forward_arguments(False), 9, BLOCK),
    Case("normalize and add", kernels.ADD_RELU.normalize, lambda: forward_arguments(True), 9, BLOCK),
    Case("products", kernels.RELU.products, product_arguments, 9, BLOCK),
    Case("gradient in training", kernels.RELU.gradient, lambda: gradient_arguments(True), 9, BLOCK),
    Case("gradient", kernels.RELU.gradient, lambda: gradient_arguments(False), 9, BLOCK),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
