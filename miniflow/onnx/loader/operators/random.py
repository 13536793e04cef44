"""Random numbers. They are those of `flow.manual_seed`: the attribute `seed` would repeat them at every call."""

from __future__ import annotations

import onnx

import miniflow as flow
from miniflow.dtype import BY_NUMPY, dtype
from miniflow.onnx.loader.registry import operator
from miniflow.tensor import Tensor


def tensor_dtype(number: int | None, default: dtype) -> dtype:
    """The dtype of a tensor with a number of ONNX."""
    return BY_NUMPY[onnx.helper.tensor_dtype_to_np_dtype(number)] if number else default


@operator("RandomNormal")
def random_normal(*, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0) -> Tensor:
    return mean + scale * flow.randn(shape, dtype=tensor_dtype(dtype, flow.float32))


@operator("RandomUniform")
def random_uniform(*, shape: list[int], dtype: int = 1, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + (high - low) * flow.rand(shape, dtype=tensor_dtype(dtype, flow.float32))


@operator("RandomNormalLike")
def random_normal_like(input, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0) -> Tensor:
    return mean + scale * flow.randn_like(input, dtype=tensor_dtype(dtype, input.dtype))


@operator("RandomUniformLike")
def random_uniform_like(input, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0) -> Tensor:
    return low + (high - low) * flow.rand_like(input, dtype=tensor_dtype(dtype, input.dtype))


@operator("Bernoulli")
def bernoulli(input, *, dtype: int | None = None) -> Tensor:
    return flow.bernoulli(input).to(tensor_dtype(dtype, input.dtype))


@operator("Multinomial")
def multinomial(input, *, sample_size: int = 1, dtype: int = 6) -> Tensor:
    """Classes drawn by their unnormalized log-probabilities."""
    return flow.multinomial(flow.softmax(input, -1), sample_size, True).to(tensor_dtype(dtype, flow.int32))
