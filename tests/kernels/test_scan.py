"""Cumulative sums and products against NumPy in float64."""

import numpy as np
import pytest
from both import agree, numbers_of, on_device, run_kernel
from checks import assert_close, assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.backends.cuda.scan import CHUNK
from miniflow.kernels.reduce import THREADS
from miniflow.kernels.scan import LOGSUMEXPS, MAXIMA, MINIMA, PRODUCTS, SUMS

SCANS = {
    "sum": (SUMS, np.add, 0),
    "product": (PRODUCTS, np.multiply, 1),
    "max": (MAXIMA, np.maximum, -np.inf),
    "min": (MINIMA, np.minimum, np.inf),
    "logsumexp": (LOGSUMEXPS, np.logaddexp, -np.inf),
}
NO_CARRIES = np.zeros((0, 1), np.float32)  # of a single part
ways = pytest.mark.parametrize("exclusive, reverse", [(False, False), (False, True), (True, False), (True, True)])


def numbers(shape):
    return (draw.uniform(0.9, 1.1, shape) * draw.choice([-1, 1], shape)).astype(np.float32)


def nans(shape):
    return np.full(shape, np.nan, np.float32)


def reference(x, ufunc, identity, exclusive, reverse):
    x = x.astype(np.float64)[:, :: -1 if reverse else 1]
    y = ufunc.accumulate(x, -1)
    if exclusive and y.shape[-1]:
        y = np.concatenate([np.full_like(y[..., :1], identity), y[..., :-1]], -1)
    return y[:, :: -1 if reverse else 1].astype(np.float32)


@ways
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("width", [0, 1, THREADS - 1, THREADS, THREADS + 1, 3 * THREADS + 5])
def test_scans(name, width, exclusive, reverse):
    scan, ufunc, identity = SCANS[name]
    x, y = numbers((3, width)), nans((3, width))
    scan.rows[3, THREADS](x, NO_CARRIES, np.float32(identity), width, exclusive, reverse, y)
    assert_close(y, reference(x, ufunc, identity, exclusive, reverse), atol=1e-4)


@ways
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("width, chunk", [(1000, 256), (700, 300), (3 * 512, 512)])
def test_long_rows_in_parts(name, width, chunk, exclusive, reverse):
    scan, ufunc, identity = SCANS[name]
    x, y, identity = numbers((3, width)), nans((3, width)), np.float32(identity)
    parts = -(-width // chunk)
    totals, carries = nans((3, parts)), nans((3, parts))
    scan.totals.block_rows[3 * parts, THREADS](x, x.reshape(-1), identity, chunk, totals)
    scan.rows[3, THREADS](totals, NO_CARRIES, identity, parts, True, reverse, carries)
    scan.rows[3 * parts, THREADS](x, carries, identity, chunk, exclusive, reverse, y)
    assert_close(y, reference(x, ufunc, identity, exclusive, reverse), atol=1e-4)


def test_integers():
    x, y = draw.integers(-9, 9, (2, 300)), np.full((2, 300), 77)
    SUMS.rows[2, THREADS](x, np.zeros((0, 1), np.int64), np.int64(0), 300, False, False, y)
    assert_same(y, x.cumsum(1))


@pytest.mark.parametrize("reverse", [False, True])
def test_the_backend_cuts_long_rows(reverse):
    """Rows of three parts, the last one short; sums of integers are exact."""
    x = numbers_of(np.int64, 2, 2 * CHUNK + 77)
    assert_same(run_kernel("cuda", "Cumsum", on_device(x), dim=1, reverse=False).numpy(), x.cumsum(1))
    for dtype in (np.int64, np.int8):
        agree("Cumsum", x.astype(dtype), dim=1, reverse=reverse)
        agree("CumulativeMax", x.T.astype(dtype), dim=0, reverse=reverse)
    x = (x[:1] % 10).astype(np.float32)  # whole numbers, whose sums are exact
    for op in ("Cumsum", "Logcumsumexp", "CumulativeMin"):
        agree(op, x, dim=1, reverse=reverse, exact=op != "Logcumsumexp", layouts=("contiguous",))


CASES = [
    Case(
        f"{name}, {parts} parts",
        scan.rows,
        lambda i=identity, p=parts, n=rows: [
            numbers((2, 600)),
            numbers((n, p)),
            np.float32(i),
            600 // p,
            False,
            True,
            nans((2, 600)),
        ],
        2 * parts,
        THREADS,
    )
    for name, (scan, _, identity) in SCANS.items()
    for parts, rows in ((1, 0), (2, 2))
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
