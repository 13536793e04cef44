"""Operators of one element, or of two that are broadcast."""

from __future__ import annotations

from typing import Any

from miniflow.onnx.export.registry import handler
from miniflow.onnx.export.writer import Value, Writer, onnx_type

SAME = {"exp": "Exp", "log": "Log", "relu": "Relu", "sqrt": "Sqrt", "neg": "Neg", "sigmoid": "Sigmoid", "tanh": "Tanh"}
BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}


def cast(g: Writer, x: Value, dtype: Any) -> Any:
    """`x`, or its cast to another dtype."""
    return x if x.dtype == dtype else g("Cast", x, to=onnx_type(dtype))


for name, op in SAME.items():
    handler(name)(lambda g, x, op=op: g(op, x))
for name, op in BINARY.items():
    handler(name)(lambda g, x, y, op=op: g(op, *(cast(g, v, g.call.outputs[0].dtype) for v in (x, y))))


@handler("linear")
def linear(g: Writer, x: Value, weight: Value, bias: Value | None) -> str:
    if len(x.shape) == 2:
        return g("Gemm", x, weight, bias, transB=1)
    y = g("MatMul", x, g("Transpose", weight, perm=[1, 0]))
    return y if bias is None else g("Add", y, bias)


@handler("cast", "to_integer")
def cast_to(g: Writer, x: Value, *, dtype: Any) -> str:
    return g("Cast", x, to=onnx_type(dtype))
