"""The checks of lesson 7: races, bounds and reads of every launch. NumPy in float64 is the oracle."""

import os

import numpy as np
import pytest

from tutorials import at_most, same

os.environ["MINIFLOW_CUDA"] = "host"  # only the host executor can check and count, even where there is a GPU

from miniflow.hostcuda import cuda  # noqa: E402
from miniflow.kernels import reduce  # noqa: E402
from tutorials.launches import launch  # noqa: E402

WARP, WARPS, BLOCK, STEPS = 32, 4, 64, 6
SHAPES = [(1, 33), (3, 1), (WARPS, 32), (WARPS + 1, 100), (2 * WARPS - 1, 31)]
WIDE = [shape for shape in SHAPES if shape[1] > 1]


@pytest.fixture
def given(impl, monkeypatch):
    """The lesson with the product's sums and maxima of a warp, so that a task does not need the one before."""
    monkeypatch.setattr(impl, "warp_sum", reduce.warp_sum)
    monkeypatch.setattr(impl, "warp_max", reduce.make_butterfly(max))
    return impl


def drawn(rng, *shape, low=-2, high=2):
    return rng.uniform(low, high, shape).astype(np.float32)


def launched(kernel, grid, block, inputs, outputs):
    """Launch a kernel with outputs of these shapes, full of NaN; returns the call as text, the outputs, the profile."""
    shapes = " and ".join(str(x.shape) for x in inputs if x.ndim)
    what = f"{kernel.py_func.__name__}, grid {grid}, block {block}, inputs of shape {shapes}"
    arrays, results = [x.copy() for x in inputs], [np.full(shape, np.nan, np.float32) for shape in outputs]
    profile = launch(kernel, [*arrays, *results], grid, block, what)
    for before, after in zip(inputs, arrays):
        same(after, before, f"an input after {what}", "a kernel writes only to its outputs")
    return what, results, profile


def started(function):
    """A device function; one without a result, as it is before it is written, has no type for numba."""
    if "Todo" in function.py_func.__code__.co_names:
        function.py_func(np.float32(0))
    return function


