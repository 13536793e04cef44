"""Products of matrices, recurrent layers, and the quantization of weights and activations."""

from __future__ import annotations

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.handlers.shape import permuted, reshape, swapped
from miniflow.onnx.exporter.optimizer import computed
from miniflow.onnx.exporter.writer import Value, Writer, handler

# the gates in ONNX's order, by their places in PyTorch's
GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}
handler("det")(lambda g, A: g("Det", A))
handler("matmul")(
    lambda g, x, y, *, transpose_x, transpose_y: g("MatMul", matrices(g, x, transpose_x), matrices(g, y, transpose_y))
)


@handler("einsum", since=12)
def einsum(g: Writer, equation: str, operands) -> str:
    operands = operands[0] if isinstance(operands[0], list | tuple) else operands
    return g("Einsum", *operands, equation=equation.replace(" ", ""))


def matrices(g: Writer, x: Value, transposed: bool):
    return permuted(g, x, swapped(len(x.shape), -2, -1)) if transposed else x


@handler("linear")
def linear(g: Writer, x: Value, weight: Value, bias: Value | None) -> str:
    if len(x.shape) != 2 or bias is None and g.opset < 11:
        product = g("MatMul", x, matrices(g, weight, True))
        return product if bias is None else g("Add", product, bias)
    return g("Gemm", x, weight, bias, transB=1)


@handler("recurrent_layer")
def recurrent_layer(g: Writer, run, x: Value, state: tuple, weight_ih, weight_hh, bias_ih, bias_hh, time, reverse):
    """One layer in one direction, of inputs (time * batch, features)."""
    module = run.__self__
    op, hidden, batch = type(module).__name__, module.hidden_size, state[0].shape[0]
    order = (np.array(GATES[op])[:, None] * hidden + np.arange(hidden)).ravel()
    w, r, *biases = (
        None if p is None else g("Unsqueeze", g("Gather", p, order, axis=0), axes=[0])
        for p in (weight_ih, weight_hh, bias_ih, bias_hh)
    )
    bias = None if biases[0] is None else g("Concat", *biases, axis=1)
    attrs = {"hidden_size": hidden, "direction": "reverse" if reverse else "forward"}
    attrs["linear_before_reset"] = 1 if op == "GRU" else None
    attrs["activations"] = ["Relu"] if getattr(module, "nonlinearity", "") == "relu" else None
    sequence, first = reshape(g, x, [time, batch, x.shape[1]]), [g("Unsqueeze", s, axes=[0]) for s in state]
    y, *last = g(op, sequence, w, r, bias, None, *first, outputs=1 + len(state), **attrs)
    return reshape(g, y, [x.shape[0], hidden]), *[g("Squeeze", s, axes=[0]) for s in last]


handler("quantize", since=10)(lambda g, *arguments: quantize(g, *arguments, back=False))
handler("fake_quantize", since=10)(lambda g, *arguments: quantize(g, *arguments, back=True))


def quantize(g: Writer, x: Value, scale: Value, zero_point: Value, lower: int, upper: int, back: bool) -> str:
    """8 bits with a constant scale and zero point as ONNX's operators, everything else by the formula.

    ONNX rounds before it adds the zero point: with an odd one, x / scale just between two integers goes to the other.
    """
    dtype = np.dtype(np.int8 if lower else np.uint8)
    factor, offset = known(g, scale), known(g, zero_point)
    if factor is not None and offset is not None and (factor.size == 1 or g.opset >= 13):
        shape, axis, offset = (() if factor.size == 1 else -1), (None if factor.size == 1 else 0), offset.round()
        zero, limits = offset.clip(lower, upper).astype(dtype).reshape(shape), np.iinfo(dtype)
        if (lower, upper) == (limits.min, limits.max) and np.array_equal(zero, offset.reshape(shape)):
            integers = g("QuantizeLinear", x, factor.reshape(shape), zero, axis=axis)
            return g("DequantizeLinear", integers, factor.reshape(shape) ** int(back), zero, axis=axis)
    if g.opset < 11:
        raise OnnxError("this quantization has no operator of ONNX, and its formula needs opset 11")
    shape = [-1, *[1] * (len(x.shape) - 1)]
    scale, zero = g("Reshape", scale, shape), g("Round", g("Reshape", zero_point, shape))
    rounded = g("Round", g("Add", g("Div", x, scale), zero))
    centered = g("Sub", g("Min", g("Max", rounded, g.scalar(lower, x)), g.scalar(upper, x)), zero)
    return g("Mul", centered, scale) if back else centered


def known(g: Writer, x: Value) -> np.ndarray | None:
    """The value of `x` if it is computed of constants only, else None."""
    needed, nodes = {g.name(x)}, []
    for node in reversed(g.nodes):
        if not needed.isdisjoint(node.output):
            nodes.insert(0, node)
            needed.update(name for name in node.input if name)
    if any(value.name in needed for value in g.program.inputs):
        return None
    arrays = {name: g.initializers[name] for name in needed & g.initializers.keys()}
    return computed(nodes, arrays, g.name(x), g.opset) if nodes else arrays[g.name(x)]
