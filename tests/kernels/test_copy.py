"""Copies on a cuda device: between layouts, conversions between dtypes, filling."""

import ml_dtypes
import numpy as np
import pytest
from both import LAYOUTS, agree, numbers_of, on_device
from compare import assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.cuda.copy import NUMBER, SAME, TRUTH, Conversion, copy_into, fill_into
from miniflow.backends.cuda.pointwise import launcher_of

BFLOAT16 = ml_dtypes.bfloat16
FLOATS = [np.float32, np.float64, np.float16, BFLOAT16]
DTYPES = [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, *FLOATS]


@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("shape", [(5, 7), (3, 257), (2, 3, 2, 3, 2, 3)], ids=str)
def test_layouts(shape, source, target):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    out = on_device(np.full(shape, np.nan, np.float32), target)
    copy_into(out, on_device(x, source))
    assert_same(out.numpy(), x)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: np.dtype(t).name)
def test_fill(dtype):
    for shape, layout in [((257,), "contiguous"), ((3, 5), "strided"), ((4, 3), "transposed"), ((), "contiguous")]:
        out = on_device(np.zeros(shape, dtype), layout)
        fill_into(out, 3)
        assert_same(out.numpy(), np.full(shape, 3, dtype))


def test_filling_a_part_leaves_the_rest():
    x = np.zeros((6, 8, 3), np.float32)
    placed = on_device(x)
    fill_into(placed.view(lambda a: a[1::2, 2:5]), 7.0)
    x[1::2, 2:5] = 7
    assert_same(placed.numpy(), x)
    fill_into(placed.view(lambda a: a[:0]), 1.0)
    assert_same(placed.numpy(), x)


@pytest.mark.parametrize("target", DTYPES, ids=lambda t: np.dtype(t).name)
def test_all_dtypes_convert_to_all(target):
    for source in DTYPES:
        x = numbers_of(np.int8, 3, 5).astype(source)
        agree("Cast", x, dtype=np.dtype(target), layouts=("contiguous",))


def test_conversions_of_any_layout():
    x = np.random.default_rng(0).uniform(-9, 9, (3, 4, 5))
    agree("Cast", x, dtype=np.dtype(np.float16))
    agree("ToInteger", x, dtype=np.dtype(np.int32))
    agree("ToInteger", x.astype(np.float16), dtype=np.dtype(np.bool_))


def test_nan_is_true():
    x = np.array([np.nan, 0.0, -0.0, np.inf, 1e-40])
    for dtype in FLOATS:
        with np.errstate(all="ignore"):
            agree("ToInteger", x.astype(dtype), dtype=np.dtype(np.bool_), layouts=("contiguous",))


def neighbours(x):
    """`x`, and the floats next to it."""
    with np.errstate(over="ignore"):
        return np.concatenate([x, np.nextafter(x, x.dtype.type(-np.inf)), np.nextafter(x, x.dtype.type(np.inf))])


def between(half, wide):
    """Every number of a 16-bit dtype, the points midway between two of them, and their neighbours in `wide`."""
    x = np.arange(0x8000, dtype=np.uint16).view(half).astype(wide)
    x = np.sort(x[np.isfinite(x)])
    x = neighbours(np.concatenate([x, (x[1:] + x[:-1]) / 2, [x[-1] + (x[-1] - x[-2]) / 2]]).astype(wide))
    return np.concatenate([x, -x, np.array([np.inf, -np.inf, np.nan], wide)])


@pytest.mark.parametrize("half, wide", [
    (np.float16, np.float32), (BFLOAT16, np.float32), (np.float16, np.float64),
], ids=str)  # fmt: skip
def test_halves_are_rounded_to_the_nearest_even(half, wide):
    x = between(half, wide)
    with np.errstate(over="ignore"):
        want = x.astype(half)
    out = on_device(np.zeros(x.shape, half))
    copy_into(out, on_device(x))
    got = out.numpy()
    is_nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), is_nan)
    np.testing.assert_array_equal(got[~is_nan].view(np.uint16), want[~is_nan].view(np.uint16))


@pytest.mark.parametrize("half", [np.float16, BFLOAT16], ids=str)
def test_halves_widen_exactly(half):
    x = np.arange(2**16, dtype=np.uint16).view(half)
    agree("Cast", x, dtype=np.dtype(np.float32), layouts=("contiguous",))


def test_source_and_target_may_overlap():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    placed = on_device(x)
    copy_into(placed.view(lambda a: a[1:]), placed.view(lambda a: a[:-1]))
    assert_same(placed.numpy(), x[[0, 0, 1]])
    square = on_device(np.arange(9, dtype=np.int64).reshape(3, 3))
    copy_into(square, square.view(lambda a: a.T))
    assert_same(square.numpy(), np.arange(9).reshape(3, 3).T)


def test_copies_broadcast():
    out = on_device(np.zeros((2, 3, 4), np.float32), "strided")
    copy_into(out, on_device(np.arange(3).reshape(3, 1)))
    assert_same(out.numpy(), np.broadcast_to(np.arange(3, dtype=np.float32).reshape(3, 1), (2, 3, 4)))


def words(*shape, dtype=np.uint32):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32).view(np.uint32).astype(dtype)


def room(size, dtype=np.uint32):
    return np.full(size, 77, dtype)


def flat(conversion):
    return launcher_of(conversion, "v", "flat")


def spread(conversion):
    return launcher_of(conversion, "", "spread")


def of_half(function):
    return flat(Conversion(f"{function}(x0_here)"))


CASES = [
    Case("flat", flat(SAME), lambda: [room(70), words(70)], 3, 32),
    Case("float to int", flat(SAME), lambda: [room(70, np.int32), np.arange(70, dtype=np.float32)], 3, 32),
    Case("truth", flat(TRUTH), lambda: [room(70, np.uint8), np.arange(70, dtype=np.float32) % 3], 3, 32),
    Case("transposed", spread(SAME),
         lambda: [(1, 1, 7, 10), room(70), (0, 0, 0, 10, 1), words(70), (0, 0, 0, 1, 7)], (2, 2), (8, 4)),
    Case("to float16", of_half("narrow_float16"), lambda: [room(70, np.uint16), words(70).view(np.float32)], 3, 32),
    Case("to bfloat16", of_half("narrow_bfloat16"), lambda: [room(70, np.uint16), words(70).view(np.float32)], 3, 32),
    Case("from float64", of_half("narrow_float16_once"),
         lambda: [room(70, np.uint16), np.random.default_rng(0).standard_normal(70)], 3, 32),
    Case("from float16", of_half("widen_float16"),
         lambda: [room(70, np.float32), np.arange(0, 70_000, 1000).astype(np.uint16)], 3, 32),
    Case("from bfloat16", of_half("widen_bfloat16"), lambda: [room(70, np.float32), words(70, dtype=np.uint16)], 3, 32),
    Case("fill", flat(NUMBER), lambda: [room(70), np.int64(5)], 3, 32),
    Case("fill spread", spread(NUMBER),
         lambda: [(1, 2, 3, 5), room(70), (3, 0, 30, 10, 2), np.int64(5)], (1, 2, 2), (8, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
