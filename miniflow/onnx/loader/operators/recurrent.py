"""Recurrent layers: those of miniflow, with weights in ONNX's order, or with other activations and peepholes."""

from __future__ import annotations

from collections.abc import Callable

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.rnn import GRU, LSTM, RNN, RNNBase
from miniflow.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.operators.elementwise import FUNCTIONS
from miniflow.onnx.loader.registry import Ints, operator
from miniflow.ops.recurrent import Cell, State, scan
from miniflow.tensor import Tensor

DIRECTIONS = {"forward": ("",), "reverse": ("_reverse",), "bidirectional": ("", "_reverse")}
LAYERS = {  # the layer, its gates by their places in ONNX's weights, its activations
    "LSTM": (LSTM, [0, 2, 3, 1], ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": (GRU, [1, 0, 2], ["Sigmoid", "Tanh"]),
    "RNN": (RNN, [0], ["Tanh"]),
}


class AnyLayer(RNNBase):
    """A layer with a cell for each direction; recordings see its single operators."""

    def _layers(self, x, sizes, hx, time=0):
        return super()._layers(x, sizes, hx)

    def _scan(self, x, state, weight_ih, weight_hh, bias_ih, bias_hh, sizes, reverse):
        return scan(self.cells[reverse], F.linear(x, weight_ih, bias_ih), state, weight_hh, bias_hh, sizes, reverse)


def rnn_cell(f: Callable) -> Cell:
    return lambda x, projected, state: (f(x + projected),)


def lstm_cell(f: Callable, g: Callable, h: Callable, peepholes: Tensor | None) -> Cell:
    """With activations of the gates, the new values and the memory."""
    p_i, p_o, p_f = (0.0, 0.0, 0.0) if peepholes is None else flow.chunk(peepholes, 3)

    def cell(x: Tensor, projected: Tensor, state: State) -> State:
        i, o, forget, new = flow.chunk(x + projected, 4, 1)
        c = f(forget + p_f * state[1]) * state[1] + f(i + p_i * state[1]) * g(new)
        return f(o + p_o * c) * h(c), c

    return cell


def gru_cell(f: Callable, g: Callable, weight: Tensor, bias: Tensor | None, linear_before_reset: int) -> Cell:
    """With activations of the gates and the new values, and the projection of the state."""
    size = weight.shape[1]
    weight, bias = weight[2 * size :], None if bias is None else bias[2 * size :]

    def cell(x: Tensor, projected: Tensor, state: State) -> State:
        update, reset = flow.chunk(f(x[:, : 2 * size] + projected[:, : 2 * size]), 2, 1)
        after = reset * projected[:, 2 * size :] if linear_before_reset else F.linear(reset * state[0], weight, bias)
        return (flow.lerp(g(x[:, 2 * size :] + after), state[0], update),)

    return cell


@operator("LSTM", "GRU", "RNN")
def recurrent(
    x, w, r, b=None, sequence_lens: Ints = None, initial_h=None, initial_c=None, p=None, *, node: Node,
    activations: list[str] | None = None, activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None, clip: float = 0.0, direction: str = "forward", hidden_size: int = 0,
    input_forget: int = 0, layout: int = 0, linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """All hidden states and the last states; a layer is made of the weights for each call."""
    if activation_alpha or activation_beta or clip or input_forget:
        raise OnnxError("got activation_alpha, activation_beta, clip or input_forget; expected none of them")
    kind, order, usual = LAYERS[name := node.operator.name]
    ends, each = DIRECTIONS[direction], len(usual)
    names = activations or usual * len(ends)
    if names != usual * len(ends) or p is not None or (kind is GRU and not linear_before_reset):
        kind, order = AnyLayer, range(len(order))
    layer = kind.__new__(kind)
    Module.__init__(layer)
    options = {"num_layers": 1, "directions": ends, "bias": b is not None, "batch_first": False, "dropout": 0.0}
    options |= {"input_size": w.shape[-1], "hidden_size": r.shape[-1], "nonlinearity": "tanh"}
    vars(layer).update(options, states=2 if name == "LSTM" else 1, cells={})  # nn.Graph undoes setattr
    for d, end in enumerate(ends):
        biases = (None, None) if b is None else flow.chunk(b[d], 2)
        more = {"LSTM": [None if p is None else p[d]], "GRU": [r[d], biases[1], linear_before_reset], "RNN": []}[name]
        cell = {"LSTM": lstm_cell, "GRU": gru_cell, "RNN": rnn_cell}[name]
        layer.cells[bool(end)] = cell(*[FUNCTIONS[f] for f in names[each * d : each * (d + 1)]], *more)
        for key, values in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), (w[d], r[d], *biases), strict=True):
            gates = None if values is None else flow.chunk(values, len(order))
            setattr(layer, f"{key}_l0{end}", None if values is None else flow.cat([gates[i] for i in order]))
    x = x.transpose(0, 1) if layout else x
    time, batch = x.shape[:2]
    zeros = flow.zeros(len(ends), batch, layer.hidden_size, dtype=x.dtype, device=x.device)
    given = [initial_h, initial_c][: layer.states]
    states = tuple([zeros if s is None else s.transpose(0, 1) if layout else s for s in given])
    varying = sequence_lens is not None and set(sequence_lens) != {time}
    sequence = pack_padded_sequence(x, sequence_lens, enforce_sorted=False) if varying else x
    y, last = layer(sequence, layer._returned(states))
    y = pad_packed_sequence(y, total_length=time)[0] if varying else y
    y = y.reshape(time, batch, len(ends), -1).permute([1, 0, 2, 3] if layout else [0, 2, 1, 3])
    return y, *[s.transpose(0, 1) if layout else s for s in layer._given(last, x, ())]
