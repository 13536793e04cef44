"""The checks of lesson 9. The oracle is the product with its autograd, and for the forward pass a sum over indices."""

import tracemalloc

import numpy as np
import pytest

import miniflow as flow
from tutorials import same

F = flow.nn.functional
CASES = [  # x, weight, stride, padding
    ((2, 3, 7, 10), (4, 3, 3, 2), 2, 1),
    ((1, 2, 6, 5), (3, 2, 3, 3), 1, 0),
    ((2, 1, 5, 9), (2, 1, 1, 1), 3, 2),
    ((3, 2, 4, 5), (2, 2, 4, 3), 1, 3),
    ((1, 3, 9, 6), (5, 3, 5, 2), 3, 2),
    ((2, 2, 10, 7), (1, 2, 2, 4), 2, 2),
]
POOLS = [((2, 3, 7, 10), (3, 2), 2), ((1, 2, 6, 5), (2, 2), 2), ((2, 2, 5, 8), (3, 4), 1), ((3, 1, 8, 7), (2, 1), 3)]
MAY_NOT_CALL = {
    "9.1": ["sliding_window_view"],
    "9.2": ["convolve", "correlate", "scipy", "miniflow", "torch"],
    "9.3": ["convolve", "correlate", "scipy", "miniflow", "torch"],
    "9.4": ["convolve", "correlate", "scipy", "miniflow", "torch"],
    "9.5": ["convolve", "correlate", "scipy", "miniflow", "torch"],
    "9.6": ["convolve", "correlate", "scipy", "miniflow", "torch"],
}


def drawn(rng, *shape):
    """Random numbers that are not contiguous in memory."""
    return rng.uniform(-1, 1, (*shape[:-1], 2 * shape[-1]))[..., ::2]


def tensor(array):
    return flow.tensor(np.ascontiguousarray(array), requires_grad=True)


def size_of(size, kernel, stride, padding):
    return tuple(len(range(-padding, n + padding - k + 1, stride)) for n, k in zip(size, kernel))


def window_of(x, i, j, shape, stride):
    spans = [stride * (n - 1) + 1 for n in shape]
    seen = np.lib.stride_tricks.sliding_window_view(x, spans, (2, 3), writeable=True)
    return seen[:, :, i, j, ::stride, ::stride]


def unfold_of(x, kernel, stride, padding):
    return F.unfold(tensor(x), kernel, 1, padding, stride).numpy()


def fold_of(columns, shape, kernel, stride, padding):
    return F.fold(tensor(columns), shape[2:], kernel, 1, padding, stride).numpy()


@pytest.fixture
def given(impl, monkeypatch):
    """The implementation, with the functions of earlier tasks that are named replaced by the product's."""
    known = {"output_shape": size_of, "window": window_of, "unfold": unfold_of, "fold": fold_of}

    def replace(*names):
        for name in names:
            monkeypatch.setattr(impl, name, known[name])
        return impl

    return replace


def result_and_gradients(x, weight, bias, stride, padding, gradient):
    """conv2d of the product, and its gradients for x, weight and bias."""
    tensors = [tensor(a) for a in (x, weight, bias)]
    y = F.conv2d(*tensors, stride, padding)
    if gradient is not None:
        y.backward(tensor(gradient).detach())
    return y.detach().numpy(), [t.grad.numpy() if t.grad is not None else None for t in tensors]


def by_indices(x, weight, bias, stride, padding):
    """conv2d as the formula says it, one product after the other."""
    y = np.zeros((len(x), len(weight), *size_of(x.shape[2:], weight.shape[2:], stride, padding)), x.dtype)
    for n, o, r, s in np.ndindex(*y.shape):
        y[n, o, r, s] = bias[o]
        for c, i, j in np.ndindex(*weight.shape[1:]):
            row, column = stride * r + i - padding, stride * s + j - padding
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                y[n, o, r, s] += weight[o, c, i, j] * x[n, c, row, column]
    return y


def case(rng, x_shape, weight_shape, stride, padding):
    """x, weight, bias, a gradient of the result, and what to call the case."""
    size = size_of(x_shape[2:], weight_shape[2:], stride, padding)
    arrays = [drawn(rng, *s) for s in (x_shape, weight_shape, weight_shape[:1])]
    what = f"x {x_shape}, weight {weight_shape}, stride {stride}, padding {padding}"
    return *arrays, drawn(rng, x_shape[0], weight_shape[0], *size), what


