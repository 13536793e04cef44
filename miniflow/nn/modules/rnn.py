"""Recurrent layers and their cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.autograd import Function, grad
from miniflow.composite import composite
from miniflow.dispatch import call
from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn import init
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.nn.utils.rnn import PackedSequence, check_state
from miniflow.ops.creation import empty, zeros
from miniflow.ops.dropout import dropout
from miniflow.ops.elementwise import add
from miniflow.ops.gather import index_select
from miniflow.ops.join import cat, stack
from miniflow.ops.matmul import linear
from miniflow.ops.permute import transpose
from miniflow.ops.recurrent import Cell, Lstm, LstmGrad, State, gru_cell, lstm_cell, relu_cell, scan, tanh_cell
from miniflow.ops.shape import reshape, squeeze, unsqueeze
from miniflow.tape import is_grad_enabled
from miniflow.tensor import Tensor


class RecurrentBase(Module):
    """What all recurrent layers and cells share: sizes, and parameters within 1 / sqrt(hidden_size)."""

    gates: int  # rows of a weight for each hidden unit
    states = 1  # tensors of a state

    def _make(self, suffix: str, inputs: int, bias: bool, device: Any, dtype: Any) -> None:
        rows = self.gates * self.hidden_size
        sizes = {"weight_ih": (rows, inputs), "weight_hh": (rows, self.hidden_size), "bias_ih": rows, "bias_hh": rows}
        for name, size in sizes.items():
            made = bias or name.startswith("weight")
            if made or not suffix:
                p = Parameter(empty(size, device=device, dtype=dtype)) if made else None
                self.register_parameter(name + suffix, p)

    def reset_parameters(self) -> None:
        """Initialize the parameters again, at random."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _cell(self) -> Cell:
        raise NotImplementedError

    def _given(self, hx: Any, like: Tensor, shape: tuple[int, ...]) -> State:
        """The state that was passed, or zeros."""
        if hx is None:
            return tuple([zeros(shape, dtype=like.dtype, device=like._place_and_sbp)] * self.states)
        return (hx,) if self.states == 1 else tuple(hx)

    def _returned(self, state: State) -> Any:
        return state[0] if self.states == 1 else state


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
        proj_size: must be 0; projections of the state are not supported.
        device, dtype: of the parameters.

    Attributes:
        weight_ih_l[k], weight_hh_l[k], bias_ih_l[k], bias_hh_l[k]: of layer k, and with the suffix _reverse.

    Shapes: input (T, N, input_size), (T, input_size) or packed; states (D * num_layers, N, H) or without N.
        Returns the results of the last layer, (T, N, D * H), and the last states.

    Raises:
        ArgumentError: for a negative size, a dropout outside of [0, 1], or what is not supported.
        ShapeError: for an input or a state of another shape.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if proj_size:
            raise ArgumentError(f"{self._get_name()}: got proj_size={proj_size}, which is not supported; expected 0")
        if hidden_size < 1 or num_layers < 1 or not 0 <= dropout <= 1:
            raise ArgumentError(
                f"{self._get_name()}: got hidden_size={hidden_size}, num_layers={num_layers}, dropout={dropout}; "
                "expected sizes of at least 1 and a probability"
            )
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.directions = ("", "_reverse") if bidirectional else ("",)
        for k in range(num_layers):
            inputs = input_size if k == 0 else hidden_size * len(self.directions)
            for direction in self.directions:
                self._make(f"_l{k}{direction}", inputs, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self._get_name()}: got {tuple(input.shape)}; expected 2 or 3 dims, the last of {self.input_size}"
            )
        alone, swapped = input.ndim == 2, self.batch_first and input.ndim == 3
        x = unsqueeze(input, 1) if alone else transpose(input, 0, 1) if swapped else input
        time, batch, features = x.shape
        if time == 0:
            raise ShapeError(f"{self._get_name()}: got {tuple(input.shape)}; expected at least one time step")
        if alone and hx is not None:
            hx = self._returned(tuple([unsqueeze(s, 1) for s in self._given(hx, x, ())]))
        y, state = self._layers(reshape(x, (time * batch, features)), [batch] * time, hx, time)
        y = reshape(y, (time, batch, y.shape[1]))
        if alone:
            return squeeze(y, 1), self._returned(tuple([squeeze(s, 1) for s in state]))
        return transpose(y, 0, 1) if swapped else y, self._returned(state)

    def _packed(self, sequence: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        data, sizes, order, back = sequence
        if hx is not None and order is not None:
            hx = self._returned(tuple([index_select(s, 1, order) for s in self._given(hx, data, ())]))
        y, state = self._layers(data, np.asarray(sizes.numpy()).tolist(), hx)
        if back is not None:
            state = tuple([index_select(s, 1, back) for s in state])
        return sequence._replace(data=y), self._returned(state)

    def _layers(self, x: Tensor, sizes: list[int], hx: Any, time: int = 0) -> tuple[Tensor, State]:
        """The results of the last layer, (sum of sizes, D * H), and the last states of all.

        `time` is how many time steps there are if all sequences have as many.
        """
        shape = (len(self.directions) * self.num_layers, sizes[0], self.hidden_size)
        given, last = self._given(hx, x, shape), []
        check_state(self._get_name(), given, shape)
        for k in range(self.num_layers):
            results = []
            for direction in self.directions:
                end = f"_l{k}{direction}"
                bias_ih, bias_hh = (getattr(self, f"bias_{n}{end}") if self.bias else None for n in ("ih", "hh"))
                state = tuple([s[len(last)] for s in given])
                parameters = (*(getattr(self, f"weight_{n}{end}") for n in ("ih", "hh")), bias_ih, bias_hh)
                if time:
                    y, state = recurrent_layer(self._scan, x, state, *parameters, time, bool(direction))
                else:
                    y, state = self._scan(x, state, *parameters, sizes, bool(direction))
                results.append(y)
                last.append(state)
            x = results[0] if len(results) == 1 else cat(results, 1)
            if k + 1 < self.num_layers:
                x = dropout(x, self.dropout, self.training)
        return x, tuple([stack(parts) for parts in zip(*last, strict=True)])

    def _scan(
        self,
        x: Tensor,
        state: State,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias_ih: Tensor | None,
        bias_hh: Tensor | None,
        sizes: list[int],
        reverse: bool,
    ) -> tuple[Tensor, State]:
        """The results of a layer in one direction, and its last state."""
        return scan(self._cell(), linear(x, weight_ih, bias_ih), state, weight_hh, bias_hh, sizes, reverse)

    def flatten_parameters(self) -> None:
        """Does nothing: there is no cuDNN that would want one block of memory."""

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        shown += [f"{n}={getattr(self, n)}" for n, default in defaults.items() if getattr(self, n) != default]
        return ", ".join(shown)


@composite
def recurrent_layer(
    run: Callable,
    x: Tensor,
    state: State,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    time: int,
    reverse: bool,
) -> tuple[Tensor, State]:
    """`run`, the `_scan` of a layer, for sequences of `time` steps each."""
    sizes = [state[0].shape[0]] * time
    return run(x, state, weight_ih, weight_hh, bias_ih, bias_hh, sizes, reverse)


def _cell_of_nonlinearity(module: Module) -> Cell:
    return tanh_cell if module.nonlinearity == "tanh" else relu_cell


def _check_nonlinearity(name: str, nonlinearity: str) -> None:
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f"{name}: got nonlinearity={nonlinearity!r}; expected 'tanh' or 'relu'")


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

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
    ):
        _check_nonlinearity("RNN", nonlinearity)
        super().__init__(input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity

    def _cell(self) -> Cell:
        return _cell_of_nonlinearity(self)


class LSTM(RNNBase):
    """Long short-term memory; see `RNNBase` for the arguments. The states are pairs (h, c).

        i, f, g, o = W_ih x + b_ih + W_hh h + b_hh
        c <- sigmoid(f) c + sigmoid(i) tanh(g)
        h <- sigmoid(o) tanh(c)

    Source: `torch.nn.LSTM`; Hochreiter and Schmidhuber 1997, "Long Short-Term Memory".
    """

    gates, states = 4, 2

    def _cell(self) -> Cell:
        return lstm_cell

    def _scan(self, x, state, weight_ih, weight_hh, bias_ih, bias_hh, sizes, reverse):
        if not x.is_local or x.device.type != "cpu":
            return super()._scan(x, state, weight_ih, weight_hh, bias_ih, bias_hh, sizes, reverse)
        projected = linear(x, weight_ih, bias_ih if bias_hh is None else add(bias_ih, bias_hh))
        y, h, c = FusedLSTM.apply(projected, *state, weight_hh, tuple(sizes), reverse)
        return y, (h, c)


class FusedLSTM(Function):
    """The time steps of an LSTM as one operator; a gradient that is recorded is that of the single ones."""

    @staticmethod
    def forward(ctx, x, h, c, weight, sizes, reverse):
        *results, gates, memory = call(Lstm, x, h, c, weight, sizes=sizes, reverse=reverse)
        ctx.attrs = {"sizes": sizes, "reverse": reverse}
        ctx.save_for_backward(x, h, c, weight, results[0], gates, memory)
        return tuple(results)

    @staticmethod
    def backward(ctx, *cotangents):
        x, h, c, weight, *computed = ctx.saved_tensors
        if not is_grad_enabled():
            return *call(LstmGrad, *cotangents, h, c, weight, *computed, **ctx.attrs), None, None
        y, state = scan(lstm_cell, x, (h, c), weight, None, **ctx.attrs)
        inputs = [t if need else None for t, need in zip((x, h, c, weight), ctx.needs_input_grad, strict=False)]
        found = iter(grad((y, *state), [t for t in inputs if t is not None], cotangents, create_graph=True))
        return *[None if t is None else next(found) for t in inputs], None, None


class GRU(RNNBase):
    """Gated recurrent units; see `RNNBase` for the arguments.

        r, z = sigmoid(W_i x + b_i + W_h h + b_h)
        n = tanh(W_in x + b_in + r (W_hn h + b_hn))
        h <- (1 - z) n + z h

    Source: `torch.nn.GRU`; Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder".
    """

    gates = 3

    def _cell(self) -> Cell:
        return gru_cell


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
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self._make("", input_size, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        if input.ndim not in (1, 2):
            raise ShapeError(f"{self._get_name()}: got {tuple(input.shape)}; expected 1 or 2 dims")
        alone = input.ndim == 1
        state = self._given(hx, input, (*input.shape[:-1], self.hidden_size))
        check_state(self._get_name(), state, (*input.shape[:-1], self.hidden_size))
        if alone:
            input, state = unsqueeze(input, 0), tuple([unsqueeze(s, 0) for s in state])
        projected = linear(state[0], self.weight_hh, self.bias_hh)
        state = self._cell()(linear(input, self.weight_ih, self.bias_ih), projected, state)
        return self._returned(tuple([squeeze(s, 0) for s in state]) if alone else state)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One time step of `RNN`; the fourth argument, nonlinearity, is "tanh" or "relu". `torch.nn.RNNCell`."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ):
        _check_nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def _cell(self) -> Cell:
        return _cell_of_nonlinearity(self)


class LSTMCell(RNNCellBase):
    """One time step of `LSTM`; takes and returns a pair (h, c). `torch.nn.LSTMCell`."""

    gates, states = 4, 2

    def _cell(self) -> Cell:
        return lstm_cell


class GRUCell(RNNCellBase):
    """One time step of `GRU`. `torch.nn.GRUCell`."""

    gates = 3

    def _cell(self) -> Cell:
        return gru_cell
