"""Reductions against NumPy in float64: every kernel around the sizes of warps, blocks and parts."""

import numpy as np
import pytest
from checks import assert_close, assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, draw, run_checked

from miniflow.kernels import reduce
from miniflow.kernels.reduce import THREADS, WARP, WARPS

LOWEST = np.float32(-np.inf)
REFERENCES = {  # name: kernels, identity, what NumPy makes of (x, shift) over an axis
    "sum": (reduce.SUM, np.float32(0), lambda x, shift, axis: x.sum(axis)),
    "prod": (reduce.PROD, np.float32(1), lambda x, shift, axis: x.prod(axis)),
    "amax": (reduce.AMAX, LOWEST, lambda x, shift, axis: x.max(axis, initial=-np.inf)),
    "amin": (reduce.AMIN, np.float32(np.inf), lambda x, shift, axis: x.min(axis, initial=np.inf)),
    "squares": (reduce.SQUARES, np.float32(0), lambda x, shift, axis: (x * x).sum(axis)),
    "deviations": (reduce.SQUARE_DEVIATIONS, np.float32(0), lambda x, shift, axis: ((x - shift) ** 2).sum(axis)),
    "exponentials": (reduce.EXPONENTIALS, np.float32(0), lambda x, shift, axis: np.exp(x - shift).sum(axis)),
}
every = pytest.mark.parametrize("name", REFERENCES)


def numbers(shape, kind=np.float32):
    """Near one, so that products neither vanish nor overflow."""
    return draw.uniform(0.9, 1.1, shape).astype(kind)


def nans(shape, kind=np.float32):
    return np.full(shape, np.nan, kind)