@pytest.mark.task("9.1")
def test_output_shape(impl, rng):
    cases = [((7, 10), (3, 2), 2, 1), ((5, 9), (1, 1), 3, 2), ((8, 8), (8, 3), 5, 0), ((4, 5), (4, 3), 1, 3)]
    cases.append(tuple(tuple(int(n) for n in rng.integers(*bounds, 2)) for bounds in ((6, 20), (1, 6))) + (3, 2))
    for size, kernel, stride, padding in cases:
        what = f"output_shape({size}, {kernel}, {stride}, {padding})"
        hint = "the last kernel must end within the padded image; the first place counts too"
        same(impl.output_shape(size, kernel, stride, padding), size_of(size, kernel, stride, padding), what, hint)


@pytest.mark.task("9.1")
def test_window(impl, rng):
    for shape, (i, j), stride in [((3, 4), (0, 0), 1), ((3, 2), (1, 2), 2), ((2, 3), (2, 0), 3), ((1, 1), (2, 4), 2)]:
        x = drawn(rng, 2, 3, stride * (shape[0] - 1) + i + 2, stride * (shape[1] - 1) + j + 1)
        got = impl.window(x, i, j, shape, stride)
        what = f"window(x of shape {x.shape}, {i}, {j}, {shape}, {stride})"
        wanted = np.array([x[:, :, stride * r + i, stride * s + j] for r, s in np.ndindex(*shape)])
        same(got, np.moveaxis(wanted, 0, -1).reshape(2, 3, *shape), what, "begin at i, go on by stride, OH times")
        if not np.shares_memory(got, x):
            raise AssertionError(f"{what}: expected a view of x, got a copy. Hint: slices make views, lists copies")


@pytest.mark.task("9.2")
@pytest.mark.parametrize("shapes", CASES)
def test_convolution(given, rng, shapes):
    impl = given("output_shape", "window")
    x, weight, bias, _, what = case(rng, *shapes)
    hint = "the kernel is not flipped; every channel of x counts for every output"
    before = x.copy()
    same(impl.conv2d(x, weight, bias, *shapes[2:]), by_indices(x, weight, bias, *shapes[2:]), f"conv2d, {what}", hint)
    same(x, before, f"x after conv2d, {what}")
    x, weight, bias = (a.astype(np.float32) for a in (x, weight, bias))
    wanted, _ = result_and_gradients(x, weight, bias, *shapes[2:], None)
    same(impl.conv2d(x, weight, bias, *shapes[2:]), wanted, f"conv2d in float32, {what}", hint, rtol=1e-4, atol=1e-5)


