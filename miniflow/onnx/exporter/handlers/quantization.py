"""Fake quantization: QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.optimizer import computed
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer


@handler("quantize", "fake_quantize", since=10)
def quantize(g: Writer, input: Value, scale: Value, zero_point: Value, lower: int, upper: int) -> str:
    """8 bits with a constant scale and zero point as ONNX's operators, everything else by the formula.

    ONNX rounds before it adds the zero point: with an odd one, x / scale just between two integers goes to the other.
    """
    number, offset = known(g, scale), known(g, zero_point)
    one = number is not None and number.size == 1
    if number is None or offset is None or not (one or g.opset >= 13):
        return formula(g, input, scale, zero_point, lower, upper)
    dtype, offset = np.dtype(np.int8 if lower else np.uint8), offset.round()
    limits = np.iinfo(dtype)
    if (lower, upper) != (limits.min, limits.max) or offset.min() < limits.min or offset.max() > limits.max:
        return formula(g, input, scale, zero_point, lower, upper)
    factors, zero = (v.reshape(() if one else -1) for v in (number, offset.astype(dtype)))
    axis = None if one else 0
    integers = g("QuantizeLinear", input, factors, zero, axis=axis)
    return g("DequantizeLinear", integers, factors if g.call.name == "fake_quantize" else factors**0, zero, axis=axis)


def formula(g: Writer, x: Value, scale: Value, zero_point: Value, lower: int, upper: int) -> str:
    if g.opset < 11:
        raise OnnxError("this quantization has no operator of ONNX, and its formula needs opset 11")
    shape = g.ints(-1, *[1] * (len(x.shape) - 1))
    scale, zero = g("Reshape", scale, shape), g("Round", g("Reshape", zero_point, shape))
    rounded = g("Round", g("Add", g("Div", x, scale), zero))
    whole = g("Sub", g("Min", g("Max", rounded, g.scalar(lower, x)), g.scalar(upper, x)), zero)
    return g("Mul", whole, scale) if g.call.name == "fake_quantize" else whole


def known(g: Writer, x: Value) -> np.ndarray | None:
    """The values of what was computed of constants."""
    needed, nodes = {g.name(x)}, []
    for node in reversed(g.nodes):
        if not needed.isdisjoint(node.output):
            nodes.insert(0, node)
            needed.update(name for name in node.input if name)
    free = needed.difference(*(node.output for node in nodes))
    if not free <= g.initializers.keys():
        return None
    arrays = {name: g.initializers[name] for name in free}
    return computed(nodes, arrays, g.name(x), g.opset) if nodes else arrays[g.name(x)]
