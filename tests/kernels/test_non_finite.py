"""`kernels.non_finite`: found in any array and place, in every floating dtype, and nowhere else."""

import numpy as np
import pytest
from both import LAYOUTS, on_device, run_kernel
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.cpu.loss_scale import EXPONENTS
from miniflow.kernels.non_finite import THREADS, WORDS, any_with_all_bits

LARGEST = {"float16": 65504.0, "bfloat16": 3.3895314e38, "float32": 3.4028235e38, "float64": 1.7976931348623157e308}
BLOCK = THREADS * WORDS
SIZES = (1, BLOCK - 1, 33, BLOCK, BLOCK + 1)


def arrays(dtype):
    """Several arrays of the largest finite numbers, both signs."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], max(SIZES))
    return [(signs[:n] * LARGEST[dtype.name]).astype(dtype) for n in SIZES]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", EXPONENTS, ids=str)
def test_finds_one_element(dtype, bad):
    lists = arrays(dtype)
    mask = EXPONENTS[dtype]
    blocks = [-(-n // BLOCK) for n in SIZES]
    starts = tuple(np.cumsum([0, *blocks]).tolist())

    def found():
        result = np.zeros(1, np.int32)
        words = tuple(x.view(mask.dtype) for x in lists)
        any_with_all_bits[sum(blocks), THREADS](starts, words, mask, result)
        return result[0]

    assert found() == 0
    for x in lists:
        for place in (0, x.size // 2, x.size - 1):
            before = x[place]
            x[place] = bad
            assert found() == 1
            x[place] = before
    assert found() == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [1, 8, 9, 20])
def test_the_kernel_of_the_op(count, layout):
    """Arrays of all dtypes and of no elements, more than one launch takes."""
    kinds = list(EXPONENTS)
    values = [np.full((3, k % 5), k, kinds[k % 4]) for k in range(count - 1)] + [np.full((2, 7), 5, kinds[count % 4])]
    result = run_kernel("cuda", "AnyNonFinite", *[on_device(x, layout) for x in values])
    assert (result.shape, result.dtype) == ((), np.bool_) and not result.item()
    values[-1][1, 6] = np.nan
    assert run_kernel("cuda", "AnyNonFinite", *[on_device(x, layout) for x in values]).item()


def test_nothing_at_all():
    assert not run_kernel("cuda", "AnyNonFinite", on_device(np.zeros((0, 3), np.float32))).item()


def words(value):
    x = np.ones(2 * 64 * WORDS, np.float32)
    x[-1] = value
    return x.view(np.uint32)


CASES = [
    Case(name, any_with_all_bits,
         lambda value=value: [(0, 1, 3), (words(1.0)[:70], words(value)), np.uint32(0x7F800000), np.zeros(1, np.int32)],
         3, 64)
    for name, value in [("finite", 1.0), ("one nan", np.nan)]
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
