"""Recurrent layers and their cells."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import numpy as np

from miniflow.autograd import Function, grad
from miniflow.dispatch.composite import composite
from miniflow.dispatch.dispatcher import call
from miniflow.dispatch.tape import is_grad_enabled, modes
from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn import init
from miniflow.nn.arguments import AT_LEAST_0, check_choice, check_range
from miniflow.nn.modules.layer import Layer
from miniflow.nn.utils.rnn import PackedSequence, check_state
from miniflow.ops.creation import zeros, zeros_like
from miniflow.ops.dropout import dropout
from miniflow.ops.gather import index_select
from miniflow.ops.joining import cat, stack
from miniflow.ops.matmul import linear
from miniflow.ops.permute import transpose
from miniflow.ops.recurrence import CELLS, Recurrent, RecurrentGrad, State, projected_lstm_cell, scan
from miniflow.ops.shape import reshape, squeeze, unsqueeze
from miniflow.tensor import Tensor


class RecurrentBase(Layer):
    """What all recurrent layers and cells share: sizes, and parameters within 1 / sqrt(hidden_size)."""

    gates = 1  # rows of a weight for each hidden unit
    states = 1  # tensors of a state
    usual: ClassVar[dict[str, Any]] = {"bias": True}  # what the printed form leaves out
    cell: str | None = None  # what a time step computes, one of `CELLS`; None for that of the nonlinearity

    def __init__(self, input_size: int, hidden_size: int, bias: bool):
        super().__init__()
        check_range(self, (1, math.inf), hidden_size=hidden_size)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias

    def _make(self, suffix: str, inputs: int, device: Any, dtype: Any, projected: int = 0) -> None:
        rows, hidden, bias = self.gates * self.hidden_size, self.hidden_size, self.bias
        shapes = {f"weight_ih{suffix}": (rows, inputs), f"weight_hh{suffix}": (rows, projected or hidden)}
        if bias or not suffix:
            shapes |= {f"bias_{n}{suffix}": (rows,) if bias else None for n in ("ih", "hh")}
        if projected:
            shapes[f"weight_hr{suffix}"] = (projected, hidden)
        self.add_parameters(device, dtype, **shapes)

    def reset_parameters(self) -> None:
        """Initialize the parameters again, at random."""
        bound = 1 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _scan(self, x, state, weight_ih, weight_hh, bias_ih, bias_hh, sizes, reverse, weight_hr=None):
        """The results of a layer in one direction, and its last state."""
        x, cell = linear(x, weight_ih, bias_ih), self.cell or f"rnn_{self.nonlinearity}"
        if weight_hr is not None:
            return scan(partial(projected_lstm_cell, weight_hr), x, state, weight_hh, bias_hh, sizes, reverse)
        exported = modes.tracer is not None and modes.tracer.whole  # to a format that has no such operator
        if exported or not x.is_local:
            return scan(CELLS[cell], x, state, weight_hh, bias_hh, sizes, reverse)
        h, c = state if self.states == 2 else (state[0], None)
        y, *state = TimeSteps.apply(x, h, c, weight_hh, bias_hh, cell, tuple(sizes), reverse)
        return y, tuple(state)

    def extra_repr(self) -> str:
        changed = [f", {name}={getattr(self, name)}" for name, x in self.usual.items() if getattr(self, name) != x]
        return f"{self.input_size}, {self.hidden_size}{''.join(changed)}"

    def _initial_state(self, hx: Any, like: Tensor, *shapes: tuple[int, ...]) -> State:
        """The state that was passed, or zeros."""
        if hx is None:
            return tuple([zeros(shape, dtype=like.dtype, device=like._device_and_sbp) for shape in shapes])
        return (hx,) if self.states == 1 else tuple(hx)

    def _returned(self, state: State) -> Any:
        return state[0] if self.states == 1 else state


class TimeSteps(Function):
    """All time steps of a layer as one operator; with `create_graph`, backward differentiates single steps."""

    @staticmethod
    def forward(ctx, x, h, c, weight, bias, cell, sizes, reverse):
        ctx.attrs = {"cell": cell, "sizes": sizes, "reverse": reverse}
        y, h_last, c_last, *saved = call(Recurrent, x, h, c, weight, bias, **ctx.attrs)
        ctx.save_for_backward(x, h, c, weight, bias, y, *saved)
        return (y, h_last) if c is None else (y, h_last, c_last)

    @staticmethod
    def backward(ctx, dy, dh, dc=None):
        *inputs, y, gates, memory = ctx.saved_tensors
        x, h, c, weight, bias = inputs
        if not is_grad_enabled():
            return *call(RecurrentGrad, dy, dh, dc, h, c, weight, y, gates, memory, **ctx.attrs), None, None, None
        state, cotangents = ((h,), (dy, dh)) if c is None else ((h, c), (dy, dh, dc))
        attrs = dict(ctx.attrs)
        y, state = scan(CELLS[attrs.pop("cell")], x, state, weight, bias, **attrs)
        needed = [t for t, need in zip(inputs, ctx.needs_input_grad, strict=False) if need]
        gradients = iter(grad((y, *state), needed, cotangents, create_graph=True))
        return *[next(gradients) if need else None for need in ctx.needs_input_grad[:5]], None, None, None


class RNNBase(RecurrentBase):
    """Recurrent layers of one kind, each with the results of the one before as its inputs.

    Args:
        input_size: the number of features of the input.
        hidden_size: H, that of the state.
        num_layers: how many layers.
        bias: whether the projections have biases.
        batch_first: whether sequences are (N, T, features) in place of (T, N, features); not so for states.
        dropout: the probability of a zero in training, in the results of all layers but the last.
        bidirectional: whether each layer also runs from the end to the beginning; D is then 2, else 1.
        proj_size: of an LSTM: P, the size that h is projected to, smaller than H; 0 for no projection.
        device, dtype: of the parameters.

    Attributes:
        weight_ih_l[k], weight_hh_l[k], bias_ih_l[k], bias_hh_l[k]: of layer k, and with the suffix _reverse.
        weight_hr_l[k]: (P, H), with a projection.

    Shapes: input (T, N, input_size), (T, input_size) or packed; states (D * num_layers, N, H) or without N.
        Returns the results of the last layer, (T, N, D * H), and the last states. With a projection h has P for H.

    Raises:
        ArgumentError: for a negative size, a dropout outside of [0, 1], or what is not supported.
        ShapeError: for an input or a state of another shape.
    """

    usual = {
        "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False
    }  # fmt: skip

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, bias)
        check_range(self, (1, math.inf), num_layers=num_layers)
        check_range(self, (0, 1), dropout=dropout)
        check_range(self, AT_LEAST_0, proj_size=proj_size)
        if proj_size and (self.cell != "lstm" or proj_size >= hidden_size):
            raise ArgumentError(
                f"{self._get_name()}: got proj_size={proj_size}; expected 0, or for an LSTM a size below "
                f"hidden_size={hidden_size}"
            )
        self.num_layers, self.batch_first, self.dropout = num_layers, batch_first, dropout
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self.result_size = proj_size or hidden_size  # of h
        self.directions = ("", "_reverse") if bidirectional else ("",)
        for k in range(num_layers):
            inputs = input_size if k == 0 else self.result_size * len(self.directions)
            for direction in self.directions:
                self._make(f"_l{k}{direction}", inputs, device, dtype, proj_size)
        self.reset_parameters()

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self._get_name()}: got {tuple(input.shape)}; expected 2 or 3 dims, the last of {self.input_size}"
            )
        unbatched, swapped = input.ndim == 2, self.batch_first and input.ndim == 3
        x = unsqueeze(input, 1) if unbatched else transpose(input, 0, 1) if swapped else input
        time, batch, features = x.shape
        if time == 0:
            raise ShapeError(f"{self._get_name()}: got {tuple(input.shape)}; expected at least one time step")
        if unbatched and hx is not None:
            hx = self._returned(tuple([unsqueeze(s, 1) for s in self._initial_state(hx, x)]))
        y, state = self._layers(reshape(x, (time * batch, features)), [batch] * time, hx, time)
        y = reshape(y, (time, batch, y.shape[1]))
        if unbatched:
            return squeeze(y, 1), self._returned(tuple([squeeze(s, 1) for s in state]))
        return transpose(y, 0, 1) if swapped else y, self._returned(state)

    def _packed(self, sequence: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        data, sizes, order, inverse_order = sequence
        if hx is not None and order is not None:
            hx = self._returned(tuple([index_select(s, 1, order) for s in self._initial_state(hx, data)]))
        y, state = self._layers(data, np.asarray(sizes.numpy()).tolist(), hx)
        if inverse_order is not None:
            state = tuple([index_select(s, 1, inverse_order) for s in state])
        return sequence._replace(data=y), self._returned(state)

    def _layers(self, x: Tensor, sizes: list[int], hx: Any, time: int = 0) -> tuple[Tensor, State]:
        """The results of the last layer, (sum of sizes, D * H), and the last states of all.

        `time` is how many time steps there are if all sequences have as many.
        """
        widths = (self.result_size, self.hidden_size)[: self.states]
        shapes = [(len(self.directions) * self.num_layers, sizes[0], width) for width in widths]
        initial, last = self._initial_state(hx, x, *shapes), []
        check_state(self._get_name(), initial, *shapes)
        for k in range(self.num_layers):
            results = []
            for direction in self.directions:
                suffix = f"_l{k}{direction}"
                bias_ih, bias_hh = (getattr(self, f"bias_{n}{suffix}") if self.bias else None for n in ("ih", "hh"))
                state = tuple([s[len(last)] for s in initial])
                parameters = (*(getattr(self, f"weight_{n}{suffix}") for n in ("ih", "hh")), bias_ih, bias_hh)
                if self.proj_size:
                    weight_hr = getattr(self, f"weight_hr{suffix}")
                    y, state = self._scan(x, state, *parameters, sizes, bool(direction), weight_hr)
                elif time:
                    y, state = recurrent_layer(self._scan, x, state, *parameters, time, bool(direction))
                else:
                    y, state = self._scan(x, state, *parameters, sizes, bool(direction))
                results.append(y)
                last.append(state)
            x = results[0] if len(results) == 1 else cat(results, 1)
            if k + 1 < self.num_layers:
                x = dropout(x, self.dropout, self.training)
        return x, tuple([stack(states) for states in zip(*last, strict=True)])

    def flatten_parameters(self) -> None:
        """Does nothing: there is no cuDNN that would want one block of memory."""


def recurrent_layer(run, x, state, weight_ih, weight_hh, bias_ih, bias_hh, time, reverse):
    """`run`, the `_scan` of a layer, for sequences of `time` steps each."""
    sizes = [state[0].shape[0]] * time
    return run(x, state, weight_ih, weight_hh, bias_ih, bias_hh, sizes, reverse)


def results_of_layer(run, x, state, weight_ih, weight_hh, bias_ih, bias_hh, time, reverse):
    """Tensors like the results of `recurrent_layer`."""
    y = zeros(x.shape[0], state[0].shape[1], dtype=x.dtype, device=x._device)
    return y, tuple([zeros_like(s) for s in state])


recurrent_layer = composite(recurrent_layer, results_of_layer)


class RNN(RNNBase):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu, over time steps; see `RNNBase` for the arguments.

    Args:
        nonlinearity: "tanh" or "relu"; the fourth argument.

    >>> import miniflow as flow
    >>> y, h = flow.nn.RNN(3, 4)(flow.zeros(5, 2, 3))
    >>> y.shape, h.shape
    (miniflow.Size([5, 2, 4]), miniflow.Size([1, 2, 4]))

    Source: `torch.nn.RNN`; Elman 1990, "Finding Structure in Time".
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        options = num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype
        super().__init__(input_size, hidden_size, *options)
        check_choice(self, ["tanh", "relu"], nonlinearity=nonlinearity)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory; see `RNNBase` for the arguments. The states are pairs (h, c).

        i, f, g, o = W_ih x + b_ih + W_hh h + b_hh
        c <- sigmoid(f) c + sigmoid(i) tanh(g)
        h <- sigmoid(o) tanh(c), or W_hr times that with proj_size

    Source: `torch.nn.LSTM`; Sak et al. 2014, "Long Short-Term Memory Recurrent Neural Network Architectures" (the
    projection); Hochreiter and Schmidhuber 1997, "Long Short-Term Memory".
    """

    gates, states, cell = 4, 2, "lstm"


