"""Recurrent layers over time steps: for each step one matrix product per gate, and one call for the pointwise part.

For a BLAS these small products take half the time of one large product.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.scalars import exp, tanh
from miniflow.backends.cpu.threads import unlocked
from miniflow.backends.cpu.transpose import transpose_into
from miniflow.backends.registry import kernel
from miniflow.backends.time_steps import by_gate, states_before, time_steps
from miniflow.formulas.recurrent_cells import cells, loops_over

SEVERAL = 32  # rows from which transposing the weight pays: it halves the time of a product
CELLS = {name: [unlocked()(loop) for loop in loops_over(*pair)] for name, pair in cells(tanh, exp).items()}


@kernel("cpu")
def recurrent(out, x, h, c, weight, bias, *, cell, sizes, reverse):
    y, h_last, c_last, gates, memory = out
    h_last[...] = h
    if c is not None:
        c_last[...] = c
    hidden, step = h.shape[1], CELLS[cell][0]
    x, gates, weight = by_gate(x, hidden), by_gate(gates, hidden), weight.reshape(-1, hidden, hidden)
    bias = np.zeros(weight.shape[:2], x.dtype) if bias is None else bias.reshape(-1, hidden)
    transposed = weight.swapaxes(1, 2)
    if len(x) >= SEVERAL:
        transposed = np.empty(weight.shape, x.dtype)
        for source, target in zip(weight, transposed, strict=True):
            transpose_into(source, target)
    for rows in time_steps(sizes, reverse):
        state, memory_now = h_last[: rows.stop - rows.start], c_last[: rows.stop - rows.start]
        step(x[rows], np.matmul(state, transposed), bias, state, memory_now, gates[rows], memory[rows], y[rows])


@kernel("cpu")
def recurrent_grad(out, dy, dh_last, dc_last, h, c, weight, y, gates, memory, *, cell, sizes, reverse):
    dx, dh, dc, dweight, dbias = out
    dh[...] = dh_last
    before = h_before = states_before(np.empty_like(y), h, y, time_steps(sizes, reverse))
    if c is not None:
        dc[...] = dc_last
        before = states_before(np.empty_like(y), c, memory, time_steps(sizes, reverse))
    dprojected, hidden = np.empty_like(dx) if cell == "gru" else dx, h.shape[1]
    arrays = before, by_gate(gates, hidden), memory, y, by_gate(dx, hidden), by_gate(dprojected, hidden)
    weight = weight.reshape(-1, hidden, hidden)
    for rows in time_steps(sizes, not reverse):
        d, dm = dh[: rows.stop - rows.start], dc[: rows.stop - rows.start]
        CELLS[cell][1](dy[rows], d, dm, *[a[rows] for a in arrays])
        d += np.matmul(arrays[-1][rows].swapaxes(0, 1), weight).sum(0)
    np.matmul(dprojected.T, h_before, out=dweight)
    dprojected.sum(0, out=dbias)
