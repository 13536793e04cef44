"""Element types: casts, and linear quantization: q = round(x / scale) + zero point, clamped to the range of the type.

No gradient passes quantization.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx

import miniflow as flow
from miniflow.dtype import BY_NUMPY
from miniflow.onnx.loader.body import dtype_of
from miniflow.onnx.loader.operators.conv import channels, conv
from miniflow.onnx.loader.registry import Buffer, Value, operator
from miniflow.tensor import Tensor


def numpy_dtype(number: int) -> np.dtype:
    """The dtype with a number of ONNX."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))


def as_dtype(number: int, like: Tensor | None = None) -> Any:
    """The dtype of tensors with a number of ONNX, 0 for that of another tensor."""
    return BY_NUMPY[numpy_dtype(number)] if number else like.dtype


def cast_to(x: Value, dtype: np.dtype, saturate: int = 1, round_mode: str = "up") -> Value:
    """Values in another type; arrays on the host if tensors do not have it."""
    if isinstance(x, Tensor) and dtype in BY_NUMPY:
        return x.to(BY_NUMPY[dtype])
    array = x.numpy() if isinstance(x, Tensor) else x
    if dtype.name == "float8_e8m0fnu":
        return onnx.numpy_helper.to_float8e8m0(array, bool(saturate), round_mode).astype(dtype)
    if dtype.name.startswith("float8") and saturate:
        return onnx.numpy_helper.saturate_cast(array, dtype)
    return array.astype(dtype)


@operator("Cast")
def cast(input: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    return cast_to(input, numpy_dtype(to), saturate, round_mode)


operator("BitCast", array="Array")(lambda array, *, to: array.view(numpy_dtype(to)))


@operator("QuantizeLinear")
def quantize_linear(
    x, y_scale: Buffer, y_zero_point: Value = None, *,
    axis: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Value:  # fmt: skip
    x = x.to(as_dtype(precision, x))
    scale, zero = along(y_scale, x, axis, block_size), along(y_zero_point, x, axis, block_size)
    dtype = numpy_dtype(output_dtype or onnx.TensorProto.UINT8) if y_zero_point is None else dtype_of(y_zero_point)
    x = x / scale
    if "int" in dtype.name:
        limits = ml_dtypes.iinfo(dtype)
        x = flow.round(x) if zero is None else flow.round(x) + as_float(zero, x)
        x = flow.clamp(x, int(limits.min), int(limits.max))
    return cast_to(x, dtype, saturate)


@operator("DequantizeLinear")
def dequantize_linear(
    x: Value, x_scale: Buffer, x_zero_point: Value = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    scale, zero = along(x_scale, x, axis, block_size), along(x_zero_point, x, axis, block_size)
    exact = flow.float64 if dtype_of(x) == np.int32 else flow.float32
    return (centred(x, zero, exact, x_scale) * scale).to(as_dtype(output_dtype, x_scale))


@operator("MatMulInteger")
def matmul_integer(a, b, a_zero_point: Value = None, b_zero_point: Value = None) -> Tensor:
    """Zero points are those of all, or of the rows of `a` and the columns of `b`."""
    if a_zero_point is not None and a_zero_point.ndim == 1:
        a_zero_point = a_zero_point[:, None]
    return flow.matmul(centred(a, a_zero_point), centred(b, b_zero_point)).to(flow.int32)


@operator("ConvInteger")
def conv_integer(x, w, x_zero_point: Value = None, w_zero_point: Value = None, **options: Any) -> Tensor:
    """The border is of zero points."""
    return conv(centred(x, x_zero_point), centred(w, channels(w_zero_point, w.ndim)), **options).round().int()


@operator("QLinearMatMul")
def qlinear_matmul(
    a, a_scale: Buffer, a_zero: Value, b, b_scale: Buffer, b_zero: Value, y_scale: Buffer, y_zero: Value
) -> Value:  # fmt: skip
    a_scale, a_zero = (x[:, None] if x.ndim == 1 else x for x in (a_scale, a_zero))
    return requantized(flow.matmul(centred(a, a_zero), centred(b, b_zero)), a_scale * b_scale, y_scale, y_zero)


@operator("QLinearConv")
def qlinear_conv(
    x, x_scale: Buffer, x_zero: Value, w, w_scale: Buffer, w_zero: Value, y_scale: Buffer, y_zero: Value, b=None,
    **options: Any,
) -> Value:  # fmt: skip
    """The border is of zero points; b is in units of x_scale w_scale."""
    w = centred(w, channels(w_zero, w.ndim))
    sums = conv(centred(x, x_zero), w, None if b is None else b.to(w.dtype), **options).round()
    return requantized(sums, x_scale * channels(w_scale, x.ndim - 1), y_scale, y_zero)


def requantized(sums: Tensor, scale: Tensor, y_scale: Tensor, y_zero: Value) -> Value:
    """Sums of products of integers, in units of `scale`, in those of `y_scale`."""
    return quantize_linear(sums.float() * (scale / y_scale), flow.ones_like(y_scale), y_zero)


def centred(x: Value, zero: Value | None, dtype: Any = flow.float64, like: Tensor | None = None) -> Tensor:
    """x minus the zero point; float64 holds sums of products of integers exactly."""
    x = as_float(x, x if like is None else like, dtype)
    return x if zero is None else x - as_float(zero, x, dtype)


def as_float(x: Value, like: Tensor, dtype: Any = flow.float64) -> Tensor:
    """Values of any type of ONNX, on the device of `like`."""
    return x.to(dtype) if isinstance(x, Tensor) else flow.from_numpy(x.astype(dtype.numpy)).to(like.device)


def along(values: Value | None, x: Value, axis: int, block_size: int) -> Value | None:
    """Scales or zero points so that they broadcast against x: one for all, one along an axis, or one for each block."""
    if values is None or values.ndim == 0:
        return values
    if block_size:
        values = values if isinstance(values, Tensor) else as_float(values, x)
        return flow.repeat_interleave(values, block_size, axis).narrow(axis, 0, x.shape[axis])
    return values.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]) if values.ndim == 1 else values
