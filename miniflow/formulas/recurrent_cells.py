"""One time step of recurrent layers, without the product with the state, written once for both devices.

A cell computes units first .. last - 1 of row k. The CPU calls it for whole rows; it has several loops over few arrays
each, because LLVM vectorizes those. A CUDA thread calls it for its one unit.

    x, gates, dx, dprojected              (rows, gates, hidden)
    projected                             (gates, rows, hidden), bias (gates, hidden)
    h, c, memory, y and their gradients   (rows, hidden)

`cell(k, first, last, x, projected, bias, h, c, gates, memory, y)` replaces the state by the next one and keeps what the
gradient needs: LSTM i, f, g, o and c; GRU r, z, n and p_n, the projection of h that r is multiplied by; RNN only y.
`gradient(k, first, last, dy, dh, dc, before, gates, memory, y, dx, dprojected)` replaces the gradient of the state by
its part one step earlier that does not pass through the projection. `before` is the state before the step: c of an
LSTM, h of the others. `dprojected` is `dx` itself except for a GRU.
"""

from __future__ import annotations

from collections.abc import Callable

from numba.extending import register_jitable


def inlined(function: Callable) -> Callable:
    """A plain function that numba inlines into loops: LLVM then knows their start, which vectorizing needs."""
    return register_jitable(error_model="numpy", fastmath={"contract"}, inline="always")(function)


def cells(tanh: Callable, exp: Callable, compiled: Callable = inlined) -> dict[str, tuple[Callable, Callable]]:
    """The cells and their gradients by name, with a device's functions."""

    @compiled
    def write_sigmoid(first, last, gate, x, projected, bias):
        one = gate.dtype.type(1)
        for j in range(first, last):
            gate[j] = one / (one + exp(-(x[j] + projected[j] + bias[j])))

    @compiled
    def lstm(k, first, last, x, projected, bias, h, c, gates, memory, y):
        i, f, g, o, new = gates[k, 0], gates[k, 1], gates[k, 2], gates[k, 3], memory[k]
        for gate in (0, 1, 3):
            write_sigmoid(first, last, gates[k, gate], x[k, gate], projected[gate, k], bias[gate])
        for j in range(first, last):
            g[j] = tanh(x[k, 2, j] + projected[2, k, j] + bias[2, j])
        for j in range(first, last):
            c[k, j] = new[j] = f[j] * c[k, j] + i[j] * g[j]
        for j in range(first, last):
            h[k, j] = y[k, j] = o[j] * tanh(new[j])

    @compiled
    def lstm_grad(k, first, last, dy, dh, dc, before, gates, memory, y, dx, dprojected):
        i, f, g, o = gates[k, 0], gates[k, 1], gates[k, 2], gates[k, 3]
        d, dm, zero, one = dh[k], dc[k], y.dtype.type(0), y.dtype.type(1)
        for j in range(first, last):
            t, total = tanh(memory[k, j]), d[j] + dy[k, j]
            dx[k, 3, j] = total * t * o[j] * (one - o[j])
            dm[j] += total * o[j] * (one - t * t)
        for j in range(first, last):
            d[j] = zero
            dx[k, 1, j] = dm[j] * before[k, j] * f[j] * (one - f[j])
        for j in range(first, last):
            dx[k, 0, j] = dm[j] * g[j] * i[j] * (one - i[j])
        for j in range(first, last):
            dx[k, 2, j] = dm[j] * i[j] * (one - g[j] * g[j])
        for j in range(first, last):
            dm[j] *= f[j]

    @compiled
    def gru(k, first, last, x, projected, bias, h, c, gates, memory, y):
        r, z, n, p_n, new = gates[k, 0], gates[k, 1], gates[k, 2], memory[k], y[k]
        for gate in range(2):
            write_sigmoid(first, last, gates[k, gate], x[k, gate], projected[gate, k], bias[gate])
        for j in range(first, last):
            p_n[j] = projected[2, k, j] + bias[2, j]
        for j in range(first, last):
            new[j] = tanh(
                x[k, 2, j] + r[j] * p_n[j]
            )  # not to n: LLVM cannot tell that it does not overlap r, a part of the same array
        for j in range(first, last):
            n[j] = new[j]
        for j in range(first, last):
            h[k, j] = new[j] = n[j] + z[j] * (h[k, j] - n[j])

    @compiled
    def gru_grad(k, first, last, dy, dh, dc, before, gates, memory, y, dx, dprojected):
        r, z, n, p_n, d, one = gates[k, 0], gates[k, 1], gates[k, 2], memory[k], dh[k], y.dtype.type(1)
        dr, dz, dn, dp_n = dx[k, 0], dx[k, 1], dx[k, 2], dprojected[k, 2]
        for j in range(first, last):
            d[j] += dy[k, j]
            dz[j] = d[j] * (before[k, j] - n[j]) * z[j] * (one - z[j])
        for j in range(first, last):
            dn[j] = d[j] * (one - z[j]) * (one - n[j] * n[j])
            d[j] *= z[j]
        for j in range(first, last):
            dp_n[j] = dn[j] * r[j]
            dr[j] = dn[j] * p_n[j] * r[j] * (one - r[j])
        for gate in range(2):
            for j in range(first, last):
                dprojected[k, gate, j] = dx[k, gate, j]

    @compiled
    def rnn_tanh(k, first, last, x, projected, bias, h, c, gates, memory, y):
        for j in range(first, last):
            h[k, j] = y[k, j] = tanh(x[k, 0, j] + projected[0, k, j] + bias[0, j])

    @compiled
    def rnn_tanh_grad(k, first, last, dy, dh, dc, before, gates, memory, y, dx, dprojected):
        for j in range(first, last):
            dx[k, 0, j] = (dh[k, j] + dy[k, j]) * (y.dtype.type(1) - y[k, j] * y[k, j])
            dh[k, j] = y.dtype.type(0)

    @compiled
    def rnn_relu(k, first, last, x, projected, bias, h, c, gates, memory, y):
        for j in range(first, last):
            value = x[k, 0, j] + projected[0, k, j] + bias[0, j]
            h[k, j] = y[k, j] = y.dtype.type(0) if value <= 0 else value  # NaN stays

    @compiled
    def rnn_relu_grad(k, first, last, dy, dh, dc, before, gates, memory, y, dx, dprojected):
        for j in range(first, last):
            dx[k, 0, j] = y.dtype.type(0) if y[k, j] <= 0 else dh[k, j] + dy[k, j]
            dh[k, j] = y.dtype.type(0)

    return {
        "lstm": (lstm, lstm_grad),
        "gru": (gru, gru_grad),
        "rnn_tanh": (rnn_tanh, rnn_tanh_grad),
        "rnn_relu": (rnn_relu, rnn_relu_grad),
    }


def loops_over(cell: Callable, gradient: Callable) -> tuple[Callable, Callable]:
    """The CPU's loops over all rows of a time step.

    They stand in this file so that numba's cache, which looks at the time of one file, notices a changed cell.
    """

    def step(x, projected, bias, h, c, gates, memory, y):
        for k in range(len(h)):
            cell(k, 0, h.shape[1], x, projected, bias, h, c, gates, memory, y)

    def step_grad(dy, dh, dc, before, gates, memory, y, dx, dprojected):
        for k in range(len(dh)):
            gradient(k, 0, dh.shape[1], dy, dh, dc, before, gates, memory, y, dx, dprojected)

    return step, step_grad
