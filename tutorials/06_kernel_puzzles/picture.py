"""The picture of lesson 6: which thread of which block wrote each element, in a launch of each of your kernels."""

import matplotlib.pyplot as plt
import numpy as np

from miniflow.hostcuda import check
from miniflow.hostcuda.picture import draw_touches
from tutorials.accesses import draw_attempts


def launches(impl):
    """Kernel, grid, block and shapes (the inputs, then out) of the launch in each panel."""
    block, tile = impl.BLOCK, (impl.TILE, impl.TILE)
    return [
        (impl.add_ten, 1, 30, [30, 30]),
        (impl.add_pairs, 1, 30, [30, 30, 30]),
        (impl.guarded, 1, block, [30, 30]),
        (impl.double, 1, tile, [(5, 7), (5, 7)]),
        (impl.broadcast, 1, tile, [(5, 1), (1, 7), (5, 7)]),
        (impl.square, 3, block, [70, 70]),
        (impl.add_bias, (2, 2), tile, [(10, 13), 13, (10, 13)]),
        (impl.reverse, 3, block, [96, 96]),
        (impl.pool, 1, block, [30, 30]),
        (impl.dot, 1, block, [30, 30, 1]),
        (impl.convolve, 3, block, [70, impl.TAPS, 70]),
        (impl.prefix_sum, 3, block, [70, 70]),
        (impl.axis_sum, 6, block, [(6, 30), 6]),
        (impl.matmul, (2, 2), tile, [(10, 20), (20, 13), (10, 13)]),
    ]


def draw_task(task, attempts):
    """A row for each attempt at a puzzle: who reads and writes which element."""

    def launch_of(impl):
        kernel, grid, block, shapes = launches(impl)[int(task.partition(".")[2]) - 1]
        return kernel, grid, block, [np.ones(shape, np.float32) for shape in shapes]

    return draw_attempts(attempts, launch_of)


def draw(impl):
    """A panel for each puzzle: the elements of out, in the color of the block, with the number of the thread."""
    figure, axes = plt.subplots(4, 4, figsize=(15, 13), layout="constrained")
    for number, (axis, (kernel, grid, block, shapes)) in enumerate(zip(axes.flat, launches(impl)), start=1):
        arrays = [np.ones(shape, np.float32) for shape in shapes]
        profile = check.launch(kernel, arrays, grid, block, profile=True)
        draw_touches(axis, profile, profile.touches["out"], "written")
        reads = profile.total.global_loads / arrays[-1].size
        axis.set_title(f"6.{number} {profile.kernel}\nreads for each result: {reads:.3g}", fontsize=10)
    for axis in axes.flat[number:]:
        axis.set_axis_off()
    return figure
