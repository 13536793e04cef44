"""Cumulative sums and products against NumPy in float64."""

import numpy as np
import pytest
from checks import assert_close, assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.kernels.reduce import THREADS
from miniflow.kernels.scan import (
    cumulative_logsumexp,
    cumulative_max,
    cumulative_min,
    cumulative_product,
    cumulative_sum,
)

SCANS = {
    "sum": (cumulative_sum, np.add, 0),
    "product": (cumulative_product, np.multiply, 1),
    "max": (cumulative_max, np.maximum, -np.inf),
    "min": (cumulative_min, np.minimum, np.inf),
    "logsumexp": (cumulative_logsumexp, np.logaddexp, -np.inf),
}
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
    scan[3, THREADS](x, np.float32(identity), exclusive, reverse, y)
    assert_close(y, reference(x, ufunc, identity, exclusive, reverse), atol=1e-4)


def test_integers():
    x, y = draw.integers(-9, 9, (2, 300)), np.full((2, 300), 77)
    cumulative_sum[2, THREADS](x, np.int64(0), False, False, y)
    assert_same(y, x.cumsum(1))


CASES = [
    Case(
        name,
        scan,
        lambda i=identity: [numbers((2, 300)), np.float32(i), False, True, nans((2, 300))],
        2,
        THREADS,
    )
    for name, (scan, _, identity) in SCANS.items()
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
