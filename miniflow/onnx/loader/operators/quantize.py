"""Linear quantization: q = round(x / scale) + zero point, clamped to the range of the type; no gradient passes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx

import miniflow as flow
from miniflow.onnx.loader.body import dtype_of
from miniflow.onnx.loader.operators.types import cast_to
from miniflow.onnx.loader.registry import Buffer, Value, operator
from miniflow.tensor import Tensor


@operator("QuantizeLinear")
def quantize_linear(
    x, y_scale: Buffer, y_zero_point: Value = None, *,
    axis: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Value:  # fmt: skip
    x = x.to(np_to_flow(precision)) if precision else x
    scale, zero = along(y_scale, x, axis, block_size), along(y_zero_point, x, axis, block_size)
    wanted = onnx.helper.tensor_dtype_to_np_dtype(output_dtype) if output_dtype else np.dtype(np.uint8)
    dtype = wanted if y_zero_point is None else dtype_of(y_zero_point)
    return quantized(x / scale, zero, dtype, saturate)


@operator("DequantizeLinear")
def dequantize_linear(
    x: Value, x_scale: Buffer, x_zero_point: Value = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    scale, zero = along(x_scale, x, axis, block_size), along(x_zero_point, x, axis, block_size)
    exact = flow.float64 if dtype_of(x) == np.int32 else flow.float32
    values = centred(x, zero, exact, x_scale) * scale
    return values.to(np_to_flow(output_dtype) if output_dtype else x_scale.dtype)


def quantized(x: Tensor, zero: Value | None, dtype: np.dtype | None = None, saturate: int = 1) -> Value:
    """Values that were divided by the scale, plus the zero point, in a type: by default that of the zero point."""
    dtype = np.dtype(dtype or dtype_of(zero))
    if "int" in dtype.name:
        limits = ml_dtypes.iinfo(dtype)
        x = flow.round(x) if zero is None else flow.round(x) + as_float(zero, x)
        x = flow.clamp(x, int(limits.min), int(limits.max))
    return cast_to(x, dtype, saturate, "up")


def centred(x: Value, zero: Value | None, dtype: Any = flow.float64, like: Tensor | None = None) -> Tensor:
    """x minus the zero point; float64 holds sums of products of integers exactly."""
    x = as_float(x, x if like is None else like, dtype)
    return x if zero is None else x - as_float(zero, x, dtype)


def as_float(x: Value, like: Tensor, dtype: Any = flow.float64) -> Tensor:
    """Values of any type of ONNX, on the device of `like`."""
    return x.to(dtype) if isinstance(x, Tensor) else flow.from_numpy(x.astype(dtype.numpy)).to(like.device)


def np_to_flow(element_type: int) -> Any:
    """The dtype for an element type of ONNX."""
    return flow.from_numpy(np.zeros(0, onnx.helper.tensor_dtype_to_np_dtype(element_type))).dtype


def along(values: Value | None, x: Value, axis: int, block_size: int) -> Value | None:
    """Scales or zero points so that they broadcast against x: one for all, one along an axis, or one for each block."""
    if values is None or values.ndim == 0:
        return values
    if block_size:
        values = values if isinstance(values, Tensor) else as_float(values, x)
        return flow.repeat_interleave(values, block_size, axis).narrow(axis, 0, x.shape[axis])
    return values.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]) if values.ndim == 1 else values
