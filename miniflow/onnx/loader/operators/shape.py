"""Shapes, and tensors that are made of these: reshape, transpose, slice, pad, constants, ranges."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.onnx.loader.body import Node, dtype_of
from miniflow.onnx.loader.operators.elementwise import flatten
from miniflow.onnx.loader.operators.quantize import numpy_dtype
from miniflow.onnx.loader.registry import Array, Ints, choice, operator, operators
from miniflow.tensor import Tensor

BORDERS = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
ORDERS = {"CRD": False, "DCR": True}  # whether the rows and columns of blocks are before the depth in the channels
CONSTANTS = {"value": None, "value_int": np.int64, "value_float": np.float32, "value_string": object}
ZERO = np.zeros(1, np.float32)
operators({
    "Identity": lambda value: value,
    "Shape": lambda value, *, start=0, end=None: np.array(value.shape[start:end], np.int64),
    "Size": lambda value: np.array(prod(value.shape), np.int64),
    "EyeLike": lambda value, *, dtype=0, k: np.eye(
        *value.shape, k, dtype=numpy_dtype(dtype) if dtype else dtype_of(value)
    ),
    "Concat": lambda *inputs, axis: flow.cat(inputs, axis),
    "Expand": lambda x, shape: x.expand(*np.broadcast_shapes(x.shape, tuple(shape))),
    "Flatten": lambda x, *, axis: flatten(x, axis),
    "Squeeze": lambda x, axes=None: x.squeeze(axes),
    "Tile": lambda x, repeats: x.repeat(*repeats),
    "Transpose": lambda x, *, perm=None: x.permute(perm or list(range(x.ndim))[::-1]),
    "Trilu": lambda x, k=(0,), *, upper: (flow.triu if upper else flow.tril)(x, *k),
    "Reshape": lambda x, shape, *, allowzero=0: x.reshape(
        [x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(shape)]
    ),
}, value="Value", **dict.fromkeys(["shape", "axes", "repeats", "k"], "Ints"))  # fmt: skip


@operator("Unsqueeze")
def unsqueeze(data, axes: Ints) -> Tensor:
    ndim = data.ndim + len(axes)
    for axis in sorted(axis % ndim for axis in axes):
        data = data.unsqueeze(axis)
    return data


@operator("Split")
def split(input, split: Ints = None, *, axis: int, node: Node) -> tuple[Tensor, ...]:
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
def pad(data, pads: Ints, constant_value: Array = None, axes: Ints = None, *, mode: str, value: float = 0.0) -> Tensor:
    widths = [(0, 0)] * data.ndim
    axes = axes or range(data.ndim)
    for axis, *pair in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        widths[axis] = pair
    value = None if mode != "constant" else value if constant_value is None else constant_value.item()
    return F.pad(data, [n for pair in widths[::-1] for n in pair], choice("mode", mode, BORDERS), value)


@operator("DepthToSpace")
def depth_to_space(x, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if choice("mode", mode, ORDERS):
        x = x.unflatten(1, (blocksize**2, -1)).transpose(1, 2).flatten(1, 2)
    return F.pixel_shuffle(x, blocksize)


@operator("SpaceToDepth")
def space_to_depth(x, *, blocksize: int, mode: str = "DCR") -> Tensor:
    y = F.pixel_unshuffle(x, blocksize)
    return y.unflatten(1, (-1, blocksize**2)).transpose(1, 2).flatten(1, 2) if choice("mode", mode, ORDERS) else y


@operator("Constant")
def constant(**values: Any) -> np.ndarray:
    ((name, value),) = values.items()
    return np.array(value, choice("attribute", name.rstrip("s"), CONSTANTS))


@operator("ConstantOfShape")
def constant_of_shape(shape: Ints, *, value: np.ndarray = ZERO) -> np.ndarray:
    return np.full(shape, value.item(), value.dtype)


@operator("Range")
def arange(start: Array, limit: Array, delta: Array) -> np.ndarray:
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)
