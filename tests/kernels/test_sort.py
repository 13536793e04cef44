"""The bitonic network against NumPy's stable sort, with ties and NaN."""

import numpy as np
import pytest
from both import on_device, run_kernel
from checks import assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.kernels.sort import TILE, bitonic_step, bitonic_tile


def with_ties(width):
    x = draw.integers(0, max(2, width // 3), (3, width)).astype(np.float32)
    x[1, :: max(width // 4, 1)] = np.nan
    return x


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("width", [1, 2, 5, 64, 65, TILE - 1, TILE + 1, 4 * TILE + 3])
def test_order(width, descending):
    x = with_ties(width)
    size = np.where(np.isnan(x), np.inf, x)
    want = np.argsort(-size if descending else size, 1, kind="stable")
    for count in {1, width}:
        found = run_kernel("cuda", "Argsort", on_device(x), dim=1, descending=descending, count=count, stable=True)
        assert_same(found.numpy(), want[:, :count])


def places():
    return np.tile(np.arange(1024), (2, 1))


CASES = [
    Case("tile", bitonic_tile, lambda: [with_ties(1000)[:2], False, 2, 64, places()], 32, 32),
    Case("last steps", bitonic_tile, lambda: [with_ties(1000)[:2], True, 1024, 64, places()], 32, 32),
    Case("step", bitonic_step, lambda: [with_ties(1000)[:2], False, 1024, 512, places()], 4, 256),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
