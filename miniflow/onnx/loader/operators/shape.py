"""Shapes, and tensors that are made of these: reshape, transpose, slice, pad, constants, ranges."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.onnx.loader.body import Node, dtype_of
from miniflow.onnx.loader.registry import Array, Ints, Value, choice, operator
from miniflow.tensor import Tensor

BORDERS = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@operator("Identity")
def identity(input: Value) -> Value:
    return input


@operator("Shape")
def shape(data: Value, *, start: int = 0, end: int | None = None) -> np.ndarray:
    return np.array(data.shape[start:end], np.int64)


@operator("Size")
def size(data: Value) -> np.ndarray:
    return np.array(prod(data.shape), np.int64)


@operator("Reshape")
def reshape(data, shape: Ints, *, allowzero: int = 0) -> Tensor:
    sizes = [data.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape)]
    return data.reshape(sizes)


@operator("Transpose")
def transpose(data, *, perm: list[int] | None = None) -> Tensor:
    return data.permute(perm or list(range(data.ndim))[::-1])


@operator("Squeeze")
def squeeze(data, axes: Ints = None) -> Tensor:
    return data.squeeze(axes)


@operator("Unsqueeze")
def unsqueeze(data, axes: Ints) -> Tensor:
    ndim = data.ndim + len(axes)
    for axis in sorted(axis % ndim for axis in axes):
        data = data.unsqueeze(axis)
    return data


@operator("Flatten")
def flatten(input, *, axis: int = 1) -> Tensor:
    return input.reshape(prod(input.shape[:axis]), prod(input.shape[axis:]))


@operator("Expand")
def expand(input, shape: Ints) -> Tensor:
    return input.expand(*np.broadcast_shapes(input.shape, tuple(shape)))


@operator("Tile")
def tile(input, repeats: Ints) -> Tensor:
    return input.repeat(*repeats)


@operator("Concat")
def concat(*inputs, axis: int) -> Tensor:
    return flow.cat(inputs, axis)


@operator("Split")
def split(input, split: Ints = None, *, axis: int = 0, num_outputs: int = 0, node: Node) -> tuple[Tensor, ...]:
    """Equal parts but for the last ones, if no sizes are given."""
    total, count = input.shape[axis], len(node.outputs)
    size = -(-total // count)
    return flow.split(input, split or [min(size, max(total - i * size, 0)) for i in range(count)], axis)


@operator("Slice")
def slice_of(data, starts: Ints, ends: Ints, axes: Ints = None, steps: Ints = None) -> Tensor:
    axes = axes or range(len(starts))
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        places = range(data.shape[axis])[start:end:step]
        forward = places if step > 0 else places[::-1]
        part = slice(forward.start, max(forward.stop, forward.start), forward.step)
        data = data[(slice(None),) * (axis % data.ndim) + (part,)]
        data = data if step > 0 else data.flip(axis)
    return data


@operator("Pad")
def pad(data, pads: Ints, constant_value: Array = None, axes: Ints = None, *, mode="constant", value=0.0) -> Tensor:
    widths = [(0, 0)] * data.ndim
    axes = axes or range(data.ndim)
    for axis, *pair in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        widths[axis] = pair
    value = None if mode != "constant" else value if constant_value is None else constant_value.item()
    return F.pad(data, [n for pair in widths[::-1] for n in pair], choice("mode", mode, BORDERS), value)


@operator("DepthToSpace")
def depth_to_space(input, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """The channels are (block row, block column, depth) in mode DCR, (depth, block row, block column) in mode CRD."""
    if choice("mode", mode, {"CRD": True, "DCR": False}):
        return F.pixel_shuffle(input, blocksize)
    n, channels, h, w = input.shape
    parts = input.reshape(n, blocksize, blocksize, channels // blocksize**2, h, w)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(n, -1, h * blocksize, w * blocksize)


@operator("SpaceToDepth")
def space_to_depth(input, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if choice("mode", mode, {"CRD": True, "DCR": False}):
        return F.pixel_unshuffle(input, blocksize)
    n, channels, h, w = input.shape
    parts = input.reshape(n, channels, h // blocksize, blocksize, w // blocksize, blocksize)
    return parts.permute(0, 3, 5, 1, 2, 4).reshape(n, -1, h // blocksize, w // blocksize)


@operator("ReverseSequence")
def reverse_sequence(input, sequence_lens, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """The first `sequence_lens[b]` steps of each batch element in the opposite order."""
    x = input.movedim((batch_axis, time_axis), (0, 1))
    steps, lengths = flow.arange(x.shape[1], device=x.device), sequence_lens.unsqueeze(1)
    source = flow.where(steps < lengths, lengths - 1 - steps, steps)
    rows = flow.arange(x.shape[0], device=x.device).unsqueeze(1)
    return x[rows, source].movedim((0, 1), (batch_axis, time_axis))


@operator("Trilu")
def trilu(input, k: Ints = (0,), *, upper: int = 1) -> Tensor:
    return (flow.triu if upper else flow.tril)(input, *k)


@operator("Constant")
def constant(
    *, value: Any = None, value_int=None, value_ints=None, value_float=None, value_floats=None, value_string=None,
    value_strings=None,
) -> np.ndarray:  # fmt: skip
    kinds = [(value, None), (value_int, np.int64), (value_ints, np.int64), (value_float, np.float32)]
    kinds += [(value_floats, np.float32), (value_string, object), (value_strings, object)]
    for x, dtype in kinds:
        if x is not None:
            return np.array(x, dtype)
    raise OnnxError("sparse values are not supported")


@operator("ConstantOfShape")
def constant_of_shape(shape: Ints, *, value: np.ndarray | None = None) -> np.ndarray:
    return np.zeros(shape, np.float32) if value is None else np.full(shape, value.item(), value.dtype)


@operator("EyeLike")
def eye_like(input: Value, *, dtype: int = 0, k: int = 0) -> np.ndarray:
    kind = onnx.helper.tensor_dtype_to_np_dtype(dtype) if dtype else dtype_of(input)
    return np.eye(*input.shape, k, dtype=kind)


@operator("Range")
def arange(start: Array, limit: Array, delta: Array) -> np.ndarray:
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)
