"""`kernels.gather`, and the ops that pick elements by integers."""

import numpy as np
import pytest
from both import agree, numbers_of
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.cuda import faults
from miniflow.backends.cuda.array import from_host
from miniflow.backends.cuda.launch import GRID_LIMIT
from miniflow.backends.cuda.rows import cover
from miniflow.errors import IndexRangeError
from miniflow.kernels.gather import join_coordinates, report_outside, take_cells, take_rows

SHAPES = [  # outer, n, k, inner: a block has 256 threads
    (1, 5, 7, 1),
    (3, 4, 2, 5),
    (2, 9, 257, 1),
    (1, 3, 2, 255),
    (1, 3, 2, 256),
    (2, 2, 3, 257),
    (1, 1, 1, 1),
]


def numbers(*shape, dtype=np.uint32, seed=0):
    return np.random.default_rng(seed).integers(0, 200, shape).astype(dtype)


def blank(*shape, dtype=np.uint32):
    return np.full(shape, 222, dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_take_rows(shape):
    outer, n, k, inner = shape
    x, out = numbers(outer, n, inner), blank(outer, k, inner)
    index = np.random.default_rng(1).integers(-n, n, k)
    grid, block = cover((outer, k, inner))
    take_rows[grid, block](x, index[None, :, None], out)
    np.testing.assert_array_equal(out, x[:, index])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_take_cells(shape):
    outer, n, k, inner = shape
    x, out = numbers(outer, n, inner), blank(outer, k, inner)
    index = np.random.default_rng(1).integers(0, n, (outer, k, inner))
    grid, block = cover((outer, k, inner))
    take_cells[grid, block](x, index, out)
    np.testing.assert_array_equal(out, np.take_along_axis(x, index, 1))


@pytest.mark.parametrize("outer", [5, 6, 7, 40])
def test_more_cells_than_the_third_dim_of_the_grid_counts(outer, monkeypatch):
    for place in ("launch", "rows"):
        monkeypatch.setattr(f"miniflow.backends.cuda.{place}.GRID_LIMIT", 3)
    x, index = numbers(outer, 200), np.random.default_rng(1).integers(0, 200, (outer, 150))
    agree("Gather", x, index, dim=1)
    agree("Scatter", x, index, numbers(outer, 150), dim=1)
    agree("Index", x, index[None, 0], dims=(1,))


BOXES = [
    (1, 1, 1),
    (1, 300, 5),
    (9, 1, 1),
    (4, 3, 2),
    (1, GRID_LIMIT + 1, 256),
    (1, 60_000_000, 1),
    (3, 2, 10**9),
    (2, 7, 257),
]


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_cover_reaches_every_cell(box):
    grid, block = cover(box)
    assert all(n <= blocks * threads for n, blocks, threads in zip(box[::-1], grid, block, strict=True))
    assert grid[0] < 2**31 and grid[1] <= GRID_LIMIT and block[2] <= 64 and np.prod(block) <= 1024


def test_cover_of_nothing_launches_nothing():
    assert 0 in cover((0, 5, 5))[0] and 0 in cover((5, 0, 5))[0] and 0 in cover((5, 5, 0))[0]


def test_join_coordinates_gives_row_numbers():
    first, second = np.array([0, -1, 2, 1]), np.array([-4, 3, 0, -1])
    rows = np.zeros(4, np.int64)
    join_coordinates[1, 32](first, 3, rows)
    join_coordinates[1, 32](second, 4, rows)
    np.testing.assert_array_equal(rows, np.ravel_multi_index((first % 3, second % 4), (3, 4)))


@pytest.mark.parametrize("value, dtype", [(-1, np.int64), (10, np.int32)])
@pytest.mark.parametrize("position", [0, 17, 300])
def test_an_index_outside_is_reported_late(position, value, dtype, monkeypatch):
    monkeypatch.setattr(faults, "_cells", {})
    index = np.random.default_rng(0).integers(0, 10, 301).astype(dtype)
    faults.report("pick", from_host(index, 0), 0, 10)
    faults.check(0)
    index[position] = value
    faults.report("pick", from_host(index, 0), 0, 10)
    faults.report("pick", from_host(index[:0], 0), 0, 10)
    with pytest.raises(
        IndexRangeError, match="pick: an earlier call had an index outside the range from 0 to 9; .* late"
    ):
        from_host(index, 0).numpy()
    np.testing.assert_array_equal(from_host(index, 0).numpy(), index)  # it is reported once


def test_no_kernel_follows_an_index_outside():
    index, out = np.array([0, 3, -4, 2]), blank(1, 4, 1)
    x = numbers(1, 3, 1)
    take_rows[1, (1, 32)](x, index[None, :, None], out)
    np.testing.assert_array_equal(out[0, :, 0], [x[0, 0, 0], 222, 222, x[0, 2, 0]])
    out = blank(1, 4, 1)
    take_cells[1, (1, 32)](x, index[None, :, None], out)
    np.testing.assert_array_equal(out[0, :, 0], [x[0, 0, 0], 222, 222, x[0, 2, 0]])


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float16, np.int32, np.float64])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gather_agrees_with_the_cpu(dim, dtype):
    x = numbers_of(dtype, 3, 4, 5)
    shape = [2, 3, 4]
    shape[dim] = 6
    agree("Gather", x, np.random.default_rng(0).integers(0, x.shape[dim], shape), dim=dim)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (2, 0), (2, 3)], ids=str)
def test_index_agrees_with_the_cpu(dims, batch):
    x = numbers(3, 4, 5).astype(np.float32)
    rng = np.random.default_rng(0)
    agree("Index", x, np.stack([rng.integers(-x.shape[d], x.shape[d], batch) for d in dims]), dims=dims)


def test_no_dims_and_no_elements():
    agree("Gather", np.array(3.0), np.array([0, 0]), dim=0)
    agree("Gather", np.array(3.0), np.array(0), dim=0)
    agree("Gather", numbers(3, 0), np.zeros((2, 0), np.int64), dim=0)
    agree("Index", numbers(3, 0), np.array([[0, 2]]), dims=(0,))


def test_nonzero_agrees_with_the_cpu():
    agree("Nonzero", numbers(5, 7) % 2 == 0)
    agree("Nonzero", np.array(0.0))


CASES = [
    Case("rows", take_rows, lambda: [numbers(2, 5, 3),
                                     np.array([[[4], [-5], [0], [2]]]), blank(2, 4, 3)], (1, 1, 2), (4, 4)),
    Case("rows of bytes", take_rows, lambda: [numbers(1, 5, 3, dtype=np.uint8), np.array([[[4]]], np.int32),
                                              blank(1, 1, 3, dtype=np.uint8)], 1, (4, 2)),
    Case("cells", take_cells, lambda: [numbers(2, 5, 3), numbers(2, 4, 3, dtype=np.int64) % 5, blank(2, 4, 3)],
         (1, 2), (4, 2, 2)),
    Case("join", join_coordinates, lambda: [np.array([-1, 2, 0]), 3, np.zeros(3, np.int64)], 1, 32),
    Case("outside", report_outside, lambda: [np.array([1, 9, 2, -1]), 0, 9, 5, np.array([0])], 2, 32),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
