"""Recurrent cells, and the loop that runs one over the time steps of sequences.

The inputs of all time steps are projected by one matrix product before the loop. Each time step then takes one product
with the state, and the pointwise rest. Sequences are packed: the rows of time step t are those of the sequences that
are still running, the longest first (see `nn.utils.rnn`); sequences of one length are a special case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from miniflow import scalar
from miniflow.dispatch import Op, call
from miniflow.ops.activation import sigmoid
from miniflow.ops.join import cat
from miniflow.ops.matmul import linear
from miniflow.ops.pointwise import OPERATORS, add_gradient, make_op
from miniflow.scalar import Formula
from miniflow.tensor import Tensor

State = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM
Cell = Callable[[Tensor, Tensor, State], State]  # of the projections of the input and of h, and the state


def _gated_memory(forget, memory, gate, new):
    """sigmoid(forget) * memory + sigmoid(gate) * tanh(new): the memory c of an LSTM after a time step."""
    return sigmoid(forget) * memory + sigmoid(gate) * scalar.tanh(new)


def _gated_tanh(x, gate):
    """sigmoid(gate) * tanh(x): the output h of an LSTM."""
    return sigmoid(gate) * scalar.tanh(x)


def _gate_grad(dy, gate, value):
    """Of sigmoid(gate) * value."""
    s = sigmoid(gate)
    return dy * value * s * (1 - s)


def _tanh_grad(dy, x, gate):
    """Of sigmoid(gate) * tanh(x) with respect to x."""
    t = scalar.tanh(x)
    return dy * sigmoid(gate) * (1 - t * t)


GatedMemory = make_op(Formula.of(_gated_memory, "gated_memory"), "gray", accepts="f")
add_gradient(GatedMemory, "forget")(lambda dy, forget, memory: _gate_grad(dy, forget, memory))
add_gradient(GatedMemory, "memory")(lambda dy, forget: dy * sigmoid(forget))
add_gradient(GatedMemory, "gate")(lambda dy, gate, new: _gate_grad(dy, gate, scalar.tanh(new)))
add_gradient(GatedMemory, "new")(lambda dy, gate, new: _tanh_grad(dy, new, gate))
GatedTanh = make_op(Formula.of(_gated_tanh, "gated_tanh"), "gray", accepts="f")
add_gradient(GatedTanh, "x")(_tanh_grad)
add_gradient(GatedTanh, "gate")(lambda dy, x, gate: _gate_grad(dy, gate, scalar.tanh(x)))


def tanh_cell(x: Tensor, projected: Tensor, state: State) -> State:
    """h = tanh(x + projected)"""
    return (OPERATORS["tanh"](x + projected),)


def relu_cell(x: Tensor, projected: Tensor, state: State) -> State:
    """h = relu(x + projected)"""
    return ((x + projected).relu(),)


def lstm_cell(x: Tensor, projected: Tensor, state: State) -> State:
    """Of x + projected = (i, f, g, o): c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c)."""
    i, f, g, o = (x + projected).chunk(4, 1)
    c = call(GatedMemory, f, state[1], i, g)
    return call(GatedTanh, c, o), c


def gru_cell(x: Tensor, projected: Tensor, state: State) -> State:
    """n = tanh(x_n + sigmoid(x_r + p_r) p_n), h = (1 - z) n + z h with z = sigmoid(x_z + p_z)."""
    size = state[0].shape[1]
    gates = sigmoid(x.narrow(1, 0, 2 * size) + projected.narrow(1, 0, 2 * size))
    reset, update = gates.chunk(2, 1)
    new = OPERATORS["tanh"](x.narrow(1, 2 * size, size) + reset * projected.narrow(1, 2 * size, size))
    return (new.lerp(state[0], update),)


class Lstm(Op):
    """`scan` of `lstm_cell` without a bias: y, the last h and c, and for `LstmGrad` the gates and c of each row.

    Only on the CPU, where one call for all time steps takes a third of the time.
    """

    amp = "white"
    outputs = ("y", "h_last", "c_last", "gates", "memory")

    def infer(x, h, c, weight, *, sizes, reverse):
        rows, state = ((x.shape[0], h.shape[1]), x.dtype), (h.shape, x.dtype)
        return [rows, state, state, (x.shape, x.dtype), rows]


class LstmGrad(Op):
    """Backpropagation through time."""

    amp = "white"
    outputs = ("dx", "dh", "dc", "dweight")

    def infer(dy, dh_last, dc_last, h, c, weight, y, gates, memory, *, sizes, reverse):
        return [(a.shape, dy.dtype) for a in (gates, h, c, weight)]


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