@every
@pytest.mark.parametrize(
    "rows, width", [(1, 1), (WARPS - 1, WARP - 1), (WARPS, WARP), (WARPS + 1, WARP + 1), (3, 0), (5, 257)]
)
def test_warp_rows(name, rows, width):
    kernels, identity, reference = REFERENCES[name]
    x, shift, y = numbers((rows, width)), numbers(rows), nans(rows)
    kernels.warp_rows[-(-rows // WARPS), THREADS](x, shift, identity, y)
    expected = reference(x.astype(np.float64), shift[:, None].astype(np.float64), 1)
    assert_close(y, expected.astype(np.float32))


@every
@pytest.mark.parametrize("width, chunk", [(1, 300), (THREADS - 1, 300), (THREADS + 1, 300), (900, 300), (901, 300)])
def test_block_rows(name, width, chunk):
    kernels, identity, reference = REFERENCES[name]
    x, shift, y = numbers((3, width)), numbers(3), nans((3, -(-width // chunk)))
    kernels.block_rows[y.size, THREADS](x, shift, identity, chunk, y)
    for part in range(y.shape[1]):
        piece = x[:, part * chunk : (part + 1) * chunk].astype(np.float64)
        assert_close(y[:, part], reference(piece, shift[:, None].astype(np.float64), 1).astype(np.float32))


@every
@pytest.mark.parametrize("inner", [1, 3, 31, 32, 33, 257])
@pytest.mark.parametrize("reduced, chunk", [(1, 7), (65, 70), (66, 33)])
def test_columns(name, inner, reduced, chunk):
    kernels, identity, reference = REFERENCES[name]
    x, shift, y = numbers((2, reduced, inner)), numbers(2 * inner), nans((2, -(-reduced // chunk), inner))
    groups = 2 * y.shape[1]
    if inner < WARP:
        across = 1 << (inner - 1).bit_length()
        kernels.narrow_columns[groups, (across, THREADS // across)](x, shift, identity, chunk, y)
    else:
        kernels.columns[groups * -(-inner // 64), 64](x, shift, identity, chunk, y)
    for part in range(y.shape[1]):
        piece = x[:, part * chunk : (part + 1) * chunk].astype(np.float64)
        assert_close(y[:, part], reference(piece, shift.reshape(2, 1, inner).astype(np.float64), 1).astype(np.float32))


@pytest.mark.parametrize(
    "kind, accumulator", [("uint8", "int64"), ("int32", "int64"), ("int8", "int32"), ("float64", "float64")]
)
def test_other_dtypes(kind, accumulator):
    x = draw.integers(0, 100, (9, 70)).astype(kind)
    y = np.full(9, 77, accumulator)
    reduce.SUM.warp_rows[2, THREADS](x, x, np.dtype(accumulator).type(0), y)
    assert_same(y, x.sum(1, dtype=accumulator))
    largest = np.full(9, 77, kind)
    start = np.float64(-np.inf) if kind == "float64" else np.int32(np.iinfo(np.int32).min)
    reduce.AMAX.warp_rows[2, THREADS](x, x, start, largest)
    assert_same(largest, x.max(1))


def test_nan_wins_and_truth():
    x = np.array([[1, np.nan, 3], [3, 2, 1]], np.float32)
    for kernels, expected in ((reduce.AMAX, [np.nan, 3]), (reduce.AMIN, [np.nan, 1])):
        y = nans(2)
        kernels.warp_rows[1, THREADS](x, x, x[1, 0], y)
        assert_same(y, np.array(expected, np.float32))
    flags = np.array([[0, 0], [0, 2], [1, 3]], np.float32)
    for kernels, identity, expected in ((reduce.ANY, 0, [0, 1, 1]), (reduce.ALL, 1, [0, 0, 1])):
        y = np.full(3, 77, np.uint8)
        kernels.warp_rows[1, THREADS](flags, flags, np.int32(identity), y)
        assert_same(y, np.array(expected, np.uint8))


def test_powers():
    x, y = -numbers((4, 50)), nans(4)
    reduce.ABSOLUTE_POWERS.warp_rows[1, THREADS](x, np.array([3.0], np.float32), np.float32(0), y)
    assert_close(y, (np.abs(x.astype(np.float64)) ** 3).sum(1).astype(np.float32))


def test_not_contiguous():
    x, y = numbers((70, 9)).T, nans(9)
    reduce.SUM.warp_rows[2, THREADS](x, x, np.float32(0), y)
    assert_close(y, x.astype(np.float64).sum(1).astype(np.float32))


def test_what_is_not_finite_becomes_zero():
    y = np.array([1, np.inf, -np.inf, np.nan], np.float32)
    reduce.finite_or_zero[1, 32](y)
    assert_same(y, np.array([1, 0, 0, 0], np.float32))


CASES = [
    Case(
        f"{name} {way}",
        getattr(kernels, way),
        lambda identity=identity, rest=rest, shapes=shapes: [
            numbers(shapes[0]),
            numbers(shapes[1]),
            identity,
            *rest,
            nans(shapes[2]),
        ],
        grid,
        block,
    )
    for name, (kernels, identity, _) in REFERENCES.items()
    for way, shapes, rest, grid, block in (
        ("warp_rows", ((9, 35), 9, 9), (), 2, THREADS),
        ("block_rows", ((2, 300), 2, (2, 2)), (150,), 4, THREADS),
        ("columns", ((2, 70, 35), 70, (2, 2, 35)), (35,), 8, 32),
        ("narrow_columns", ((2, 70, 5), 10, (2, 2, 5)), (35,), 4, (8, 32)),
    )
] + [
    Case(
        "any",
        reduce.ANY.warp_rows,
        lambda: [numbers((3, 5)) > 1, nans(3), np.int32(0), np.full(3, 7, np.uint8)],
        1,
        THREADS,
    ),
    Case(
        "all",
        reduce.ALL.block_rows,
        lambda: [numbers((3, 5)), nans(3), np.int32(1), 5, np.full((3, 1), 7, np.uint8)],
        3,
        THREADS,
    ),
    Case(
        "powers",
        reduce.ABSOLUTE_POWERS.warp_rows,
        lambda: [numbers((3, 5)), numbers(1), np.float32(0), nans(3)],
        1,
        THREADS,
    ),
    Case("finite or zero", reduce.finite_or_zero, lambda: [numbers(33)], 1, 64),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    assert compile_case(case, cc)
