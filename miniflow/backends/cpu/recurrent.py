"""The LSTM over time steps: one product with the state a step, and what does not depend on the state for all at once.

A sigmoid is computed as (1 + tanh(x / 2)) / 2, so that one call of NumPy's vectorized tanh does all gates of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from miniflow.backends.cpu.threads import compiled, unlocked
from miniflow.backends.registry import kernel


@compiled
def quarters(row):
    n = row.size // 4
    return row[:n], row[n : 2 * n], row[2 * n : 3 * n], row[3 * n :]


@unlocked()
def next_memory(gates, before, memory):
    """c = f c + i g, and the sigmoids of the gates (i, f, g, o) from the tanh of their halves."""
    rows, hidden = memory.shape
    half = gates.dtype.type(0.5)
    for k in range(rows):
        i, f, g, o = quarters(gates[k])
        for gate in (i, f, o):
            for j in range(hidden):
                gate[j] = half * gate[j] + half
        c, result = before[k], memory[k]
        for j in range(hidden):
            result[j] = f[j] * c[j] + i[j] * g[j]


@unlocked()
def differentiate_cell(dh, dc, gates, before, squashed, dgates):
    """The gradient of the gates before their sigmoids and tanh; dc becomes that of the memory one step before.

    Args:
        squashed: tanh(c) of this step.
    """
    rows, hidden = dh.shape
    one = gates.dtype.type(1)
    for k in range(rows):
        i, f, g, o = quarters(gates[k])
        c, t, dy, dm = before[k], squashed[k], dh[k], dc[k]
        di, df, dg, do = quarters(dgates[k])
        for j in range(hidden):
            do[j] = dy[j] * t[j] * o[j] * (one - o[j])
        for j in range(hidden):
            dm[j] += dy[j] * o[j] * (one - t[j] * t[j])
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
    halved = np.full(len(weight), 0.5, x.dtype)
    halved[2 * h.shape[1] : -h.shape[1]] = 1  # not the gate that is a tanh
    np.multiply(x, halved, out=gates)
    weight = weight * halved[:, None]
    for step in time_steps(sizes, reverse):
        size = step.stop - step.start
        gate, result, state, remembered = gates[step], y[step], h_last[:size], memory[step]
        gate += (weight @ state.T).T  # which takes a BLAS half the time of state @ weight.T
        np.tanh(gate, out=gate)
        next_memory(gate, c_last[:size], remembered)
        np.tanh(remembered, out=result)
        result *= gate[:, -h.shape[1] :]
        state[...], c_last[:size] = result, remembered


@kernel("cpu")
def lstm_grad(out, dy, dh_last, dc_last, h, c, weight, y, gates, memory, *, sizes, reverse):
    dgates, dh, dc, dweight = out
    dh[...], dc[...] = dh_last, dc_last
    squashed = np.tanh(memory)
    before = states_before(c, memory, time_steps(sizes, reverse))
    for step in time_steps(sizes, not reverse):
        size = step.stop - step.start
        carried = dh[:size]
        carried += dy[step]
        differentiate_cell(carried, dc[:size], gates[step], before[step], squashed[step], dgates[step])
        np.matmul(dgates[step], weight, out=carried)
    np.matmul(dgates.T, states_before(h, y, time_steps(sizes, reverse)), out=dweight)
