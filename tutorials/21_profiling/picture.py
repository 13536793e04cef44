"""The picture of lesson 21: operators under the roof of this machine, and the improvement of task 21.6."""

import time

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow
from miniflow import nn

COUNT = 1 << 24


def limits(impl):
    """The best that this machine does: operations and bytes in a second."""
    squares = [flow.randn(n, n) for n in (256, 512, 1024)]
    source, target = np.ones(COUNT, np.float32), np.empty(COUNT, np.float32)
    products = [impl.median_time(lambda a=a: a @ a, time.perf_counter, 2, 7) for a in squares]
    copy = impl.median_time(lambda: np.copyto(target, source), time.perf_counter, 2, 7)
    return max(2 * len(a) ** 3 / seconds for a, seconds in zip(squares, products)), 8 * COUNT / copy


def operators(impl):
    """Name, operations, bytes and seconds of some operators of a training step."""
    x, w, b = flow.randn(2048, 784), flow.randn(512, 784), flow.randn(512)
    y = flow.randn(32768, 512)  # 64 MB: more than caches hold
    cases = {
        "linear": (lambda: nn.functional.linear(x, w, b), "linear", x, w, b),
        "linear, batch 16": (lambda: nn.functional.linear(x[:16], w, b), "linear", x[:16], w, b),
        "relu": (lambda: flow.relu(y), "relu", y),
        "add": (lambda: y + b, "add", y, b),
        "sum": (lambda: y.sum(), "sum", y),
    }
    for name, (call, operator, *operands) in cases.items():
        operations, moved = impl.cost(operator, *(tuple(operand.shape) for operand in operands))
        yield name, operations, moved, impl.median_time(call, time.perf_counter, 3, 15)


def draw(impl):
    """Left: operations in a second by operations a byte, and the roof. Right: `slow_distances` and `distances`."""
    peak, bandwidth = limits(impl)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=(2, 1))
    intensity = np.geomspace(0.05, 500, 200)
    roof = [x / impl.roofline(x, 1.0, peak, bandwidth)[0] / 1e9 for x in intensity]
    left.plot(intensity, roof, color="#999999")
    for name, operations, moved, seconds in operators(impl):
        dot = left.plot(operations / moved, operations / seconds / 1e9, "o")[0]
        left.annotate(name, dot.get_xydata()[0], xytext=(6, -10), textcoords="offset points", fontsize=8)
    left.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="billion operations in a second")
    left.set_title(f"the roof: {peak / 1e9:.0f} billion operations, {bandwidth / 1e9:.0f} billion bytes a second")
    points, centers = flow.randn(2000, 64), flow.randn(50, 64)
    names = ("slow_distances", "distances")
    times = [
        1000 * impl.median_time(lambda name=name: getattr(impl, name)(points, centers), time.perf_counter, 2, 15)
        for name in names
    ]
    bars = right.bar(names, times, 0.6, color=["#f6b26b", "#38761d"])
    right.bar_label(bars, fmt="%.2f ms", fontsize=8)
    right.set(title=f"{times[0] / times[1]:.1f} times as fast", ylabel="milliseconds")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    return figure
