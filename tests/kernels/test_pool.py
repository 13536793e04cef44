"""Pooling against the definition in float64: kernels over boxes of planes, and what the backend makes of them."""

import itertools

import numpy as np
import pytest
from both import on_device, run_kernel
from checks import assert_close, assert_same
from kernel_cases import CAPABILITIES, Case, compile_case, run_checked

from miniflow.kernels import pool

draw = np.random.default_rng(0)


def numbers(*shape, kind=np.float32):
    return draw.standard_normal(shape).astype(kind)


def nans(*shape, kind=np.float32):
    return np.full(shape, np.nan, kind)


def pair(n):
    return n if isinstance(n, tuple) else (n, n)


def starts(n, k, s, p, d, ceil_mode):
    """Where the windows begin, by trying."""
    found = [-p]
    while True:
        start, last = found[-1] + s, found[-1] + d * (k - 1)
        if not (start < n and last < n + p - 1 if ceil_mode else start + d * (k - 1) < n + p):
            return found
        found.append(start)


def windows(size, kernel, stride, padding, dilation, ceil_mode):
    """For each window its place, its taps on the image, and how many there are with the border."""
    along = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        taps = [[start + t * d for t in range(k)] for start in starts(n, k, s, p, d, ceil_mode)]
        along.append([([t for t in w if 0 <= t < n], len([t for t in w if t < n + p])) for w in taps])
    places = itertools.product(enumerate(along[0]), enumerate(along[1]))
    return [len(a) for a in along], [((i, j), r, c, m * n) for (i, (r, m)), (j, (c, n)) in places]


# kernel, stride, padding, dilation, ceil_mode
MAX = {
    "2": (2, 2, 0, 1, False),
    "3x2": ((3, 2), (1, 2), 0, 1, False),
    "border": (3, 2, 1, 1, False),
    "dilated": ((2, 3), 1, (1, 0), (2, 3), False),
    "ceil": (3, 2, (0, 1), 1, True),
    "ceil, long stride": (2, 5, 1, 1, True),
    "global": ((7, 8), 8, 0, 1, False),
}


@pytest.mark.parametrize("name", MAX)
def test_max(name):
    *pairs, ceil_mode = [o if isinstance(o, bool) else pair(o) for o in MAX[name]]
    x = draw.permutation(2 * 3 * 7 * 8).reshape(2, 3, 7, 8).astype(np.float32)
    x[0, 1, 2:4, 3] = np.nan
    x[1, 1, :3, :3] = -np.inf
    counts, all_windows = windows((7, 8), *pairs, ceil_mode)
    y, index = nans(2, 3, *counts), np.full((2, 3, *counts), -7, np.int32)
    for (i, j), rows, columns, _ in all_windows:
        seen = x[:, :, rows][:, :, :, columns].reshape(2, 3, -1)
        where = np.where(
            np.isnan(seen).any(-1), seen.shape[-1] - 1 - np.isnan(seen[..., ::-1]).argmax(-1), seen.argmax(-1)
        )
        y[:, :, i, j] = np.take_along_axis(seen, where[..., None], -1)[..., 0]
        index[:, :, i, j] = np.array([r * 8 + c for r in rows for c in columns])[where]
    kernel, stride, padding, dilation = pairs
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, "ceil_mode": ceil_mode}
    for layout in ("contiguous", "transposed", "strided"):
        got, where = run_kernel(
            "cuda", "MaxPool2d", on_device(x, layout), padding=tuple((p, p) for p in padding), **attrs
        )
        assert_same(got.numpy(), y)
        assert_same(where.numpy(), index)

    dy, dx = numbers(2, 3, *counts), np.zeros((2, 3, 56))
    for n, c, i, j in np.ndindex(*dy.shape):
        dx[n, c, index[n, c, i, j]] += dy[n, c, i, j]
    for layout in ("contiguous", "transposed", "strided"):
        got = run_kernel("cuda", "MaxPool2dGrad", on_device(dy, layout), on_device(index, layout), size=(7, 8)).numpy()
        assert_close(got, dx.reshape(x.shape).astype(np.float32))


