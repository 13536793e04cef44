"""Pooling: values, where maxima lie, gradients of any order, refused arguments."""

import itertools
from math import inf, nan

import numpy as np
import pytest
from checks import assert_same, check_op

import miniflow as flow
from miniflow.backends.cpu import threads
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.ops.pooling import adaptive_avg_pool2d, avg_pool2d, max_pool2d

RNG = np.random.default_rng(8)
X = RNG.permutation(np.linspace(-1.0, 1.0, 2 * 3 * 7 * 8)).reshape(2, 3, 7, 8)  # no two are close: maxima have no kinks
DTYPES = ("float32", "float64", "float16", "bfloat16")


def pair(n):
    return n if isinstance(n, tuple) else (n, n)


def counts(size, kernel, stride, padding, dilation, ceil_mode):
    """How many windows fit, by trying: with ceil_mode a window may hang over, but not start behind the image."""
    found = []
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        starts = itertools.count(-p, s)
        reach = d * (k - 1)
        fits = (lambda t, n=n, p=p: t < n) if ceil_mode else (lambda t, n=n, p=p, reach=reach: t + reach < n + p)
        number = len(list(itertools.takewhile(fits, starts)))
        if ceil_mode:  # one that hangs over only counts if the one before it did not cover everything
            while number > 1 and -p + (number - 2) * s + reach >= n + p - 1:
                number -= 1
        found.append(number)
    return found


