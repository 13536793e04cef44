"""Recurrent layers: those of miniflow, with weights in ONNX's order, or with other activations and peepholes."""

from __future__ import annotations

from collections.abc import Sequence

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.rnn import GRU, LSTM, RNN, RNNBase
from miniflow.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from miniflow.onnx.load.operators.elementwise import FUNCTIONS
from miniflow.onnx.load.registry import Ints, operator
from miniflow.ops.recurrent import State, scan
from miniflow.tensor import Tensor

DIRECTIONS = {"forward": ("",), "reverse": ("_reverse",), "bidirectional": ("", "_reverse")}


class Unusual(RNNBase):
    """A layer that miniflow does not have: recordings see its single operators."""

    def _layers(self, x, sizes, hx, time=0):
        return super()._layers(x, sizes, hx)


class AnyLSTM(Unusual):
    """The gates are i, o, f and c; with activations and peepholes of each direction."""

    gates, states = 4, 2

    def _scan(self, x, state, weight_ih, weight_hh, bias_ih, bias_hh, sizes, reverse):
        f, g, h = self.functions[reverse]
        peepholes = self.peepholes[reverse]
        p_i, p_o, p_f = (0.0, 0.0, 0.0) if peepholes is None else flow.chunk(peepholes, 3)

        def cell(x: Tensor, projected: Tensor, state: State) -> State:
            i, o, forget, new = flow.chunk(x + projected, 4, 1)
            c = f(forget + p_f * state[1]) * state[1] + f(i + p_i * state[1]) * g(new)
            return f(o + p_o * c) * h(c), c

        return scan(cell, F.linear(x, weight_ih, bias_ih), state, weight_hh, bias_hh, sizes, reverse)


class AnyGRU(Unusual):
    """The gates are z, r and h; with activations of each direction. The reset gate may apply to the state itself."""

    gates = 3

    def _scan(self, x, state, weight_ih, weight_hh, bias_ih, bias_hh, sizes, reverse):
        f, g = self.functions[reverse]
        size = self.hidden_size
        weight, bias = weight_hh[2 * size :], None if bias_hh is None else bias_hh[2 * size :]

        def cell(x: Tensor, projected: Tensor, state: State) -> State:
            update, reset = flow.chunk(f(x[:, : 2 * size] + projected[:, : 2 * size]), 2, 1)
            after = reset * projected[:, 2 * size :] if self.linear_before_reset else None
            old = F.linear(reset * state[0], weight, bias) if after is None else after
            return (flow.lerp(g(x[:, 2 * size :] + old), state[0], update),)

        return scan(cell, F.linear(x, weight_ih, bias_ih), state, weight_hh, bias_hh, sizes, reverse)


@operator("LSTM")
def lstm(
    x, w, r, b=None, sequence_lens: Ints = None, initial_h=None, initial_c=None, p=None, *,
    activations: list[str] | None = None, activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None, clip: float = 0.0, direction: str = "forward", hidden_size: int = 0,
    input_forget: int = 0, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    refuse(activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip, input_forget=input_forget)
    usual = ["Sigmoid", "Tanh", "Tanh"] * len(w)
    names = activations or usual
    kind, order = (LSTM, [0, 2, 3, 1]) if p is None and names == usual else (AnyLSTM, [0, 1, 2, 3])
    return run(kind, order, x, w, r, b, sequence_lens, (initial_h, initial_c), direction, layout, names, p)


@operator("GRU")
def gru(
    x, w, r, b=None, sequence_lens: Ints = None, initial_h=None, *, activations: list[str] | None = None,
    activation_alpha: list[float] | None = None, activation_beta: list[float] | None = None, clip: float = 0.0,
    direction: str = "forward", hidden_size: int = 0, layout: int = 0, linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    refuse(activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip)
    usual = ["Sigmoid", "Tanh"] * len(w)
    names = activations or usual
    kind, order = (GRU, [1, 0, 2]) if linear_before_reset and names == usual else (AnyGRU, [0, 1, 2])
    reset = {"linear_before_reset": linear_before_reset}
    return run(kind, order, x, w, r, b, sequence_lens, (initial_h,), direction, layout, names, **reset)


@operator("RNN")
def rnn(
    x, w, r, b=None, sequence_lens: Ints = None, initial_h=None, *, activations: list[str] | None = None,
    activation_alpha: list[float] | None = None, activation_beta: list[float] | None = None, clip: float = 0.0,
    direction: str = "forward", hidden_size: int = 0, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    refuse(activation_alpha=activation_alpha, activation_beta=activation_beta, clip=clip)
    names = activations or ["Tanh"] * len(w)
    if names not in (["Tanh"] * len(w), ["Relu"] * len(w)):
        raise OnnxError(f"got activations={names}; expected Tanh or Relu")
    return run(
        RNN, [0], x, w, r, b, sequence_lens, (initial_h,), direction, layout, names, nonlinearity=names[0].lower()
    )


def refuse(**options: object) -> None:
    """Refuse options that are hardly ever exported.

    Raises:
        OnnxError: for one that is given.
    """
    for name, value in options.items():
        if value:
            raise OnnxError(f"got {name}={value}; expected none")


def run(
    kind: type[RNNBase], order: Sequence[int], x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lengths: Ints,
    initial: Sequence[Tensor | None], direction: str, layout: int, names: Sequence[str], p: Tensor | None = None,
    **options: object,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Y and the last states of a layer.

    Args:
        kind: the class of the layer, of which one with these weights is made.
        order: of the gates in its weights.
        names: of the activations of all directions.
        options: further attributes of the layer.
    """
    layer, ends = kind.__new__(kind), DIRECTIONS[direction]
    Module.__init__(layer)
    sizes = {"input_size": w.shape[-1], "hidden_size": r.shape[-1], "num_layers": 1, "directions": ends}
    vars(layer).update(sizes, bias=b is not None, batch_first=False, dropout=0.0, functions={}, peepholes={}, **options)
    for d, end in enumerate(ends):
        each = names[len(names) // len(ends) * d :][: len(names) // len(ends)]
        layer.functions[bool(end)] = [FUNCTIONS[name] for name in each]
        layer.peepholes[bool(end)] = None if p is None else p[d]
        parts = [w[d], r[d], *([] if b is None else flow.chunk(b[d], 2))]
        for name, values in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), parts, strict=False):
            gates = flow.chunk(values, len(order))
            setattr(layer, f"{name}_l0{end}", flow.cat([gates[i] for i in order]))
    x = x.transpose(0, 1) if layout else x
    time, batch = x.shape[:2]
    zeros = flow.zeros(len(ends), batch, layer.hidden_size, dtype=x.dtype, device=x.device)
    states = [zeros if s is None else s.transpose(0, 1) if layout else s for s in initial]
    varying = lengths is not None and set(lengths) != {time}
    given = pack_padded_sequence(x, lengths, enforce_sorted=False) if varying else x
    y, last = layer(given, states if layer.states > 1 else states[0])
    y = pad_packed_sequence(y, total_length=time)[0] if varying else y
    y = y.reshape(time, batch, len(ends), -1).permute([1, 0, 2, 3] if layout else [0, 2, 1, 3])
    last = last if layer.states > 1 else (last,)
    return y, *[s.transpose(0, 1) if layout else s for s in last]
