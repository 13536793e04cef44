"""The picture of lesson 8: what each of your kernels reads for one output, beside what you predicted."""

import matplotlib.pyplot as plt
import numpy as np

from miniflow.hostcuda import check
from tutorials.accesses import draw_attempts

SIZE = 64
DRAWN = 32  # of a matrix whose elements are drawn


def launches(impl, size=SIZE):
    """Kernel, grid, block, and the side of a block of outputs that reads for each other."""
    wide, low = size // 32, size // 4
    tiles, sides = -(-size // impl.TILE), -(-size // impl.SIDE)
    return [
        (impl.naive, (wide, low), (32, 4), 1),
        (impl.coalesced, (wide, low), (32, 4), 1),
        (impl.tiled, (tiles, tiles), (impl.TILE, impl.TILE), impl.TILE),
        (impl.blocked, (sides, sides), (impl.TILE, impl.TILE), impl.SIDE),
    ]


def draw_task(task, attempts):
    """A row for each attempt at a kernel: who reads and writes which element. None for 8.5, which is no kernel."""
    number = int(task.partition(".")[2]) - 1
    if number >= 4:
        return None

    def launch_of(impl):
        kernel, grid, block, _ = launches(impl, DRAWN)[number]
        return kernel, grid, block, [np.ones((DRAWN, DRAWN), np.float32) for _ in range(3)]

    return draw_attempts(attempts, launch_of)


def draw(impl):
    """Left: elements read from global memory, counted and predicted. Right: bytes that the hardware moves for it."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in "ab")
    names, counted, predicted, moved = [], [], [], []
    for kernel, grid, block, side in launches(impl):
        profile = check.launch(kernel, [a, b, np.zeros_like(a)], grid, block, profile=True)
        names.append(kernel.__name__)
        counted.append(profile.total.global_loads / a.size)
        predicted.append(impl.reads(SIZE, SIZE, SIZE, side, side) / a.size)
        moved.append(32 * profile.total.sectors / a.size)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    places = np.arange(len(names))
    bars = [
        left.bar(places - 0.2, counted, 0.4, color="#3d85c6", label="counted"),
        left.bar(places + 0.2, predicted, 0.4, color="#f6b26b", label="predicted"),
    ]
    left.legend()
    left.set(title=f"reads for one output: {counted[-1]:g} with blocked", ylabel="elements")
    bars.append(right.bar(places, moved, 0.6, color="#38761d"))
    right.set(title="memory moved for one output, in whole sectors", ylabel="bytes")
    for axis in (left, right):
        axis.set_yscale("log")
        axis.set_xticks(places, names)
        axis.margins(y=0.12)
        axis.spines[["top", "right"]].set_visible(False)
    for axis, container in zip((left, left, right), bars):
        axis.bar_label(container, fmt="%g", fontsize=8)
    return figure
