"""`kernels.scatter`, and the ops that write or add elements at places named by integers."""

import numpy as np
import pytest
from both import agree, numbers_of, on_device, run_kernel
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.cuda.rows import cover
from miniflow.kernels.scatter import (
    add_cells,
    add_rows,
    claim,
    put_cells,
    put_rows,
)

SHAPES = [(1, 5, 7, 1), (3, 4, 2, 5), (2, 3, 257, 1), (1, 3, 4, 255), (2, 2, 3, 257), (1, 1, 300, 1)]


def normal(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def picks(low, high, *shape, seed=1):
    return np.random.default_rng(seed).integers(low, high, shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_add_rows(shape, dtype):
    outer, n, k, inner = shape
    source, index = (100 * normal(outer, k, inner)).astype(dtype), picks(-n, n, k)
    out = np.ones((outer, n, inner), dtype)
    expected = np.ones((outer, n, inner), np.float64 if out.dtype.kind == "f" else dtype)
    np.add.at(expected, (slice(None), index), source)
    grid, block = cover((outer, k, inner))
    add_rows[grid, block](source, index[None, :, None], out)
    np.testing.assert_allclose(out, expected, rtol=1e-12 if dtype == np.float64 else 1e-5, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_add_cells(shape):
    outer, n, k, inner = shape
    source, index = normal(outer, k, inner), picks(0, n, outer, k, inner)
    out, expected = np.zeros((outer, n, inner), np.float32), np.zeros((outer, n, inner))
    o, _, i = np.indices(index.shape)
    np.add.at(expected, (o, index, i), source)
    grid, block = cover((outer, k, inner))
    add_cells[grid, block](source, index, out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_last_row_at_a_place_is_written(shape):
    outer, n, k, inner = shape
    source, index = normal(outer, k, inner), picks(-n, n, k)
    out, last = normal(outer, n, inner, seed=2), np.full(n, -1)
    expected = out.copy()
    for j, place in enumerate(index):
        expected[:, place] = source[:, j]
    grid, block = cover((outer, k, inner))
    rows, last = index[None, :, None], last[None, :, None]
    claim[(1, 2), (1, 256)](rows, last)
    put_rows[grid, block](source, rows, last, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_last_cell_at_a_place_is_written(shape):
    outer, n, k, inner = shape
    source, index = normal(outer, k, inner), picks(0, n, outer, k, inner)
    out, last = normal(outer, n, inner, seed=2), np.full((outer, n, inner), -1)
    expected = out.copy()
    o, i = np.indices((outer, inner))
    for j in range(k):
        expected[o, index[:, j], i] = source[:, j]
    grid, block = cover((outer, k, inner))
    claim[grid, block](index, last)
    put_cells[grid, block](source, index, last, out)
    np.testing.assert_array_equal(out, expected)


def test_ten_thousand_terms_at_one_place_all_arrive():
    terms = np.ones((10_000, 2), np.float32)
    terms[:, 1] = np.arange(10_000) % 3
    out = run_kernel(
        "cuda", "IndexIntoZeros", on_device(terms), on_device(np.zeros((1, 10_000), np.int64)), dims=(0,), shape=(1, 2)
    )
    np.testing.assert_array_equal(out.numpy(), terms.sum(0, keepdims=True, dtype=np.float64))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("start", [True, False])
def test_additions_agree_with_the_cpu_in_every_dtype(dtype, start):
    x = numbers_of(dtype, 3, 4, 5) if start else None
    source = numbers_of(dtype, 3, 9, 5, seed=3)
    agree("ScatterAdd", x, picks(0, 4, 2, 9, 3), source[:2, :, :3].copy(), dim=1, shape=(3, 4, 5))
    agree("IndexIntoZeros", source, picks(-4, 4, 1, 9), dims=(1,), shape=(3, 4, 5))


@pytest.mark.parametrize("dims", [(0,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("batch", [(), (20,), (2, 0), (2, 13)], ids=str)
def test_places_of_several_dims_agree_with_the_cpu(dims, batch):
    shape = (2, 3, 5)
    index = np.stack([picks(-shape[d], shape[d], *batch, seed=d) for d in dims])
    picked = run_kernel("cpu", "Index", normal(*shape), index, dims=dims).shape
    agree("IndexIntoZeros", picks(0, 9, *picked).astype(np.float32), index, dims=dims, shape=shape)
    room = normal(5, 4, 5)
    agree("SetItem", room, normal(*picked), index, basic=(slice(1, 3), slice(0, 3), ...), dims=dims)
    agree("SetItem", room, np.array(7, np.float32), index, basic=(slice(1, 3), slice(0, 3), ...), dims=dims)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float32])
def test_scatter_agrees_with_the_cpu(dim, dtype):
    shape = [2, 3, 2]
    shape[dim] = 12
    x = numbers_of(dtype, 3, 4, 5)
    index = picks(0, x.shape[dim], *shape)
    agree("Scatter", x, index, numbers_of(dtype, *shape, seed=3), dim=dim)


def test_what_an_index_outside_names_is_left_out():
    index, source = np.array([2, 3, -4, 0]), normal(1, 4, 1)
    expected = np.array([[[source[0, 3, 0]], [0], [source[0, 0, 0]]]])
    out, last = np.zeros((1, 3, 1), np.float32), np.full(3, -1)
    rows = index[None, :, None]
    add_rows[1, (1, 32)](source, rows, out)
    np.testing.assert_array_equal(out, expected)
    last = last[None, :, None]
    claim[1, (1, 32)](rows, last)
    out = np.zeros((1, 3, 1), np.float32)
    put_rows[1, (1, 32)](source, rows, last, out)
    np.testing.assert_array_equal(out, expected)

    cells, out, last = index[None, :, None], np.zeros((1, 3, 1), np.float32), np.full((1, 3, 1), -1)
    add_cells[1, (1, 32)](source, cells, out)
    np.testing.assert_array_equal(out, expected)
    claim[1, (1, 32)](cells, last)
    out = np.zeros((1, 3, 1), np.float32)
    put_cells[1, (1, 32)](source, cells, last, out)
    np.testing.assert_array_equal(out, expected)


def test_no_dims():
    x, one = np.array(3.0), np.array([2.0])
    agree("Scatter", x, np.array([0]), one, dim=0)
    agree("Scatter", x, np.array(0), x, dim=0)
    agree("ScatterAdd", x, np.array([0]), one, dim=0, shape=())
    agree("SetItem", x, np.array(5.0), None, basic=(...,), dims=())


REPEATS = np.array([4, -1, 0, 4, 0])[None, :, None]
LAST = np.array([4, -1, -1, -1, 3])[None, :, None]
CELLS = np.array([[[0, 1], [2, 1], [0, 1]]])
CASES = [
    Case("claim rows", claim, lambda: [REPEATS, np.full((1, 5, 1), -1)], (1, 2), (1, 4)),
    Case("put rows", put_rows, lambda: [normal(2, 5, 3), REPEATS, LAST, normal(2, 5, 3)],
         (1, 2, 2), (4, 4)),
    Case("add rows", add_rows, lambda: [normal(2, 5, 3), REPEATS, normal(2, 5, 3)], (1, 2), (4, 4, 2)),
    Case("add integers", add_rows, lambda: [picks(0, 9, 1, 5, 1), REPEATS, picks(0, 9, 1, 5, 1)], (1, 2), (1, 4)),
    Case("add doubles", add_rows, lambda: [normal(1, 5, 1, dtype=np.float64), REPEATS, np.zeros((1, 5, 1))],
         (1, 2), (1, 4)),
    Case("claim cells", claim, lambda: [CELLS, np.full((1, 3, 2), -1)], (1, 2), (2, 2)),
    Case("put cells", put_cells, lambda: [normal(1, 3, 2), CELLS, np.array([[[2, -1], [-1, 2], [1, -1]]]),
                                          normal(1, 3, 2)], (1, 2), (2, 2)),
    Case("add cells", add_cells, lambda: [normal(1, 3, 2), CELLS, normal(1, 3, 2)], (1, 2), (2, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
