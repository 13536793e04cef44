"""Positions of extrema against NumPy, with ties and NaNs."""

import numpy as np
import pytest
from both import on_device, run_kernel
from checks import assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.backends.cuda import arg_reduce as backend
from miniflow.kernels.arg_reduce import ARGMAX, ARGMIN
from miniflow.kernels.reduce import THREADS, WARP, WARPS

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
def test_block_rows(kernels, reference, width, chunk):
    x = with_ties((9, width))
    values, indices = results((9, -(-width // chunk)))
    kernels.block_rows[indices.size, THREADS](x, chunk, values, indices)
    for part in range(indices.shape[1]):
        piece = x[:, part * chunk : (part + 1) * chunk]
        assert_found(piece, values[:, part], indices[:, part] - part * chunk, reference)


@pytest.mark.parametrize("width", [1025, 2048, 2049, 1024 * 50 + 3])
@pytest.mark.parametrize("name", ["Argmax", "Argmin"])
def test_rows_of_many_parts(name, width, monkeypatch):
    monkeypatch.setattr(backend, "CHUNK", 50)  # for the longest row the best of its parts are a long row again
    x = with_ties((3, width))
    x[1, 700] = x[1, 1000] = x[2, 60] = np.nan
    found = run_kernel("cuda", name, on_device(x), dim=1, keepdim=False).numpy()
    assert_same(found, (np.argmax if name == "Argmax" else np.argmin)(x, 1))


@both
@pytest.mark.parametrize("shape", [(2, 7, 3), (1, 5, THREADS - 1), (3, 1, THREADS + 1)])
def test_columns(kernels, reference, shape):
    x = with_ties(shape)
    values, indices = results((shape[0], shape[2]))
    kernels.columns[shape[0] * -(-shape[2] // THREADS), THREADS](x, values, indices)
    assert_found(x, values, indices, reference)


@both
def test_the_first_nan_wins(kernels, reference):
    x = draw.normal(size=(4, 300)).astype(np.float32)
    x[1, 5] = x[1, 250] = x[2, 299] = x[3, :] = np.nan
    values, indices = results(4)
    kernels.warp_rows[1, THREADS](x, values, indices)
    assert_found(x, values, indices, reference)
    values, indices = results((4, 1))
    kernels.block_rows[4, THREADS](x, 300, values, indices)
    assert_found(x, values[:, 0], indices[:, 0], reference)
    values, indices = results((4, 1))
    kernels.columns[4, THREADS](x[:, :, None], values, indices)
    assert_found(x[:, :, None], values, indices, reference)


CASES = [
    case
    for name, kernels in (("max", ARGMAX), ("min", ARGMIN))
    for case in (
        Case(f"{name} warp rows", kernels.warp_rows, lambda: [with_ties((9, 35)), *results(9)], 2, THREADS),
        Case(
            f"{name} block rows", kernels.block_rows, lambda: [with_ties((2, 300)), 150, *results((2, 2))], 4, THREADS
        ),
        Case(f"{name} columns", kernels.columns, lambda: [with_ties((2, 5, 40)), *results((2, 40))], 4, 32),
    )
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
