"""Layer norm and its gradients against NumPy in float64, in all ways to hold a row."""

import numpy as np
import pytest
from checks import assert_close
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.kernels import layer_norm as kernels

EPS = 1e-3
BLOCK = 256


def inputs(rows, width, kind=np.float32):
    """x far from zero, weight and bias."""
    return [
        (10 + draw.normal(size=(rows, width))).astype(kind),
        *(draw.uniform(0.5, 2, width).astype(kind) for _ in "wb"),
    ]


def nans(shape, kind=np.float32):
    return np.full(shape, np.nan, kind)


def statistics(x):
    x = x.astype(np.float64)
    return x.mean(1), 1 / np.sqrt(x.var(1) + EPS)


def forward(kernel, x, weight, bias, grid, block, shared=0):
    y, mean, rstd = nans(x.shape, x.dtype), nans(len(x), np.float64), nans(len(x), np.float64)
    kernel[grid, block, 0, shared](x, weight, bias, EPS, y, mean, rstd)
    return y, mean, rstd


def assert_normalized(x, weight, bias, y, mean, rstd):
    expected_mean, expected_rstd = statistics(x)
    assert_close(mean, expected_mean, rtol=1e-6)
    assert_close(rstd, expected_rstd, rtol=1e-5)
    expected = (x.astype(np.float64) - expected_mean[:, None]) * expected_rstd[:, None] * weight + bias
    assert_close(y, expected.astype(x.dtype), atol=2e-5)


WARP_ROWS = [(1, 1, 1), (7, 31, 1), (9, 32, 1), (3, 33, 2), (8, 64, 2), (2, 1000, 32)]
BLOCK_ROWS = [(3, 1), (2, 255), (1, 256), (4, 257), (2, 1500)]


@pytest.mark.parametrize("rows, width, values", WARP_ROWS)
def test_warp_rows(rows, width, values):
    x, weight, bias = inputs(rows, width)
    results = forward(kernels.warp_rows(values), x, weight, bias, -(-rows // 8), BLOCK)
    assert_normalized(x, weight, bias, *results)


@pytest.mark.parametrize("rows, width", BLOCK_ROWS)
@pytest.mark.parametrize("cached", [True, False])
def test_block_rows(rows, width, cached):
    x, weight, bias = inputs(rows, width)
    kernel = kernels.cached_rows if cached else kernels.long_rows
    results = forward(kernel, x, weight, bias, rows, 256, 4 * width if cached else 0)
    assert_normalized(x, weight, bias, *results)


def test_float64():
    x, weight, bias = inputs(3, 70, np.float64)
    y, mean, rstd = forward(kernels.cached_rows, x, weight, bias, 3, 256, 8 * 70)
    expected_mean, expected_rstd = statistics(x)
    assert_close(y, (x - expected_mean[:, None]) * expected_rstd[:, None] * weight + bias)


def gradients(dy, x, weight):
    """dx, and the terms of dweight and dbias."""
    mean, rstd = (s[:, None] for s in statistics(x))
    xhat, dy = (x - mean) * rstd, dy.astype(np.float64)
    g = dy * weight
    return rstd * (g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True)), dy * xhat, dy


def backward_inputs(rows, width):
    x, weight, _ = inputs(rows, width)
    return draw.normal(size=x.shape).astype(np.float32), x, weight, *statistics(x)


def assert_gradient(dx, dy, x, weight):
    assert_close(dx, gradients(dy, x, weight)[0].astype(np.float32), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("rows, width, values", WARP_ROWS)
def test_gradient_by_warps(rows, width, values):
    dy, x, weight, mean, rstd = backward_inputs(rows, width)
    dx = nans(x.shape)
    kernels.warp_rows_grad(values)[-(-rows // 8), BLOCK](dy, x, weight, mean, rstd, dx)
    assert_gradient(dx, dy, x, weight)


@pytest.mark.parametrize("rows, width", BLOCK_ROWS)
def test_gradient_by_blocks(rows, width):
    dy, x, weight, mean, rstd = backward_inputs(rows, width)
    dx = nans(x.shape)
    kernels.long_rows_grad[rows, 256](dy, x, weight, mean, rstd, dx)
    assert_gradient(dx, dy, x, weight)


@pytest.mark.parametrize("rows, width, chunk", [(1, 1, 8), (7, 31, 7), (8, 32, 8), (65, 33, 20), (100, 70, 64)])
def test_parameter_gradients(rows, width, chunk):
    dy, x, weight, mean, rstd = backward_inputs(rows, width)
    parts = -(-rows // chunk)
    dweight, dbias = nans((parts, width)), nans((parts, width))
    kernels.parameter_grad_parts[(-(-width // 32), parts), 32](dy, x, mean, rstd, chunk, dweight, dbias)
    _, products, sums = gradients(dy, x, weight)
    for part in range(parts):
        rows_of_part = slice(part * chunk, (part + 1) * chunk)
        assert_close(dweight[part], products[rows_of_part].sum(0).astype(np.float32), rtol=1e-4, atol=2e-5)
        assert_close(dbias[part], sums[rows_of_part].sum(0).astype(np.float32), atol=1e-5)


def test_parameter_gradients_of_several_rows_together():
    dy, x, weight, mean, rstd = backward_inputs(15, 7)
    dweight, dbias = nans((2, 21)), nans((2, 21))
    arrays = [a.reshape(5, 21) for a in (dy, x)]
    kernels.parameter_grad_parts[(1, 2), 32](*arrays, mean, rstd, 3, dweight, dbias)
    _, products, sums = gradients(dy, x, weight)
    for terms, found in ((products, dweight), (sums, dbias)):
        terms = terms.reshape(5, 21)
        assert_close(found, np.stack([terms[:3].sum(0), terms[3:].sum(0)]).astype("f"), rtol=1e-4, atol=2e-5)


def forward_arguments(rows, width):
    return [*inputs(rows, width), EPS, nans((rows, width)), nans(rows, np.float64), nans(rows, np.float64)]


def gradient_arguments(rows, width):
    return [*backward_inputs(rows, width), nans((rows, width))]


def part_arguments(rows, width, chunk):
    dy, x, _, mean, rstd = backward_inputs(rows, width)
    return [dy, x, mean, rstd, chunk, nans((-(-rows // chunk), width)), nans((-(-rows // chunk), width))]


CASES = [
    Case("warp rows", kernels.warp_rows(2), lambda: forward_arguments(9, 35), 2, BLOCK),
    Case("cached rows", kernels.cached_rows, lambda: forward_arguments(2, 70), 2, 64, 280),
    Case("long rows", kernels.long_rows, lambda: forward_arguments(2, 70), 2, 64),
    Case("warp rows grad", kernels.warp_rows_grad(2), lambda: gradient_arguments(9, 35), 2, BLOCK),
    Case("long rows grad", kernels.long_rows_grad, lambda: gradient_arguments(2, 70), 2, 64),
    Case("parameter grad parts", kernels.parameter_grad_parts, lambda: part_arguments(21, 35, 16), (2, 2), 32),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