def test_windows_that_see_nothing():
    attrs = {"kernel": (2, 2), "stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (2, 2), "ceil_mode": False}
    y, index = run_kernel("cuda", "MaxPool2d", on_device(np.ones((1, 1, 1, 1), np.float32)), **attrs)
    assert_same(y.numpy(), np.full((1, 1, 1, 1), -np.inf, np.float32))
    assert_same(index.numpy(), np.full((1, 1, 1, 1), -1, np.int32))
    dy = on_device(np.ones((1, 1, 1, 1), np.float32))
    assert_same(run_kernel("cuda", "MaxPool2dGrad", dy, index, size=(1, 1)).numpy(), np.zeros((1, 1, 1, 1), np.float32))


# kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
AVG = {
    "2": (2, 2, 0, False, True, None),
    "3x2": ((3, 2), (1, 2), 0, False, True, None),
    "border": (3, 2, 1, False, True, None),
    "border not counted": (3, 2, 1, False, False, None),
    "gaps": (2, (3, 4), 0, False, True, None),
    "ceil, border not counted": ((3, 2), 2, 1, True, False, None),
    "ceil, long stride": (2, 5, 1, True, True, None),
    "negative divisor": (3, 2, 1, False, True, -5),
}


@pytest.mark.parametrize("name", AVG)
def test_average(name):
    kernel, stride, padding = (pair(o) for o in AVG[name][:3])
    ceil_mode, include_pad, divisor = AVG[name][3:]
    counts, all_windows = windows((7, 8), kernel, stride, padding, (1, 1), ceil_mode)
    x, dy = numbers(2, 3, 7, 8), numbers(2, 3, *counts)
    y, dx = np.zeros((2, 3, *counts)), np.zeros((2, 3, 7, 8))
    for (i, j), rows, columns, with_border in all_windows:
        number = divisor or (with_border if include_pad else len(rows) * len(columns))
        y[:, :, i, j] = x[:, :, rows][:, :, :, columns].sum((2, 3), dtype=np.float64) / number
        dx[:, :, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] += dy[:, :, i, j, None, None] / number
    attrs = {
        "kernel": kernel,
        "stride": stride,
        "padding": tuple((p, p) for p in padding),
        "ceil_mode": ceil_mode,
        "count_include_pad": include_pad,
        "divisor_override": divisor,
    }
    assert_close(
        run_kernel("cuda", "AvgPool2d", on_device(x, "strided"), **attrs).numpy(), y.astype(np.float32), atol=1e-6
    )
    got = run_kernel("cuda", "AvgPool2dGrad", on_device(dy, "transposed"), size=(7, 8), **attrs).numpy()
    assert_close(got, dx.astype(np.float32), atol=1e-6)


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (7, 8), (5, 3), (9, 13), (0, 3)], ids=str)
def test_adaptive(size):
    x, dy = numbers(2, 3, 7, 8, kind=np.float64), numbers(2, 3, *size, kind=np.float64)
    y, dx = np.zeros((2, 3, *size)), np.zeros((2, 3, 7, 8))
    for i, j in np.ndindex(*size):
        rows, columns = (slice(k * n // m, -(-(k + 1) * n // m)) for k, n, m in zip((i, j), (7, 8), size, strict=True))
        y[:, :, i, j] = x[:, :, rows, columns].mean((2, 3))
        dx[:, :, rows, columns] += dy[:, :, i, j, None, None] / x[0, 0, rows, columns].size
    assert_close(run_kernel("cuda", "AdaptiveAvgPool2d", on_device(x), output_size=size).numpy(), y)
    assert_close(run_kernel("cuda", "AdaptiveAvgPool2dGrad", on_device(dy), size=(7, 8)).numpy(), dx)


@pytest.mark.parametrize("shape", [(1, 33, 2), (300, 1, 1), (2, 257, 33), (70, 3, 5)], ids=str)
@pytest.mark.parametrize("limit", [65_535, 200])
def test_boxes_of_threads(shape, limit, monkeypatch):
    """Every element is made, whatever the shape, and planes beyond the grid too."""
    for place in ("launch", "rows"):
        monkeypatch.setattr(f"miniflow.backends.cuda.{place}.GRID_LIMIT", limit)
    x = numbers(*shape, 1)
    got = run_kernel("cuda", "AdaptiveAvgPool2d", on_device(x.reshape(1, *shape)), output_size=shape[1:]).numpy()
    assert_same(got, x.reshape(1, *shape))


INDEX = np.array([[[3, 0, -1]], [[1, 1, 2]]], np.int32)
BOUNDS = np.array([[0, 2], [1, 4]], np.int64)
COVERS = np.array([[0, 1], [0, 2], [1, 2], [1, 2]], np.int64)
WEIGHTS = np.array([0.5, 2], np.float32)
WINDOWS = (2, 2), (2, 1), (-1, 0), (1, 2)
CASES = [
    Case(
        "max_pool",
        pool.max_pool,
        lambda: [
            numbers(3, 5, 4),
            nans(3, 3, 2),
            np.full((3, 3, 2), -7, np.int32),
            (2, 2),
            (2, 1),
            (-1, 0),
            (1, 2),
            -np.inf,
        ],
        (1, 1, 1),
        (2, 4, 2),
    ),
    Case(
        "max_pool_gradient",
        pool.max_pool_gradient,
        lambda: [numbers(2, 1, 3), INDEX, np.zeros((2, 4), np.float32)],
        1,
        (4, 1, 2),
    ),
    Case(
        "average",
        pool.average,
        lambda: [numbers(3, 4, 4), nans(3, 2, 2), BOUNDS, BOUNDS, WEIGHTS, WEIGHTS],
        (1, 1, 2),
        (2, 2, 1),
    ),
    Case(
        "average_gradient",
        pool.average_gradient,
        lambda: [numbers(3, 2, 2), nans(3, 4, 4), COVERS, COVERS, WEIGHTS, WEIGHTS],
        (1, 1, 2),
        (4, 4, 1),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_checks(case):
    run_checked(case)


@pytest.mark.parametrize("cc", CAPABILITIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ptx(case, cc):
    compile_case(case, cc)
