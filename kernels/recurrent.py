"""One time step of recurrent layers: the cells of `miniflow.formulas.recurrent_cells`.

    thread i  ->  unit j of row k, i = k hidden + j, and column j of each of its gates

A thread reads and writes elements of its own unit only, each from one to four times.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, tanh

from miniflow.formulas.recurrent_cells import cells
from miniflow.hostcuda import cuda


def make_steps(cell: Callable, gradient: Callable) -> tuple[Callable, Callable]:
    """The kernels of a time step and of its gradient, for at least `rows * hidden` threads."""

    @cuda.jit
    def step(x, projected, bias, h, c, gates, memory, y):
        i = cuda.grid(1)
        k, j = i // h.shape[1], i % h.shape[1]
        if k < h.shape[0]:
            cell(k, j, j + 1, x, projected, bias, h, c, gates, memory, y)

    @cuda.jit
    def step_grad(dy, dh, dc, before, gates, memory, y, dx, dprojected):
        i = cuda.grid(1)
        k, j = i // dh.shape[1], i % dh.shape[1]
        if k < dh.shape[0]:
            gradient(k, j, j + 1, dy, dh, dc, before, gates, memory, y, dx, dprojected)

    return step, step_grad


CELLS = {name: make_steps(*pair) for name, pair in cells(tanh, exp, cuda.jit(device=True)).items()}
"""The kernels by the name of their cell."""
