"""Recurrent cells, and the loop that runs one over the time steps of sequences.

The inputs of all time steps are projected by one matrix product before the loop. Each time step then takes one product
with the state, and the pointwise rest. Sequences are packed: the rows of time step t are those of the sequences that
are still running, the longest first (see `nn.utils.rnn`); sequences of one length are a special case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from miniflow.dispatch.dispatcher import Op
from miniflow.errors import ShapeError, refusal
from miniflow.ops.activation import sigmoid, tanh
from miniflow.ops.joining import cat
from miniflow.ops.matmul import linear
from miniflow.tensor import Tensor

State = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM
Cell = Callable[[Tensor, Tensor, State], State]  # of the projections of the input and of h, and the state


def tanh_cell(x: Tensor, projected: Tensor, state: State) -> State:
    """h = tanh(x + projected)"""
    return (tanh(x + projected),)


def relu_cell(x: Tensor, projected: Tensor, state: State) -> State:
    """h = relu(x + projected)"""
    return ((x + projected).relu(),)


def lstm_cell(x: Tensor, projected: Tensor, state: State) -> State:
    """Of x + projected = (i, f, g, o): c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c)."""
    i, f, g, o = (x + projected).chunk(4, 1)
    c = sigmoid(f) * state[1] + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def projected_lstm_cell(weight: Tensor, x: Tensor, projected: Tensor, state: State) -> State:
    """`lstm_cell`, with h multiplied by a weight."""
    h, c = lstm_cell(x, projected, state)
    return linear(h, weight), c


def gru_cell(x: Tensor, projected: Tensor, state: State) -> State:
    """n = tanh(x_n + sigmoid(x_r + p_r) p_n), h = (1 - z) n + z h with z = sigmoid(x_z + p_z)."""
    size = state[0].shape[1]
    gates = sigmoid(x.narrow(1, 0, 2 * size) + projected.narrow(1, 0, 2 * size))
    reset, update = gates.chunk(2, 1)
    new = tanh(x.narrow(1, 2 * size, size) + reset * projected.narrow(1, 2 * size, size))
    return (new.lerp(state[0], update),)


CELLS: dict[str, Cell] = {"lstm": lstm_cell, "gru": gru_cell, "rnn_tanh": tanh_cell, "rnn_relu": relu_cell}
SAVED = {"lstm": (4, 1), "gru": (3, 1)}  # columns of `gates` and `memory` for each hidden unit; by default (0, 0)


class Recurrent(Op):
    """`scan` of one of the `CELLS`: y, the last h and c, and for `RecurrentGrad` the gates of each row, and its memory:
    c of an LSTM, of a GRU the projection of h that r is multiplied by.

    One call for all time steps takes a third of the time. c is None, and the last c is empty, but for an LSTM.
    """

    amp = "white"
    outputs = ("y", "h_last", "c_last", "gates", "memory")

    def infer(x, h, c, weight, bias, *, cell, sizes, reverse):
        rows, (batch, hidden), (gates, memory) = x.shape[0], h.shape, SAVED.get(cell, (0, 0))
        columns = max(gates, 1) * hidden
        shapes = [(rows, columns), (batch, hidden), (batch, hidden), (columns, hidden), (columns,)]
        operands = [(x, shape) for x, shape in zip((x, h, c, weight, bias), shapes, strict=True) if x is not None]
        fits = all(x.shape == shape and x.dtype == h.dtype for x, shape in operands) and (c is None) == (cell != "lstm")
        if not fits or batch != sizes[0] or rows != sum(sizes) or list(sizes) != sorted(sizes, reverse=True):
            expected = "a row of x for each step, whose sizes do not grow, and all of the layer's sizes"
            raise refusal(ShapeError, cell, expected, x=x, h=h, c=c, weight=weight, bias=bias, sizes=sizes)
        last_c = (0 if c is None else batch, hidden)
        shapes = (rows, hidden), h.shape, last_c, (rows, gates * hidden), (rows, memory * hidden)
        return [(shape, x.dtype) for shape in shapes]


class RecurrentGrad(Op):
    """Backpropagation through time."""

    amp = "white"
    outputs = ("dx", "dh", "dc", "dweight", "dbias")

    def infer(dy, dh_last, dc_last, h, c, weight, y, gates, memory, *, cell, sizes, reverse):
        last_c = (0 if c is None else h.shape[0], h.shape[1])
        shapes = (y.shape[0], weight.shape[0]), h.shape, last_c, weight.shape, weight.shape[:1]
        return [(shape, dy.dtype) for shape in shapes]


def scan(
    cell: Cell, x: Tensor, state: State, weight: Tensor, bias: Tensor | None, sizes: Sequence[int], reverse: bool
) -> tuple[Tensor, State]:
    """A cell over the time steps of packed sequences.

    Args:
        cell: from the projections of the input and of h, and the state, to the next state.
        x: (sum of sizes, gates), the projected inputs.
        state: of all sequences before the first time step, (sizes[0], hidden) each.
        weight, bias: of the projection of h.
        sizes: how many sequences each time step has, not increasing.
        reverse: begin with the last time step of each sequence.

    Returns:
        h after all time steps (sum of sizes, hidden), and the last state of each sequence.
    """
    steps = list(x.split(list(sizes)))
    waiting, results, ended = state, [], []
    state = tuple([s.narrow(0, 0, sizes[-1 if reverse else 0]) for s in state])
    for rows, size in zip(steps[::-1] if reverse else steps, sizes[::-1] if reverse else sizes, strict=True):
        running = state[0].shape[0]
        if size < running:
            ended.append([s.narrow(0, size, running - size) for s in state])
            state = tuple([s.narrow(0, 0, size) for s in state])
        elif size > running:
            begin = [s.narrow(0, running, size - running) for s in waiting]
            state = tuple([cat(both) for both in zip(state, begin, strict=True)])
        state = cell(rows, linear(state[0], weight, bias), state)
        results.append(state[0])
    if ended:
        state = tuple([cat(parts) for parts in zip(state, *ended[::-1], strict=True)])
    return cat(results[::-1] if reverse else results), state
