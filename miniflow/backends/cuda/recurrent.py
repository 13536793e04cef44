"""Recurrent layers over time steps: a step is a product with the state and one launch for all that is pointwise."""

from __future__ import annotations

from miniflow.backends.cuda.array import contiguous, empty, full
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.matmul import matmul
from miniflow.backends.cuda.pointwise import pointwise
from miniflow.backends.cuda.reduce import total
from miniflow.backends.registry import kernel
from miniflow.backends.time_steps import by_gate, states_before, time_steps
from miniflow.kernels.recurrent import CELLS


@kernel("cuda")
def recurrent(out, x, h, c, weight, bias, *, cell, sizes, reverse):
    y, h_last, c_last, gates, memory = out
    h_last[...] = h
    if c is not None:
        c_last[...] = c
    hidden, device = h.shape[1], h.device_index
    x, gates, weight = by_gate(contiguous(x), hidden), by_gate(gates, hidden), weight.reshape(-1, hidden, hidden)
    bias = full(weight.shape[:2], 0, x.dtype, device) if bias is None else contiguous(bias).reshape(-1, hidden)
    for rows in time_steps(sizes, reverse):
        state, memory_now = h_last[: rows.stop - rows.start], c_last[: rows.stop - rows.start]
        products = empty((weight.shape[0], *state.shape), x.dtype, device)
        matmul(products, state, weight, transpose_x=False, transpose_y=True)
        arrays = bias, state, memory_now, gates[rows], memory[rows], y[rows]
        each(CELLS[cell][0], state.size, x[rows], products, *arrays)


@kernel("cuda")
def recurrent_grad(out, dy, dh_last, dc_last, h, c, weight, y, gates, memory, *, cell, sizes, reverse):
    dx, dh, dc, dweight, dbias = out
    dh[...] = dh_last
    dy, weight, y, gates, memory = map(contiguous, (dy, weight, y, gates, memory))
    before = h_before = states_before(y.copy(), h, y, time_steps(sizes, reverse))
    if c is not None:
        dc[...] = dc_last
        before = states_before(y.copy(), c, memory, time_steps(sizes, reverse))
    dprojected = dx.copy() if cell == "gru" else dx
    arrays = before, by_gate(gates, h.shape[1]), memory, y, *(by_gate(a, h.shape[1]) for a in (dx, dprojected))
    for rows in time_steps(sizes, not reverse):
        d, dm = dh[: rows.stop - rows.start], dc[: rows.stop - rows.start]
        each(CELLS[cell][1], d.size, dy[rows], d, dm, *[a[rows] for a in arrays])
        product = empty(d.shape, d.dtype, d.device_index)
        matmul(product, dprojected[rows], weight, transpose_x=False, transpose_y=False)
        pointwise("add", d, d, product)
    matmul(dweight, dprojected, h_before, transpose_x=True, transpose_y=False)
    total(dbias, dprojected, 0)
