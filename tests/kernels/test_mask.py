"""`kernels.mask`: triangles and filling by a mask."""

import numpy as np
import pytest
from both import agree, numbers_of
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.cuda.rows import cover
from miniflow.kernels.mask import triangle


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def mask(*shape):
    return (np.random.default_rng(1).random(shape) < 0.5).astype(np.uint8)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 5), (2, 5, 4), (1, 3, 257), (1, 300, 2), (300, 1, 1)], ids=str)
@pytest.mark.parametrize("diagonal", [0, 2, -1, 1000, -1000])
def test_triangles(shape, diagonal):
    x, lower, upper = normal(*shape), nan(*shape), nan(*shape)
    grid, block = cover(shape)
    triangle[grid, block](x, 1, diagonal, lower)
    triangle[grid, block](x, -1, -diagonal, upper)
    np.testing.assert_array_equal(lower, np.tril(x, diagonal))
    np.testing.assert_array_equal(upper, np.triu(x, diagonal))


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float32, np.int64])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (0, 3), (2, 0, 3)], ids=str)
def test_triangles_agree_with_the_cpu(shape, dtype):
    agree("Triangle", numbers_of(dtype, *shape), diagonal=1, upper=False)
    agree("Triangle", numbers_of(dtype, *shape), diagonal=-1, upper=True)


CASES = [
    Case("lower", triangle, lambda: [normal(2, 3, 5), 1, 1, nan(2, 3, 5)], (1, 2), (8, 2, 2)),
    Case("upper", triangle, lambda: [normal(2, 3, 5), -1, 1, nan(2, 3, 5)], (1, 2), (8, 2, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
