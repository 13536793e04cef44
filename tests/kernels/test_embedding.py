"""`kernels.embedding`, and its ops."""

import numpy as np
import pytest
from both import agree, on_device, run_kernel
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.backends.cuda.rows import cover
from miniflow.errors import IndexRangeError
from miniflow.kernels.embedding import add_to_table, look_up

SHAPES = [(5, 3, 7), (1, 1, 1), (9, 255, 4), (9, 256, 4), (9, 257, 4), (3, 1, 257)]  # table rows, width, count


def table(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def indices(rows, *shape):
    return np.random.default_rng(1).integers(0, rows, shape)


@pytest.mark.parametrize("rows, width, count", SHAPES)
def test_look_up(rows, width, count):
    weight, index, out = table(rows, width), indices(rows, count), np.full((count, width), np.nan, np.float32)
    grid, block = cover(count, width)
    look_up[grid, block](weight, index, out)
    np.testing.assert_array_equal(out, weight[index])


@pytest.mark.parametrize("rows, width, count", SHAPES)
@pytest.mark.parametrize("padding", [-1, 0])
def test_add_to_table(rows, width, count, padding):
    dy, index, out = table(count, width), indices(rows, count), np.zeros((rows, width), np.float32)
    expected = np.zeros((rows, width))
    np.add.at(expected, index[index != padding], dy[index != padding])
    grid, block = cover(count, width)
    add_to_table[grid, block](dy, index, padding, out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_ops_agree_with_the_cpu(shape, dtype):
    index = indices(6, *shape).astype(dtype)
    agree("Embedding", index, table(6, 5), padding_idx=-1)
    agree("Embedding", index, table(6, 5, dtype=np.float16), padding_idx=2)
    agree("EmbeddingGrad", table(*shape, 5), index, rows=6, padding_idx=2, exact=False)
    agree("EmbeddingGrad", table(*shape, 5, dtype=np.float64), index, rows=6, padding_idx=-1, exact=False)


@pytest.mark.parametrize("bad", [-1, 6])
def test_an_index_outside_the_table_is_an_error(bad):
    index = np.array([[0, 5], [bad, 77]])
    with pytest.raises(IndexRangeError, match=f"index {bad} is out of range for dim 0 of size 6"):
        run_kernel("cuda", "Embedding", on_device(index), on_device(table(6, 5)), padding_idx=-1)


def test_rows_outside_the_table_are_left_out():
    index, out = np.array([0, -1, 6, 5]), np.full((4, 2), 7, np.float32)
    look_up[1, (2, 16)](table(6, 2), index, out)
    np.testing.assert_array_equal(out, np.where([[1], [0], [0], [1]], table(6, 2)[index % 6], np.float32(7)))
    gradient = np.zeros((6, 2), np.float32)
    add_to_table[1, (2, 16)](table(4, 2), index, -1, gradient)
    np.testing.assert_array_equal(gradient[[0, 5]], table(4, 2)[[0, 3]])
    assert not gradient[1:5].any()


CASES = [
    Case("look up", look_up, lambda: [table(4, 3), np.array([3, 0, 3]), np.full((3, 3), np.nan, np.float32)],
         (1, 2), (4, 2)),
    Case("gradient", add_to_table, lambda: [table(5, 3), np.array([3, 0, 3, 1, 1]), 1, np.zeros((4, 3), np.float32)],
         (1, 3), (4, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
