"""Recurrent layers: those of miniflow, with weights in ONNX's order."""

from __future__ import annotations

from typing import Any

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.rnn import GRU, LSTM, RNN
from miniflow.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.registry import Ints, operator
from miniflow.ops.recurrence import CELLS, State, scan
from miniflow.tensor import Tensor

DIRECTIONS = {"forward": ("",), "reverse": ("_reverse",), "bidirectional": ("", "_reverse")}
LAYERS = {  # the layer, its gates by their places in ONNX's weights, its activations
    "LSTM": (LSTM, [0, 2, 3, 1], ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": (GRU, [1, 0, 2], ["Sigmoid", "Tanh"]),
    "RNN": (RNN, [0], ["Tanh"]),
}


class Stepwise:
    """A layer of single operators, which recordings see: for the options of ONNX that miniflow's layers do not have.

    `clip` bounds what the activations get, to [-clip, clip]; a GRU that `resets_first` has n = tanh(W_in x + b_in +
    W_hn (r h) + b_hn).
    """

    def _layers(self, x, sizes, hx, time=0):
        return super()._layers(x, sizes, hx)

    def _scan(self, x, state, weight_ih, weight_hh, bias_ih, bias_hh, sizes, reverse):
        size, name = 2 * self.hidden_size, self.cell or f"rnn_{self.nonlinearity}"
        weight, bias = weight_hh[size:], None if bias_hh is None else bias_hh[size:]

        def bounded(x: Tensor) -> Tensor:
            return flow.clamp(x, -self.clip, self.clip) if self.clip else x

        def gru(x: Tensor, projected: Tensor, state: State) -> State:
            reset, update = flow.chunk(flow.sigmoid(bounded(x[:, :size] + projected[:, :size])), 2, 1)
            hidden = F.linear(reset * state[0], weight, bias) if self.resets_first else reset * projected[:, size:]
            return (flow.lerp(flow.tanh(bounded(x[:, size:] + hidden)), state[0], update),)

        def other(x: Tensor, projected: Tensor, state: State) -> State:
            return CELLS[name](bounded(x + projected), 0.0, state)

        cell = gru if isinstance(self, GRU) else other
        return scan(cell, F.linear(x, weight_ih, bias_ih), state, weight_hh, bias_hh, sizes, reverse)


STEPWISE = {cls: type(cls.__name__, (Stepwise, cls), {}) for cls in (LSTM, GRU, RNN)}


@operator("LSTM", "GRU", "RNN")
def recurrent(
    x, w, r, b=None, sequence_lens: Ints = None, initial_h=None, initial_c=None, p=None, *, node: Node,
    activations: list[str] | None = None, direction: str, linear_before_reset: int = 1, clip: float = 0.0,
    **options: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """All hidden states and the last states; a layer is made of the weights for each call."""
    cls, order, defaults = LAYERS[node.operator.name]
    ends = DIRECTIONS[direction]
    defaults, relu = defaults * len(ends), cls is RNN and activations == ["Relu"] * len(ends)
    names = ("activation_alpha", "activation_beta", "input_forget", "layout")
    refused = {name: options.get(name) for name in names} | {"P": p is not None}
    refused |= {"activations": not relu and activations and activations[: len(defaults)] != defaults}
    if names := ", ".join(name for name, value in refused.items() if value):
        raise OnnxError(f"got {names}; expected a layer as PyTorch exports it")
    cls = STEPWISE[cls] if clip or not linear_before_reset else cls
    layer = cls.__new__(cls)
    Module.__init__(layer)
    sizes = {"input_size": w.shape[-1], "hidden_size": r.shape[-1], "num_layers": 1, "directions": ends}
    settings = {"bias": b is not None, "batch_first": False, "dropout": 0.0, "nonlinearity": "relu" if relu else "tanh"}
    settings |= {"clip": clip, "resets_first": not linear_before_reset, "proj_size": 0, "result_size": r.shape[-1]}
    vars(layer).update(sizes, **settings)  # nn.Graph undoes setattr
    for d, end in enumerate(ends):
        biases = (None, None) if b is None else flow.chunk(b[d], 2)
        for key, values in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), (w[d], r[d], *biases), strict=True):
            gates = None if values is None else flow.chunk(values, len(order))
            setattr(layer, f"{key}_l0{end}", None if values is None else flow.cat([gates[i] for i in order]))
    time, batch = x.shape[:2]
    zeros = flow.zeros(len(ends), batch, layer.hidden_size, dtype=x.dtype, device=x.device)
    initial = [initial_h, initial_c][: layer.states]
    states = tuple([zeros if s is None else s for s in initial])
    varying = sequence_lens is not None and set(sequence_lens) != {time}
    sequence = pack_padded_sequence(x, sequence_lens, enforce_sorted=False) if varying else x
    y, last = layer(sequence, layer._returned(states))
    y = pad_packed_sequence(y, total_length=time)[0] if varying else y
    y = y.reshape(time, batch, len(ends), -1).transpose(1, 2)
    return y, *layer._initial_state(last, x, ())
