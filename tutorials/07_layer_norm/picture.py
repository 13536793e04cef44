"""The picture of lesson 7: how exact your variance is, and how often your kernels read an element."""

import matplotlib.pyplot as plt
import numpy as np

from miniflow.hostcuda import check
from tutorials.accesses import draw_attempts

EPS = np.float32(1e-5)
SHAPE = 8, 128
SIZE = 8 * 128


def normalized(impl, x):
    """y, mean and rstd of `layer_norm` with weight 1 and bias 0, and the profile."""
    rows, width = x.shape
    outputs = [np.zeros(shape, np.float32) for shape in (x.shape, rows, rows)]
    inputs = [x, np.ones(width, np.float32), np.zeros(width, np.float32), EPS]
    grid = -(-rows // impl.WARPS)
    return *outputs, check.launch(impl.layer_norm, [*inputs, *outputs], grid, (impl.WARP, impl.WARPS), profile=True)


def launches(impl, shape=SHAPE):
    """Task, kernel, grid, block and arrays of a launch of each kernel."""
    rng = np.random.default_rng(0)
    x, dy, out = rng.standard_normal(shape), rng.standard_normal(shape), np.zeros(shape)
    x, dy, out = (array.astype(np.float32) for array in (x, dy, out))
    rows, columns = [np.zeros(shape[0], np.float32) for _ in "ab"], [np.zeros(shape[1], np.float32) for _ in "ab"]
    by_rows = shape[0] // impl.WARPS, (impl.WARP, impl.WARPS)
    return [
        ("7.1", impl.row_sums, shape[0], impl.BLOCK, [x, rows[0]]),
        ("7.3", impl.softmax, *by_rows, [x, out]),
        ("7.4", impl.layer_norm, *by_rows, [x, *columns, EPS, out, *rows]),
        ("7.5", impl.layer_norm_grad, *by_rows, [dy, x, columns[0], *rows, out]),
        ("7.6", impl.parameter_grad, shape[1] // impl.WARP, impl.WARP, [dy, x, *rows, *columns]),
    ]


def reads(impl):
    """Reads of global memory per element, of each kernel."""
    profiles = [check.launch(kernel, arrays, *dims, profile=True) for _, kernel, *dims, arrays in launches(impl)]
    return {profile.kernel: profile.total.global_loads / SIZE for profile in profiles}


def draw_task(task, attempts):
    """A row for each attempt at a kernel: who reads and writes which element. None for 7.2, which is no kernel."""
    if task == "7.2":
        return None

    def launch_of(impl):
        return next(rest for number, *rest in launches(impl, shape=(4, 64)) if number == task)

    return draw_attempts(attempts, launch_of)


def draw(impl):
    """The relative error of the variance of rows by their mean; bars of the reads per element."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    offsets = 2.0 ** np.arange(0, 14)
    x = (np.random.default_rng(1).standard_normal((len(offsets), 300)) + offsets[:, None]).astype(np.float32)
    exact = x.astype(np.float64).var(1)
    squares = np.mean(x * x, axis=1) - np.mean(x, axis=1) ** 2  # in float32
    yours = 1 / normalized(impl, x)[2].astype(np.float64) ** 2 - EPS
    for name, found in (("mean of squares minus squared mean", squares), ("1 / rstd$^2$ - eps of your kernel", yours)):
        left.loglog(offsets, np.maximum(abs(found - exact) / exact, 1e-9), marker="o", label=name)
    left.set(title="relative error of the variance, in float32", xlabel="mean of the row")
    left.legend()
    counts = reads(impl)
    bars = right.barh(list(counts), list(counts.values()), color="#3d85c6")
    right.bar_label(bars, fmt="%.2f", padding=3)
    right.invert_yaxis()
    right.set(title="reads of global memory per element", xlim=(0, 1.15 * max(counts.values())))
    return figure
