"""Cumulative sums and products against NumPy in float64."""

from dataclasses import replace

import numpy as np
import pytest
from checks import assert_close, assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.kernels.reduce import THREADS
from miniflow.kernels.scan import CUMULATIVE_PRODUCT, CUMULATIVE_SUM

draw = np.random.default_rng(0)
SCANS = {"sum": (CUMULATIVE_SUM, np.add, 0), "product": (CUMULATIVE_PRODUCT, np.multiply, 1)}
ways = pytest.mark.parametrize("exclusive, reverse", [(False, False), (False, True), (True, False), (True, True)])


def numbers(shape):
    return (draw.uniform(0.9, 1.1, shape) * draw.choice([-1, 1], shape)).astype(np.float32)


def nans(shape):
    return np.full(shape, np.nan, np.float32)


def reference(x, ufunc, identity, exclusive, reverse, axis):
    x = np.moveaxis(x.astype(np.float64), axis, -1)
    x = x[..., ::-1] if reverse else x
    y = ufunc.accumulate(x, -1)
    if exclusive and y.shape[-1]:
        y = np.concatenate([np.full_like(y[..., :1], identity), y[..., :-1]], -1)
    return np.moveaxis(y[..., ::-1] if reverse else y, -1, axis).astype(np.float32)


@ways
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("width", [0, 1, THREADS - 1, THREADS, THREADS + 1, 3 * THREADS + 5])
def test_rows(name, width, exclusive, reverse):
    kernels, ufunc, identity = SCANS[name]
    x, y = numbers((3, width)), nans((3, width))
    kernels.rows[3, THREADS](x, np.float32(identity), exclusive, reverse, y)
    assert_close(y, reference(x, ufunc, identity, exclusive, reverse, 1), atol=1e-4)


@ways
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("shape", [(2, 7, 3), (1, 5, THREADS - 1), (2, 1, THREADS + 1)], ids=str)
def test_columns(name, shape, exclusive, reverse):
    kernels, ufunc, identity = SCANS[name]
    x, y = numbers(shape), nans(shape)
    grid = (shape[0], -(-shape[2] // THREADS))
    kernels.columns[grid, THREADS](x, np.float32(identity), exclusive, reverse, y)
    assert_close(y, reference(x, ufunc, identity, exclusive, reverse, 1), atol=1e-5)


def test_integers():
    x, y = draw.integers(-9, 9, (2, 300)), np.full((2, 300), 77)
    CUMULATIVE_SUM.rows[2, THREADS](x, np.int64(0), False, False, y)
    assert_same(y, x.cumsum(1))


def repeatable(make):
    """Arguments that are the same every time: they are made for each executor."""

    def arguments():
        global draw
        draw = np.random.default_rng(0)
        return make()

    return arguments


CASES = [
    case
    for name, (kernels, _, identity) in SCANS.items()
    for case in (
        Case(
            f"{name} rows",
            kernels.rows,
            lambda i=identity: [numbers((2, 300)), np.float32(i), False, True, nans((2, 300))],
            2,
            THREADS,
        ),
        Case(
            f"{name} columns",
            kernels.columns,
            lambda i=identity: [numbers((2, 5, 9)), np.float32(i), True, False, nans((2, 5, 9))],
            2,
            32,
        ),
    )
]
CASES = [replace(case, arguments=repeatable(case.arguments)) for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
