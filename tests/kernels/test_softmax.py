"""Softmax, log-softmax and their gradients against NumPy in float64, by warps and by blocks."""

import numpy as np
import pytest
from checks import assert_close
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.kernels import softmax

WARP, BLOCK = 32, 256
SHAPES = [
    (1, 1, WARP),
    (7, 31, WARP),
    (9, 33, WARP),
    (3, 1000, WARP),
    (2, 255, BLOCK),
    (1, 257, BLOCK),
    (3, 1025, BLOCK),
]
shapes = pytest.mark.parametrize("rows, width, block", SHAPES)


def log_softmax(x):
    x = x.astype(np.float64)
    shifted = x - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


SOFTMAX = softmax.cached_softmax_rows, softmax.long_softmax_rows
LOG_SOFTMAX = softmax.cached_log_softmax_rows, softmax.long_log_softmax_rows


def forward(kernel, x, block):
    y = np.full(x.shape, np.nan, x.dtype)
    cached = kernel in (SOFTMAX[0], LOG_SOFTMAX[0])
    kernel[x.shape[0], block, 0, x.shape[1] * x.itemsize if cached else 0](x, y)
    return y


def backward(kernel, dy, y, block):
    dx = np.full(y.shape, np.nan, y.dtype)
    kernel[y.shape[0], block](dy, y, dx)
    return dx


@shapes
def test_forward(rows, width, block):
    x = (5 * draw.normal(size=(rows, width))).astype(np.float32)
    for kernel in SOFTMAX:
        assert_close(forward(kernel, x, block), np.exp(log_softmax(x)).astype(np.float32))
    for kernel in LOG_SOFTMAX:
        assert_close(forward(kernel, x, block), log_softmax(x).astype(np.float32))


@shapes
def test_gradients(rows, width, block):
    dy = draw.normal(size=(rows, width)).astype(np.float32)
    log_y = log_softmax(draw.normal(size=(rows, width))).astype(np.float32)
    y, wide = np.exp(log_y), dy.astype(np.float64)
    expected = y * (wide - (wide * y).sum(1, keepdims=True))
    assert_close(backward(softmax.softmax_grad_rows, dy, y, block), expected.astype(np.float32))
    expected = wide - np.exp(log_y.astype(np.float64)) * wide.sum(1, keepdims=True)
    assert_close(backward(softmax.log_softmax_grad_rows, dy, log_y, block), expected.astype(np.float32), atol=1e-5)


@pytest.mark.parametrize("block", [WARP, BLOCK])
def test_nan_infinities_and_float64(block):
    nan, inf = np.nan, np.inf
    x = np.array([[nan, 1, 2], [-inf, -inf, -inf], [inf, 1, 2], [-inf, 3, 3]])
    expected = np.array([[nan] * 3] * 3 + [[0, 0.5, 0.5]])
    with np.errstate(divide="ignore"):
        log_expected = np.log(expected)
    for kernel, log_kernel in zip(SOFTMAX, LOG_SOFTMAX, strict=True):
        assert_close(forward(kernel, x, block), expected)
        assert_close(forward(log_kernel, x, block), log_expected)


def test_large_logits():
    x = (1e4 + np.arange(8).reshape(2, 4)).astype(np.float32)
    for kernel in LOG_SOFTMAX:
        assert_close(forward(kernel, x, WARP), log_softmax(x).astype(np.float32), rtol=1e-6)


def numbers(shape):
    return draw.normal(size=shape).astype(np.float32)


def arguments(inputs, rows, width):
    return lambda: [*(numbers((rows, width)) for _ in range(inputs)), np.full((rows, width), np.nan, np.float32)]


CASES = [
    Case(f"{name} {block}", kernel, arguments(inputs, rows, width), grid, block, 4 * width if "cached" in name else 0)
    for name, kernel, inputs in (
        ("cached softmax", softmax.cached_softmax_rows, 1),
        ("long softmax", softmax.long_softmax_rows, 1),
        ("cached log softmax", softmax.cached_log_softmax_rows, 1),
        ("long log softmax", softmax.long_log_softmax_rows, 1),
        ("softmax grad", softmax.softmax_grad_rows, 2),
        ("log softmax grad", softmax.log_softmax_grad_rows, 2),
    )
    for rows, width, grid, block in ((3, 35, 3, WARP), (2, 70, 2, 64))
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
