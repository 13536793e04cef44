"""Element types: casts."""

from __future__ import annotations

import numpy as np
import onnx

from miniflow.dtype import BY_NUMPY
from miniflow.onnx.loader.body import dtype_of
from miniflow.onnx.loader.registry import Value, operator
from miniflow.tensor import Tensor


def cast_to(x: Value, dtype: np.dtype, saturate: int, round_mode: str) -> Value:
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
    return cast_to(input, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(to)), saturate, round_mode)


@operator("CastLike")
def cast_like(input: Value, target_type: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    return cast_to(input, dtype_of(target_type), saturate, round_mode)


@operator("BitCast")
def bit_cast(input: Value, *, to: int) -> np.ndarray:
    array = input.numpy() if isinstance(input, Tensor) else input
    return array.view(onnx.helper.tensor_dtype_to_np_dtype(to))