def by_rows(kernel, inputs, outputs):
    """`launched` with a warp for each row of the first input."""
    return launched(kernel, -(-len(inputs[0]) // WARPS), (WARP, WARPS), inputs, outputs)


def statistics(x, eps):
    """Mean and 1 / standard deviation of each row, in float64."""
    x = x.astype(np.float64)
    return x.mean(1), 1 / np.sqrt(x.var(1) + eps)


def normalized(x, eps):
    mean, rstd = statistics(x, eps)
    return (x.astype(np.float64) - mean[:, None]) * rstd[:, None]


def drawn_eps(rng):
    return np.float32(10 ** rng.uniform(-5, -1))


@pytest.mark.task("7.1")
@pytest.mark.parametrize("size", [1, 2, 3, 31, 33, 48, BLOCK - 1, BLOCK])
def test_tree_sum(impl, rng, size):
    tree_sum = impl.tree_sum

    @cuda.jit
    def sums(x, out):
        values = cuda.shared.array(BLOCK, np.float32)
        values[cuda.threadIdx.x] = x[cuda.threadIdx.x]
        cuda.syncthreads()
        tree_sum(values, cuda.blockDim.x)
        out[cuda.threadIdx.x] = values[0]  # all threads may read it

    x = drawn(rng, size)
    _, (got,), profile = launched(sums, 1, size, [x], [size])
    what = f"tree_sum of {size} values, as each thread reads it from values[0]"
    hint = "of an odd number of values, the one in the middle stays where it is"
    same(got, np.full(size, x.sum(dtype=np.float64), np.float32), what, hint, rtol=1e-4, atol=1e-4)
    turns = profile.total.shared_requests
    at_most(turns, 5 * STEPS + 4, f"tree_sum of {size} values: accesses of warps to shared memory", "add in pairs")


@pytest.mark.task("7.2")
def test_butterfly(impl, rng):
    warp_sum, warp_max = started(impl.warp_sum), started(impl.warp_max)

    @cuda.jit
    def across(x, sums, maxima):
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        sums[warp, lane] = warp_sum(x[warp, lane])
        maxima[warp, lane] = warp_max(x[warp, lane])

    x = drawn(rng, WARPS, WARP)
    x[1] = rng.permutation(WARP)
    _, results, _ = launched(across, 1, (WARP, WARPS), [x], [x.shape, x.shape])
    for name, got, reference in zip(("warp_sum", "warp_max"), results, (np.sum, np.max)):
        wanted = np.repeat(reference(x.astype(np.float64), axis=1, keepdims=True), WARP, axis=1).astype(np.float32)
        hint = "after the step with 16, each lane has two values; after 8, 4, 2 and 1 it has all 32"
        same(got, wanted, f"{name} of 4 warps, element [warp, lane]", hint, rtol=1e-4, atol=1e-4)


@pytest.mark.task("7.3")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["small", "large", "masked"])
def test_softmax(given, rng, shape, kind):
    x = drawn(rng, *shape)
    if kind == "large":
        x = x * 50 + rng.choice([-1e4, 300, 1e4], (shape[0], 1)).astype(np.float32)
    if kind == "masked":
        x[:, : shape[1] // 2] = -np.inf
    what, (got,), profile = by_rows(given.softmax, [x], [shape])
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    hint = "subtract the largest element first; what is exp(-inf - (-inf))?"
    wanted = (powers / powers.sum(1, keepdims=True)).astype(np.float32)
    same(got, wanted, f"{what}, {kind} elements", hint, rtol=1e-3, atol=1e-6)
    hint = "one pass for the largest element and the sum, one for the result; keep what was read in a variable"
    at_most(profile.total.global_loads, 2 * x.size, f"{what}: reads of global memory", hint)


@pytest.mark.task("7.4")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", [0, 3000])
def test_layer_norm(given, rng, shape, offset):
    x, weight, bias = drawn(rng, *shape) + np.float32(offset), drawn(rng, shape[1]), drawn(rng, shape[1])
    eps = drawn_eps(rng)
    what, (y, mean, rstd), profile = by_rows(given.layer_norm, [x, weight, bias, eps], [shape, shape[0], shape[0]])
    wanted_mean, wanted_rstd = (a.astype(np.float32) for a in statistics(x, eps))
    what += f", elements around {offset}, eps {eps:.1e}"
    same(mean, wanted_mean, f"{what}: mean", "the sum over the row, divided by its width", rtol=1e-5, atol=1e-5)
    same(rstd, wanted_rstd, f"{what}: rstd", "1 / sqrt(mean of (x - mean)**2 + eps)", rtol=1e-2)
    wanted = (normalized(x, eps) * weight + bias).astype(np.float32)
    same(y, wanted, f"{what}: y", "weight and bias belong to columns", rtol=1e-2, atol=2e-2 if offset else 1e-4)
    hint = "three passes; keep what was read in a variable"
    at_most(profile.total.global_loads, 5 * x.size, f"{what}: reads of global memory", hint)


@pytest.mark.task("7.5")
@pytest.mark.parametrize("shape", WIDE)
def test_layer_norm_grad(given, rng, shape):
    x, dy, weight, eps = drawn(rng, *shape), drawn(rng, *shape), drawn(rng, shape[1]), drawn_eps(rng)
    mean, rstd = statistics(x, eps)
    wanted = np.zeros(shape)
    for row, xhat in enumerate(normalized(x, eps)):
        jacobian = np.eye(shape[1]) - 1 / shape[1] - np.outer(xhat, xhat) / shape[1]
        wanted[row] = rstd[row] * jacobian @ (dy[row] * weight).astype(np.float64)
    saved = [a.astype(np.float32) for a in (mean, rstd)]
    what, (got,), profile = by_rows(given.layer_norm_grad, [dy, x, weight, *saved], [shape])
    hint = "mean and rstd depend on x, too: that gives two sums over the row"
    same(got, wanted.astype(np.float32), f"{what}: dx", hint, rtol=1e-3, atol=1e-3)
    limit = 6 * x.size + 2 * WARP * shape[0]
    hint = "two passes; use the saved mean and rstd"
    at_most(profile.total.global_loads, limit, f"{what}: reads of global memory", hint)


@pytest.mark.task("7.6")
@pytest.mark.parametrize("shape", SHAPES)
def test_parameter_grad(impl, rng, shape):
    x, dy, eps = drawn(rng, *shape), drawn(rng, *shape), drawn_eps(rng)
    saved = [a.astype(np.float32) for a in statistics(x, eps)]
    grid = -(-shape[1] // WARP)
    what, (dweight, dbias), profile = launched(impl.parameter_grad, grid, WARP, [dy, x, *saved], [shape[1], shape[1]])
    wanted = (dy * normalized(x, eps)).sum(0)
    same(dweight, wanted.astype(np.float32), f"{what}: dweight", "the sum of dy * xhat over rows", rtol=1e-3, atol=1e-3)
    same(dbias, dy.sum(0, dtype=np.float64).astype(np.float32), f"{what}: dbias", "the sum of dy over rows", atol=1e-4)
    at_most(profile.total.global_loads, 4 * x.size, f"{what}: reads of global memory", "read each element once")
