"""Products of matrices."""

from __future__ import annotations

from typing import Any

from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer


@handler("linear")
def linear(g: Writer, x: Value, weight: Value, bias: Value | None) -> str:
    if bias is None and g.opset < 11:
        return g("MatMul", x, swapped(g, weight))
    return g("Gemm", x, weight, bias, transB=1)


@handler("matmul")
def matmul(g: Writer, x: Value, y: Value, *, transpose_x: bool, transpose_y: bool) -> str:
    return g("MatMul", swapped(g, x) if transpose_x else x, swapped(g, y) if transpose_y else y)


def swapped(g: Writer, x: Value) -> str:
    """Matrices transposed."""
    n = len(x.shape)
    return g("Transpose", x, perm=[*range(n - 2), n - 1, n - 2])


@handler("einsum", since=12)
def einsum(g: Writer, equation: str, operands: Any) -> str:
    operands = operands[0] if isinstance(operands[0], list | tuple) else operands
    return g("Einsum", *operands, equation=equation.replace(" ", ""))


handler("det")(lambda g, A: g("Det", A))
