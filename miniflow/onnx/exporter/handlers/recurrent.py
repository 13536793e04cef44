"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.onnx.exporter.handlers.shape import reshape, squeeze, unsqueeze
from miniflow.onnx.exporter.recording import Size
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer

# the gates in ONNX's order, by their places in PyTorch's
GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}


@handler("recurrent_layer")
def recurrent_layer(
    g: Writer, run: Callable, x: Value, state: tuple, weight_ih, weight_hh, bias_ih, bias_hh, time: int | Size,
    reverse: bool,
) -> Any:  # fmt: skip
    """One layer in one direction, of inputs (time * batch, features)."""
    module = run.__self__
    kind, hidden, batch = type(module).__name__, module.hidden_size, state[0].shape[0]
    order = (np.array(GATES[kind])[:, None] * hidden + np.arange(hidden)).ravel()
    w, r, *biases = (
        None if p is None else unsqueeze(g, g("Gather", p, order, axis=0), 0)
        for p in (weight_ih, weight_hh, bias_ih, bias_hh)
    )
    bias = None if biases[0] is None else g("Concat", *biases, axis=1)
    given = {"hidden_size": hidden, "direction": "reverse" if reverse else "forward"}
    given |= {"linear_before_reset": 1} if kind == "GRU" else {}
    given |= {"activations": ["Relu"]} if getattr(module, "nonlinearity", "") == "relu" else {}
    sequence = reshape(g, x, [time, batch, x.shape[1]])
    first = [unsqueeze(g, s, 0) for s in state]
    y, *last = g(kind, sequence, w, r, bias, None, *first, outputs=1 + len(state), **given)
    return reshape(g, y, [x.shape[0], hidden]), *[squeeze(g, s, 0) for s in last]
