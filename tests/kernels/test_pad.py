"""`kernels.pad`: one-hot rows, folding windows; padding, and the ops on shapes that only copy."""

import numpy as np
import pytest
from both import agree, numbers_of
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

import miniflow as flow
from miniflow.backends.cuda.rows import cover
from miniflow.kernels.pad import fold_add, one_hot
from miniflow.ops.diagonal import Diagonal
from miniflow.ops.views import Slice


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


@pytest.mark.parametrize("widths", [
    ((0, 0), (0, 0), (0, 0)), ((0, 0), (0, 0), (1, 2)), ((0, 0), (2, 0), (0, 0)), ((1, 0), (0, 0), (0, 0)),
    ((1, -1), (0, 0), (-1, 3)), ((-2, 0), (0, -3), (5, 0)), ((3, -2), (1, 1), (0, 0)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float32, np.int64])
def test_pad_agrees_with_the_cpu(widths, dtype):
    agree("Pad", numbers_of(dtype, 2, 3, 5), widths=widths, value=1)


def test_pad_of_nothing():
    agree("Pad", normal(0, 3), widths=((1, 1), (0, 0)), value=2.5)
    agree("Pad", normal(2, 3), widths=((-1, -1), (0, 1)), value=2.5)
    agree("Pad", np.array(3.0), widths=(), value=2.5)


@pytest.mark.parametrize("count, classes", [(1, 1), (300, 5), (3, 257), (255, 1)])
def test_one_hot(count, classes):
    x, out = np.random.default_rng(0).integers(0, classes, count), np.full((count, classes), 222)
    grid, block = cover((1, count, classes))
    one_hot[grid, block](x, out)
    np.testing.assert_array_equal(out, np.eye(classes, dtype=np.int64)[x])


@pytest.mark.parametrize("classes", [9, 12])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_one_hot_agrees_with_the_cpu(classes, dtype):
    agree("OneHot", np.random.default_rng(0).integers(0, 9, (3, 4)).astype(dtype), num_classes=classes)


@pytest.mark.parametrize("size, step", [(1, 1), (3, 1), (3, 2), (2, 3), (7, 1), (0, 2), (5, 9)])
@pytest.mark.parametrize("shape, dim", [((7,), 0), ((2, 7, 3), 1), ((7, 257), 0)])
def test_fold_add(shape, dim, size, step):
    windows = (shape[dim] - size) // step + 1
    y = normal(*shape[:dim], windows, *shape[dim + 1 :], size)
    agree("FoldAdd", y, shape=shape, dim=dim, size=size, step=step, exact=False)
    sizes = int(np.prod(shape[:dim])), shape[dim], int(np.prod(shape[dim + 1 :]))
    out, expected = nan(*sizes), np.zeros(sizes)
    y = y.reshape(sizes[0], windows, sizes[2], size)
    for w in range(windows):
        expected[:, w * step : w * step + size] += y[:, w].transpose(0, 2, 1)
    if size:
        grid, block = cover(sizes)
        fold_add[grid, block](y, step, out)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_fold_add_of_bools_and_of_no_dims():
    agree("FoldAdd", np.ones((3, 2), bool), shape=(4,), dim=0, size=2, step=1)
    for device in ("cpu", "cuda"):
        x = flow.tensor(3.0, device=device, requires_grad=True)
        (x.unfold(0, 1, 1) * 2).sum().backward()
        assert x.grad.shape == () and x.grad.item() == 2


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float32, np.int64])
def test_views_and_copies_agree_with_the_cpu(dtype):
    x = numbers_of(dtype, 3, 4, 5)
    agree("View", x, shape=(12, 5), layouts=("contiguous",))
    agree("Transpose", x, dim0=0, dim1=-1)
    agree("Permute", x, dims=(2, 0, 1))
    agree("Expand", x[:, :1], shape=(2, 3, 6, 5))
    agree("Slice", x, index=(1, ..., None, slice(0, 4, 2)))
    agree("Diagonal", x, offset=1, dim1=2, dim2=0)
    agree("Unfold", x, dim=1, size=2, step=2)
    agree("Clone", x)
    agree("Flip", x, dims=(0, 2))
    agree("SliceIntoZeros", x[:2], shape=(5, 4, 5), index=(slice(0, 4, 2), ...))
    agree("DiagonalIntoZeros", x[:, :, 0], shape=(5, 3, 4), offset=-1, dim1=0, dim2=2)
    steps = ((Slice, {"index": (..., slice(1, 5))}), (Diagonal, {"offset": 0, "dim1": 1, "dim2": 2}))
    agree("ViewScatter", x, numbers_of(dtype, 3, 4), steps=steps)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.float32])
def test_joins_agree_with_the_cpu(dim, dtype):
    x = numbers_of(dtype, 3, 4, 5)
    parts = [x, x[(slice(None),) * dim + (slice(0, 1),)].copy(), x[(slice(None),) * dim + (slice(0, 0),)].copy()]
    agree("Cat", *parts, dim=dim, sizes=tuple([p.shape[dim] for p in parts]))
    agree("Stack", x, x[::-1].copy(), x, dim=dim)
    agree("Stack", x, dim=3)


CASES = [
    Case("one hot", one_hot, lambda: [np.array([2, 0, 1]), np.full((3, 5), 222)], (1, 2), (8, 2)),
    Case("overlapping windows", fold_add, lambda: [normal(2, 3, 2, 3), 1, nan(2, 5, 2)], (1, 3, 2), (2, 2)),
    Case("windows with gaps", fold_add, lambda: [normal(1, 2, 3, 2), 3, nan(1, 6, 3)], (1, 3), (4, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
