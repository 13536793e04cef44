"""Recurrent layers on the cuda device beside the cpu's kernels, which the tests of layers compare with PyTorch."""

import numpy as np
import pytest
from both import agree, run_kernel
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.kernels.recurrent import CELLS
from miniflow.ops.recurrence import SAVED

HIDDEN = 5
SIZES = {"one length": (4, 4, 4), "packed": (4, 3, 3, 1)}


def numbers(*shape):
    return draw.normal(size=shape).astype(np.float32)


def count(cell):
    return SAVED.get(cell, (1, 0))[0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("cell", CELLS)
def test_layers(cell, sizes, reverse):
    columns, attrs = count(cell) * HIDDEN, {"cell": cell, "sizes": sizes, "reverse": reverse}
    x, weight, bias = numbers(sum(sizes), columns), numbers(columns, HIDDEN), numbers(columns)
    h, dh, c, dc = numbers(4, 4, HIDDEN)
    c, dc = (c, dc) if cell == "lstm" else (None, None)
    for given in (bias, None):
        agree("Recurrent", x, h, c, weight, given, exact=False, **attrs)
    y, _, _, *kept = run_kernel("cpu", "Recurrent", x, h, c, weight, bias, **attrs)
    agree("RecurrentGrad", numbers(*y.shape), dh, dc, h, c, weight, y, *kept, exact=False, **attrs)


def arguments(cell, is_grad):
    """Of 13 rows of 5 units: one more than two blocks of 32 threads have."""
    gates, memory = SAVED.get(cell, (0, 0))
    row, wide = (13, HIDDEN), (13, count(cell), HIDDEN)
    c, kept = numbers(*row if cell == "lstm" else (0, HIDDEN)), [(13, gates, HIDDEN), (13, memory * HIDDEN)]
    if is_grad:
        saved = [numbers(*shape) for shape in (row, *kept, row)]
        return (numbers(*row), numbers(*row), c, *saved, *np.full((2, *wide), np.nan, np.float32))
    projected, bias = numbers(count(cell), *row), numbers(count(cell), HIDDEN)
    outputs = [np.full(shape, np.nan, np.float32) for shape in (*kept, row)]
    return (numbers(*wide), projected, bias, numbers(*row), c, *outputs)


CASES = [
    Case(
        f"{cell}{'_grad' * is_grad}", CELLS[cell][is_grad], lambda cell=cell, is_grad=is_grad: arguments(cell, is_grad),
        grid=3, block=32, tolerance=1e-5,
    )
    for cell in CELLS
    for is_grad in (False, True)
]  # fmt: skip
cases = pytest.mark.parametrize("case", CASES, ids=str)


@cases
def test_checked(case):
    run_checked(case)


@cases
@pytest.mark.parametrize("cc", CAPABILITIES)
def test_ptx(case, cc):
    assert compile_case(case, cc)
