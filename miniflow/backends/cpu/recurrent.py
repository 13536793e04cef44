"""The LSTM over time steps: one product with the state a step, and one loop for all that is pointwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from miniflow.backends.cpu.scalars import tanh
from miniflow.backends.cpu.threads import compiled, unlocked
from miniflow.backends.registry import kernel


@compiled
def quarters(row):
    n = row.size // 4
    return row[:n], row[n : 2 * n], row[2 * n : 3 * n], row[3 * n :]


@compiled
def sigmoid(x):
    """In terms of tanh, whose float32 version is a polynomial that vectorizes."""
    half = type(x)(0.5)
    return half + half * tanh(half * x)


@unlocked()
def next_state(gates, before, memory, y):
    """The gates from their inputs; c = f c + i g and y = o tanh(c)."""
    rows, hidden = memory.shape
    for k in range(rows):
        i, f, g, o = quarters(gates[k])
        for gate in (i, f, o):
            for j in range(hidden):
                gate[j] = sigmoid(gate[j])
        for j in range(hidden):
            g[j] = tanh(g[j])
        c, new, result = before[k], memory[k], y[k]
        for j in range(hidden):
            new[j] = f[j] * c[j] + i[j] * g[j]
            result[j] = o[j] * tanh(new[j])


@unlocked()
def differentiate_cell(dh, dc, gates, before, memory, dgates):
    """The gradient of the gates before their sigmoids and tanh; dc becomes that of the memory one step before."""
    rows, hidden = dh.shape
    one = gates.dtype.type(1)
    for k in range(rows):
        i, f, g, o = quarters(gates[k])
        c, new, dy, dm = before[k], memory[k], dh[k], dc[k]
        di, df, dg, do = quarters(dgates[k])
        for j in range(hidden):
            t = tanh(new[j])
            do[j] = dy[j] * t * o[j] * (one - o[j])
            dm[j] += dy[j] * o[j] * (one - t * t)
        for j in range(hidden):
            df[j] = dm[j] * c[j] * f[j] * (one - f[j])
        for j in range(hidden):
            di[j] = dm[j] * g[j] * i[j] * (one - i[j])
        for j in range(hidden):
            dg[j] = dm[j] * i[j] * (one - g[j] * g[j])
        for j in range(hidden):
            dm[j] *= f[j]


def time_steps(sizes: Sequence[int], reverse: bool) -> Iterator[slice]:
    """The rows of each time step, in the order in which they are computed."""
    stops = np.cumsum(sizes).tolist()
    steps = [slice(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
    return reversed(steps) if reverse else iter(steps)


def states_before(first: np.ndarray, states: np.ndarray, steps: Iterator[slice]) -> np.ndarray:
    """The state that each row of each time step began with, from those that they ended with."""
    current, result = first.copy(), np.empty_like(states)
    for step in steps:
        size = step.stop - step.start
        result[step], current[:size] = current[:size], states[step]
    return result


@kernel("cpu")
def lstm(out, x, h, c, weight, *, sizes, reverse):
    y, h_last, c_last, gates, memory = out
    h_last[...], c_last[...] = h, c
    gates[...] = x
    for step in time_steps(sizes, reverse):
        size = step.stop - step.start
        gates[step] += (weight @ h_last[:size].T).T  # which takes a BLAS half the time of state @ weight.T
        next_state(gates[step], c_last[:size], memory[step], y[step])
        h_last[:size], c_last[:size] = y[step], memory[step]


@kernel("cpu")
def lstm_grad(out, dy, dh_last, dc_last, h, c, weight, y, gates, memory, *, sizes, reverse):
    dgates, dh, dc, dweight = out
    dh[...], dc[...] = dh_last, dc_last
    before = states_before(c, memory, time_steps(sizes, reverse))
    for step in time_steps(sizes, not reverse):
        size = step.stop - step.start
        carried = dh[:size]
        carried += dy[step]
        differentiate_cell(carried, dc[:size], gates[step], before[step], memory[step], dgates[step])
        np.matmul(dgates[step], weight, out=carried)
    np.matmul(dgates.T, states_before(h, y, time_steps(sizes, reverse)), out=dweight)
