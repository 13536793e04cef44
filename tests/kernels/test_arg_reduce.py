"""Positions of extrema against NumPy, with ties and NaNs."""

from dataclasses import replace

import numpy as np
import pytest
from checks import assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.kernels.arg_reduce import ARGMAX, ARGMIN
from miniflow.kernels.reduce import THREADS, WARP, WARPS

draw = np.random.default_rng(0)
both = pytest.mark.parametrize("kernels, reference", [(ARGMAX, np.argmax), (ARGMIN, np.argmin)], ids=["max", "min"])


def with_ties(shape, kind=np.float32):
    """Few different numbers, so that most rows have several extrema."""
    return draw.integers(0, max(2, shape[-1] // 8), shape).astype(kind)


def results(shape, kind=np.float32):
    return np.full(shape, 77, kind), np.full(shape, -77, np.int64)


def assert_found(x, values, indices, reference, axis=1):
    expected = reference(x, axis)
    assert_same(indices, expected)
    assert_same(values, np.take_along_axis(x, np.expand_dims(expected, axis), axis).squeeze(axis))


@both
@pytest.mark.parametrize("kind", ["float32", "int32", "float64", "int64"])
@pytest.mark.parametrize("rows, width", [(1, 1), (WARPS - 1, WARP - 1), (WARPS + 1, WARP + 1), (5, 257)])
def test_warp_rows(kernels, reference, kind, rows, width):
    x = with_ties((rows, width), kind)
    values, indices = results(rows, kind)
    kernels.warp_rows[-(-rows // WARPS), THREADS](x, values, indices)
    assert_found(x, values, indices, reference)


@both
@pytest.mark.parametrize("width, chunk", [(1, 300), (THREADS + 1, 300), (900, 300), (901, 300)])
def test_block_rows_and_pick_rows(kernels, reference, width, chunk):
    x = with_ties((9, width))
    candidates = np.full((9, -(-width // chunk)), -77, np.int64)
    kernels.block_rows[candidates.size, THREADS](x, chunk, candidates)
    for part in range(candidates.shape[1]):
        piece = x[:, part * chunk : (part + 1) * chunk]
        assert_same(candidates[:, part], reference(piece, 1) + part * chunk)
    values, indices = results(9)
    kernels.pick_rows[2, THREADS](x, candidates, values, indices)
    assert_found(x, values, indices, reference)


@both
@pytest.mark.parametrize("shape", [(2, 7, 3), (1, 5, THREADS - 1), (3, 1, THREADS + 1)])
def test_columns(kernels, reference, shape):
    x = with_ties(shape)
    values, indices = results((shape[0], shape[2]))
    kernels.columns[(shape[0], -(-shape[2] // THREADS)), THREADS](x, values, indices)
    assert_found(x, values, indices, reference)


@both
def test_the_first_nan_wins(kernels, reference):
    x = draw.normal(size=(4, 300)).astype(np.float32)
    x[1, 5] = x[1, 250] = x[2, 299] = x[3, :] = np.nan
    values, indices = results(4)
    kernels.warp_rows[1, THREADS](x, values, indices)
    assert_found(x, values, indices, reference)
    candidates = np.full((4, 3), -77, np.int64)
    kernels.block_rows[12, THREADS](x, 100, candidates)
    values, indices = results(4)
    kernels.pick_rows[1, THREADS](x, candidates, values, indices)
    assert_found(x, values, indices, reference)
    values, indices = results((4, 1))
    kernels.columns[4, THREADS](x[:, :, None], values, indices)
    assert_found(x[:, :, None], values, indices, reference)


def candidates():
    return np.array([[3, 34], [0, 40]])


def repeatable(make):
    """Arguments that are the same every time: they are made for each executor."""

    def arguments():
        global draw
        draw = np.random.default_rng(0)
        return make()

    return arguments


CASES = [
    case
    for name, kernels in (("max", ARGMAX), ("min", ARGMIN))
    for case in (
        Case(f"{name} warp rows", kernels.warp_rows, lambda: [with_ties((9, 35)), *results(9)], 2, THREADS),
        Case(
            f"{name} block rows", kernels.block_rows, lambda: [with_ties((2, 300)), 150, results((2, 2))[1]], 4, THREADS
        ),
        Case(
            f"{name} pick rows",
            kernels.pick_rows,
            lambda: [with_ties((2, 50)), candidates(), *results(2)],
            1,
            THREADS,
        ),
        Case(f"{name} columns", kernels.columns, lambda: [with_ties((2, 5, 40)), *results((2, 40))], (2, 2), 32),
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