@pytest.mark.task("9.2")
def test_memory_of_the_convolution(given, rng):
    impl = given("output_shape", "window")
    x, weight, bias, gradient, what = case(rng, (2, 8, 20, 23), (3, 8, 5, 5), 1, 2)
    impl.conv2d(x, weight, bias, 1, 2)
    tracemalloc.start()
    try:
        impl.conv2d(x, weight, bias, 1, 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    most = 4 * (x.size + gradient.size) * x.itemsize
    if peak > most:
        columns = 25 * x.size * x.itemsize
        raise AssertionError(
            f"conv2d, {what}: expected a peak of at most {most:,} bytes, four times x and the result; got {peak:,}. "
            f"Hint: one element of the kernel at a time; all windows together have {columns:,} bytes"
        )


@pytest.mark.task("9.3")
@pytest.mark.parametrize("shapes", CASES)
def test_unfold(given, rng, shapes):
    impl = given("output_shape", "window")
    (x, *_, what), kernel = case(rng, *shapes), shapes[1][2:]
    wanted = unfold_of(x, kernel, *shapes[2:])
    hint = "rows of the result in the order of (c, i, j), columns in that of (r, s)"
    same(impl.unfold(x, kernel, *shapes[2:]), wanted, f"unfold, {what}", hint)
    for itemsize in (4, 8):
        got = impl.unfold_bytes(x.shape, kernel, *shapes[2:], itemsize)
        same(got, wanted.size * itemsize, f"unfold_bytes with elements of {itemsize} bytes, {what}", "copies count")


@pytest.mark.task("9.3")
@pytest.mark.parametrize("shapes", CASES)
def test_convolution_as_a_product(given, rng, shapes, monkeypatch):
    impl, calls = given("output_shape", "window"), []
    monkeypatch.setattr(impl, "unfold", lambda *args, **kw: calls.append(args) or unfold_of(*args, **kw))
    x, weight, bias, _, what = case(rng, *shapes)
    wanted, _ = result_and_gradients(x, weight, bias, *shapes[2:], None)
    same(impl.conv2d_unfold(x, weight, bias, *shapes[2:]), wanted, f"conv2d_unfold, {what}", "the bias belongs to o")
    same(len(calls), 1, f"calls of unfold, {what}", "one matrix product does all")


@pytest.mark.task("9.4")
@pytest.mark.parametrize("shapes", CASES)
def test_fold(given, rng, shapes):
    impl = given("output_shape", "window", "unfold")
    (x, *_, what), kernel = case(rng, *shapes), shapes[1][2:]
    columns = drawn(rng, *unfold_of(x, kernel, *shapes[2:]).shape)
    got = impl.fold(columns, x.shape, kernel, *shapes[2:])
    hint = "where windows overlap, gradients add up; the padding is cut off at the end"
    same(got, fold_of(columns, x.shape, kernel, *shapes[2:]), f"fold, {what}", hint)
    both = (unfold_of(x, kernel, *shapes[2:]) * columns).sum(), (x * got).sum()
    same(float(both[1]), float(both[0]), f"fold, {what}: sum of x * fold(columns), against unfold(x) * columns", hint)


@pytest.mark.task("9.4")
@pytest.mark.parametrize("shapes", CASES)
def test_input_gradient(given, rng, shapes):
    impl = given("output_shape", "window", "unfold", "fold")
    x, weight, bias, gradient, what = case(rng, *shapes)
    _, (wanted, _, _) = result_and_gradients(x, weight, bias, *shapes[2:], gradient)
    got = impl.input_gradient(gradient, weight, x.shape, *shapes[2:])
    same(got, wanted, f"input_gradient, {what}", "the gradient of W U for U, and then that of unfold")


@pytest.mark.task("9.5")
@pytest.mark.parametrize("shapes", CASES)
def test_parameter_gradients(given, rng, shapes):
    impl = given("output_shape", "window", "unfold", "fold")
    x, weight, bias, gradient, what = case(rng, *shapes)
    _, (_, *wanted) = result_and_gradients(x, weight, bias, *shapes[2:], gradient)
    got = impl.parameter_gradients(gradient, x, weight.shape[2:], *shapes[2:])
    same(len(got), 2, f"parameter_gradients, {what}: arrays")
    for name, mine, theirs in zip(("weight", "bias"), got, wanted):
        same(mine, theirs, f"parameter_gradients, {what}: {name}", "a sum over all images and all outputs")


@pytest.mark.task("9.6")
@pytest.mark.parametrize("shape, kernel, stride", POOLS)
@pytest.mark.parametrize("low", [-3, -2])
def test_max_pool(given, rng, shape, kernel, stride, low):
    impl = given("output_shape", "window")
    x = rng.integers(low, low + 3, shape).astype(np.float64)  # with many equal elements
    y, positions = F.max_pool2d(tensor(x), kernel, stride, return_indices=True)
    got = impl.max_pool2d(x, kernel, stride)
    what = f"max_pool2d, x {shape}, kernel {kernel}, stride {stride}"
    same(len(got), 2, f"{what}: arrays")
    same(got[0], y.detach().numpy(), f"{what}: values", "negative elements too")
    hint = "row * W + column in the plane of x, not in the window; of equal elements the first"
    same(got[1], positions.numpy(), f"{what}: positions", hint)


@pytest.mark.task("9.6")
@pytest.mark.parametrize("shape, kernel, stride", POOLS)
def test_max_pool_gradient(given, rng, shape, kernel, stride):
    impl = given("output_shape", "window")
    x = tensor(drawn(rng, *shape))
    y, positions = F.max_pool2d(x, kernel, stride, return_indices=True)
    gradient = drawn(rng, *y.shape)
    y.backward(tensor(gradient).detach())
    got = impl.max_pool2d_gradient(gradient, positions.numpy(), shape)
    what = f"max_pool2d_gradient, x {shape}, kernel {kernel}, stride {stride}"
    same(got, x.grad.numpy(), what, "an element that is the largest of several windows gets the sum")