class GRU(RNNBase):
    """Gated recurrent units; see `RNNBase` for the arguments.

        r, z = sigmoid(W_i x + b_i + W_h h + b_h)
        n = tanh(W_in x + b_in + r (W_hn h + b_hn))
        h <- (1 - z) n + z h

    Source: `torch.nn.GRU`; Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder".
    """

    gates, cell = 3, "gru"


class RNNCellBase(RecurrentBase):
    """One time step.

    Args:
        input_size: the number of features of the input.
        hidden_size: H, that of the state.
        bias: whether the projections have biases.
        device, dtype: of the parameters.

    Shapes: input (N, input_size), state (N, H) -> (N, H); or all without N.
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(input_size, hidden_size, bias)
        self._make("", input_size, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        if input.ndim not in (1, 2):
            raise ShapeError(f"{self._get_name()}: got {tuple(input.shape)}; expected 1 or 2 dims")
        unbatched = input.ndim == 1
        shapes = [(*input.shape[:-1], self.hidden_size)] * self.states
        state = self._initial_state(hx, input, *shapes)
        check_state(self._get_name(), state, *shapes)
        if unbatched:
            input, state = unsqueeze(input, 0), tuple([unsqueeze(s, 0) for s in state])
        parameters = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        _, state = self._scan(input, state, *parameters, [input.shape[0]], False)
        return self._returned(tuple([squeeze(s, 0) for s in state]) if unbatched else state)


class RNNCell(RNNCellBase):
    """One time step of `RNN`; the fourth argument, nonlinearity, is "tanh" or "relu". `torch.nn.RNNCell`."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, bias, device, dtype)
        check_choice(self, ["tanh", "relu"], nonlinearity=nonlinearity)
        self.nonlinearity = nonlinearity


class LSTMCell(RNNCellBase):
    """One time step of `LSTM`; takes and returns a pair (h, c). `torch.nn.LSTMCell`."""

    gates, states, cell = 4, 2, "lstm"


class GRUCell(RNNCellBase):
    """One time step of `GRU`. `torch.nn.GRUCell`."""

    gates, cell = 3, "gru"
