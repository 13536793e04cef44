"""Products of matrices."""

from __future__ import annotations

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.onnx.loader.operators.quantize import centred, quantized
from miniflow.onnx.loader.registry import Buffer, Value, operator
from miniflow.tensor import Tensor

operator("MatMul")(flow.matmul)


@operator("Gemm")
def gemm(a, b, c=None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Tensor:
    a = a.t() if transA else a
    if transB and alpha == beta == 1 and (c is None or c.shape == b.shape[:1]):
        return F.linear(a, b, c)
    y = flow.matmul(a, b.t() if transB else b)
    y = y if alpha == 1 else y * alpha
    return y if c is None else y + (c if beta == 1 else c * beta)


@operator("MatMulInteger")
def matmul_integer(a, b, a_zero_point: Value = None, b_zero_point: Value = None) -> Tensor:
    return product(a, a_zero_point, b, b_zero_point).to(flow.int32)


@operator("QLinearMatMul")
def q_linear_matmul(
    a, a_scale: Buffer, a_zero_point: Value, b, b_scale: Buffer, b_zero_point: Value,
    y_scale: Buffer, y_zero_point: Value,
) -> Value:  # fmt: skip
    return quantized(
        product(a, a_zero_point, b, b_zero_point) * rows(a_scale) * b_scale / rows(y_scale), rows(y_zero_point)
    )


def product(a: Tensor, a_zero: Value | None, b: Tensor, b_zero: Value | None) -> Tensor:
    """Of integers, exact in float64. Zero points are those of the rows of `a` and of the columns of `b`."""
    return flow.matmul(centred(a, rows(a_zero)), centred(b, b_zero))


def rows(x: Value | None) -> Value | None:
    """One value for each row, or one for all."""
    return x[:, None] if x is not None and x.ndim == 1 and len(x) > 1 else x