def windows(x, kernel, stride=None, padding=0, dilation=1, ceil_mode=False):
    """For each window, its taps on the image (row and column indices), and its full extent in rows and columns."""
    kernel, padding, dilation = pair(kernel), pair(padding), pair(dilation)
    stride = kernel if stride is None else pair(stride)
    rows, columns = counts(x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    for i, j in itertools.product(range(rows), range(columns)):
        taps = []
        extent = []
        for at, n, k, s, p, d in zip((i, j), x.shape[2:], kernel, stride, padding, dilation, strict=True):
            positions = [at * s - p + t * d for t in range(k)]
            taps.append([q for q in positions if 0 <= q < n])
            extent.append(len([q for q in positions if q < n + p]))
        yield (i, j), (rows, columns), taps, extent


def numpy_max(x, *args, **kwargs):
    """(values, flat positions), the first of equal maxima, the last of several NaN."""
    y = index = None
    for (i, j), size, (rows, columns), _ in windows(x, *args, **kwargs):
        if y is None:
            y, index = np.empty((*x.shape[:2], *size)), np.empty((*x.shape[:2], *size), np.int64)
        seen = x[:, :, rows][:, :, :, columns].reshape(*x.shape[:2], -1)
        where = seen.argmax(-1)
        if np.isnan(seen).any():
            last = seen.shape[-1] - 1 - np.isnan(seen[..., ::-1]).argmax(-1)
            where = np.where(np.isnan(seen).any(-1), last, where)
        y[:, :, i, j] = np.take_along_axis(seen, where[..., None], -1)[..., 0]
        index[:, :, i, j] = np.array([[r * x.shape[3] + c for c in columns] for r in rows]).reshape(-1)[where]
    return y, index


def numpy_avg(x, kernel, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    y = None
    for (i, j), size, (rows, columns), extent in windows(x, kernel, stride, padding, 1, ceil_mode):
        y = np.empty((*x.shape[:2], *size)) if y is None else y
        number = extent[0] * extent[1] if count_include_pad else len(rows) * len(columns)
        y[:, :, i, j] = x[:, :, rows][:, :, :, columns].sum((2, 3)) / (divisor_override or number)
    return y


def numpy_adaptive(x, size):
    rows, columns = (
        [range(i * n // m, -(-(i + 1) * n // m)) for i in range(m)] for n, m in zip(x.shape[2:], size, strict=True)
    )
    return np.stack([np.stack([x[:, :, r][:, :, :, c].mean((2, 3)) for c in columns], -1) for r in rows], -2)


# kernel, stride, padding, dilation, ceil_mode
MAX = {
    "2": (2, None, 0, 1, False),
    "3x2": ((3, 2), (1, 2), 0, 1, False),
    "border": (3, 2, 1, 1, False),
    "overlapping": (3, 1, (1, 0), 1, False),
    "gaps": (2, (3, 4), 0, 1, False),
    "dilated": ((2, 3), 1, (1, 0), (2, 3), False),
    "ceil": (3, 2, (0, 1), 1, True),
    "ceil, long stride": (2, 5, 1, 1, True),
    "global": ((7, 8), None, 0, 1, False),
    "wide": (5, 1, 2, 1, False),
}


@pytest.mark.parametrize("name", MAX)
def test_max_pool2d(name):
    options = MAX[name]
    few = name not in ("border", "ceil", "dilated")
    check_op(
        lambda x: max_pool2d(x, *options, return_indices=True),
        [X],
        lambda x: numpy_max(x, *options),
        dtypes=("float32", "float64") if few else DTYPES,
        gradient="sparse",
        layouts=("strided",) if few else ("fortran", "strided", "reversed"),
    )


def test_max_pool2d_of_ties_nan_and_infinities():
    x = np.zeros((1, 1, 4, 6))
    x[0, 0, 0, :2] = nan, 1
    x[0, 0, 1, 1] = nan  # the last NaN of a window is where it was found
    x[0, 0, 2:, 2:4] = -inf
    x[0, 0, 1, 4] = inf
    for kernel, stride, padding in ((2, 2, 0), (3, 1, 1), (2, 1, 1)):
        y, index = max_pool2d(flow.tensor(x), kernel, stride, padding, return_indices=True)
        want, where = numpy_max(x, kernel, stride, padding)
        assert_same(y.cpu().numpy(), want)
        assert_same(index.cpu().numpy(), where)


def test_max_pool2d_without_indices_is_one_result():
    y = max_pool2d(flow.tensor(X), 2)
    assert_same(y.cpu().numpy(), numpy_max(X, 2)[0])
    assert not y.requires_grad


def test_window_whose_taps_all_miss_the_image():
    x = flow.ones(1, 1, 1, 1).requires_grad_()
    y = max_pool2d(x, 2, 1, 1, dilation=2)
    assert_same(y.detach().cpu().numpy(), np.full((1, 1, 1, 1), -inf, np.float32))
    flow.autograd.backward(y, flow.ones(1, 1, 1, 1))
    assert_same(x.grad.cpu().numpy(), np.zeros((1, 1, 1, 1), np.float32))


# kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
AVG = {
    "2": (2,),
    "3x2": ((3, 2), (1, 2)),
    "border": (3, 2, 1),
    "border not counted": (3, 2, 1, False, False),
    "gaps": (2, (3, 4)),
    "ceil": (3, 2, (0, 1), True),
    "ceil, border not counted": ((3, 2), 2, 1, True, False),
    "ceil, long stride": (2, 5, 1, True),
    "divisor": (3, 2, 1, False, True, 5),
    "negative divisor": (2, 2, 0, False, True, -3),
    "global": ((7, 8),),
    "one window inside": ((4, 5), 6),
    "one window over the border": ((5, 6), 8, (2, 3), False, False),
}


@pytest.mark.parametrize("name", AVG)
def test_avg_pool2d(name):
    options = AVG[name]
    few = name not in ("border", "ceil, border not counted")
    check_op(
        lambda x: avg_pool2d(x, *options),
        [X],
        lambda x: numpy_avg(x, *options),
        dtypes=("float32", "float64") if few else DTYPES,
        gradient="sparse" if name in ("gaps", "ceil, long stride") or "one window" in name else "dense",
        layouts=("strided",) if few else ("fortran", "strided", "reversed", "expanded"),
    )


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (7, 8), (5, 3), (9, 13)], ids=str)
def test_adaptive_avg_pool2d(size):
    check_op(
        lambda x: adaptive_avg_pool2d(x, size),
        [X],
        lambda x: numpy_adaptive(x, size),
        dtypes=DTYPES if size == (3, 4) else ("float32", "float64"),
        layouts=("strided", "expanded"),
    )


def test_adaptive_avg_pool2d_sizes():
    x = flow.tensor(X)
    assert_same(adaptive_avg_pool2d(x, 2).cpu().numpy(), adaptive_avg_pool2d(x, (2, 2)).cpu().numpy())
    assert_same(adaptive_avg_pool2d(x, None).cpu().numpy(), X)
    assert adaptive_avg_pool2d(x, (None, 3)).shape == (2, 3, 7, 3)
    assert adaptive_avg_pool2d(x, (0, 3)).shape == (2, 3, 0, 3)
    with pytest.raises(ArgumentError, match="adaptive_avg_pool2d: got output_size="):
        adaptive_avg_pool2d(x, (1, 2, 3))


POOLS = {
    "max": (lambda x: max_pool2d(x, 3, 2, 1), lambda x: numpy_max(x, 3, 2, 1)[0]),
    "avg": (lambda x: avg_pool2d(x, 3, 2, 1), lambda x: numpy_avg(x, 3, 2, 1)),
    "adaptive": (lambda x: adaptive_avg_pool2d(x, (2, 3)), lambda x: numpy_adaptive(x, (2, 3))),
}


@pytest.mark.parametrize("name", POOLS)
def test_third_order(name):
    """Pooling alone is linear between kinks; its cube has gradients of three orders."""
    function, reference = POOLS[name]
    gradient = "sparse" if name == "max" else "dense"
    check_op(lambda x: function(x) ** 3, [X], lambda x: reference(x) ** 3, gradient=gradient, third=True, layouts=())


@pytest.mark.parametrize("name", POOLS)
def test_one_image_and_none(name):
    function, reference = POOLS[name]
    assert_same(function(flow.tensor(X[0])).cpu().numpy(), function(flow.tensor(X)).cpu().numpy()[0])
    none = flow.tensor(np.zeros((0, 3, 7, 8))).requires_grad_()
    y = function(none)
    assert y.shape == (0, *reference(X).shape[1:])
    flow.autograd.backward(y, flow.ones_like(y))
    assert none.grad.shape == none.shape


@pytest.mark.parametrize("name", POOLS)
def test_threads_share_the_planes(name, monkeypatch):
    function, _ = POOLS[name]

    def run():
        x = flow.tensor(X).requires_grad_()
        y = function(x)
        return y.detach().cpu().numpy(), flow.autograd.grad(
            y, [x], flow.tensor(RNG_COTANGENT[: y.numel()].reshape(y.shape))
        )

    monkeypatch.setattr(threads.numba, "get_num_threads", lambda: 1)
    y, (dx,) = run()
    monkeypatch.setattr(threads.numba, "get_num_threads", lambda: 4)
    monkeypatch.setattr(threads, "SHARED_FROM", 1)
    for _ in range(5):
        shared, (shared_dx,) = run()
        assert_same(shared, y)
        assert_same(shared_dx.cpu().numpy(), dx.cpu().numpy())


RNG_COTANGENT = RNG.standard_normal(1000)


def test_a_part_that_fails_is_reported(monkeypatch):
    monkeypatch.setattr(threads.numba, "get_num_threads", lambda: 2)

    def kernel(start, stop):
        if start:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        threads.share(kernel, 2, threads.SHARED_FROM)


def test_refused():
    x = flow.tensor(X)
    for function, name in ((max_pool2d, "max_pool2d"), (avg_pool2d, "avg_pool2d")):
        with pytest.raises(ArgumentError, match=f"{name}: got padding=.*at most half of the window: pad the input"):
            function(x, 2, 1, 2)
        with pytest.raises(ArgumentError, match=f"{name}: got kernel_size=0"):
            function(x, 0)
        with pytest.raises(ShapeError, match=f"{name}: .*images at least as large as the kernel"):
            function(x, 9)
        with pytest.raises(ShapeError, match=rf"{name}: got input \(7, 8\); expected \(N, C, H, W\)"):
            function(x[0, 0], 2)
    with pytest.raises(DTypeError, match="max_pool2d: got bool; expected numbers"):
        max_pool2d(x > 0, 2)
    with pytest.raises(ArgumentError, match="divisor_override=0; expected a non-zero integer"):
        avg_pool2d(x, 2, divisor_override=0)
    with pytest.raises(ArgumentError, match="integers of at least 0"):
        adaptive_avg_pool2d(x, -1)
    with pytest.raises(ShapeError, match="expected non-zero H and W"):
        adaptive_avg_pool2d(x[:, :, :0], 1)
    with pytest.raises(DTypeError, match="adaptive_avg_pool2d: got int64"):
        adaptive_avg_pool2d(x.long(), 1)


def places_of_maxima(x, size, stride, padding, dilation):
    """The largest element of each window, and its position in the flat image, element by element."""
    images = x.shape[2:]
    along = list(zip(images, size, stride, padding, dilation, strict=True))
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in along]
    y, index = np.zeros((*x.shape[:2], *counts)), np.zeros((*x.shape[:2], *counts), np.int64)
    for place in np.ndindex(y.shape):
        seen = []
        for tap in np.ndindex(*size):
            at = tuple(i * s - p + d * t for i, t, (_, _, s, p, d) in zip(place[2:], tap, along, strict=True))
            seen += [at] if all(0 <= i < n for i, n in zip(at, images, strict=True)) else []
        best = max(seen, key=lambda at: x[(*place[:2], *at)])
        y[place], index[place] = x[(*place[:2], *best)], np.ravel_multi_index(best, images)
    return y, index


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "windows",  # size, stride, padding and dilation, of which each dim takes its own
    [
        ((2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1)),
        ((3, 2, 2), (2, 1, 3), (1, 0, 1), (1, 1, 2)),
        ((2, 3, 1), (1, 2, 2), (0, 1, 0), (2, 1, 1)),
        ((1, 2, 3), (2, 2, 1), (0, 1, 1), (1, 2, 1)),
    ],
)
def test_places_of_maxima(dims, windows):
    """With distinct elements, in several images and channels."""
    shape = (2, 3, *(7, 5, 6)[:dims])
    x = np.random.default_rng(dims).permutation(np.prod(shape)).reshape(shape).astype(np.float64)
    function = getattr(flow.nn.functional, f"max_pool{dims}d")
    size, stride, padding, dilation = windows = [numbers[:dims] for numbers in windows]
    options = {"stride": stride, "padding": padding, "dilation": dilation, "return_indices": True}
    expected = places_of_maxima(x, *windows)
    for found, wanted in zip(function(flow.tensor(x), size, **options), expected, strict=True):
        assert_same(found, wanted)
    for found, wanted in zip(function(flow.tensor(x[1]), size, **options), expected, strict=True):
        assert_same(found, wanted[1])
    layer = getattr(flow.nn, f"MaxPool{dims}d")(size, **options)
    assert_same(layer(flow.tensor(x))[1], expected[1])
