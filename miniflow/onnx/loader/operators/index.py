"""Indexing: gather, scatter, one-hot, what is largest, what is not zero."""

from __future__ import annotations

from math import prod

import numpy as np

import miniflow as flow
from miniflow.onnx.loader.registry import Array, Buffer, Ints, Value, choice, operator
from miniflow.tensor import Tensor

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def from_front(indices: Tensor, size: int) -> Tensor:
    """Indices that may count from the end, as such that do not."""
    return flow.where(indices < 0, indices + size, indices)


operator("GatherElements")(lambda x, i, *, axis: flow.gather(x, axis, from_front(i, x.shape[axis])))
operator("NonZero")(lambda x: flow.nonzero(x).permute(1, 0))


@operator("Gather")
def gather(data, indices: Value, *, axis: int = 0) -> Tensor:
    index = int(indices) if not isinstance(indices, Tensor) and indices.ndim == 0 else indices
    return data[(slice(None),) * (axis % data.ndim) + (index,)]


@operator("GatherND")
def gather_nd(data, indices, *, batch_dims: int = 0) -> Tensor:
    batch_ndim = indices.ndim - 1
    batch = [flow.arange(n, device=data.device) for n in data.shape[:batch_dims]]
    batch = [x.reshape(-1, *[1] * (batch_ndim - 1 - i)) for i, x in enumerate(batch)]
    return data[(*batch, *[indices[..., i] for i in range(indices.shape[-1])])]


@operator("ScatterElements", "Scatter")
def scatter_elements(data, indices, updates, *, axis: int = 0, reduction: str = "none") -> Tensor:
    indices = from_front(indices, data.shape[axis])
    if reduction == "none":
        return flow.scatter(data, axis, indices, updates)
    return flow.scatter_reduce(data, axis, indices, updates, choice("reduction", reduction, REDUCTIONS))


@operator("ScatterND")
def scatter_nd(data, indices, updates, *, reduction: str = "none") -> Tensor:
    sizes = data.shape[: indices.shape[-1]]
    numbers = flow.arange(prod(sizes), device=data.device).reshape(sizes)
    rows = data.reshape(prod(sizes), -1)
    index = gather_nd(numbers, indices).reshape(-1, 1).expand(-1, rows.shape[1])
    return scatter_elements(rows, index, updates.reshape(index.shape), reduction=reduction).reshape(data.shape)


@operator("ReverseSequence")
def reverse_sequence(input, sequence_lens, *, batch_axis: int, time_axis: int) -> Tensor:
    """The first `sequence_lens[b]` time steps of sequence b in reverse, the others as they are."""
    x, lengths = input.movedim((batch_axis, time_axis), (0, 1)), sequence_lens.unsqueeze(1)
    steps = flow.arange(x.shape[1], device=x.device)
    places = flow.where(steps < lengths, lengths - 1 - steps, steps)
    rows = flow.arange(x.shape[0], device=x.device).unsqueeze(1)
    return x[rows, places].movedim((0, 1), (batch_axis, time_axis))


@operator("OneHot")
def one_hot(indices, depth: Ints, values: Buffer, *, axis: int = -1) -> Tensor:
    """Indices out of [-depth, depth - 1] have no element that is on."""
    (depth,) = depth
    indices = indices.long().unsqueeze(axis)
    classes = flow.arange(depth, device=indices.device)
    classes = classes.reshape(-1, *[1] * (indices.ndim - 1 - axis % indices.ndim))
    return flow.where((indices == classes) | (indices + depth == classes), values[1], values[0])


@operator("Compress")
def compress(input, condition, *, axis: int | None = None) -> Tensor:
    input, axis = (input.reshape(-1), 0) if axis is None else (input, axis)
    return flow.index_select(input, axis, flow.nonzero(condition).reshape(-1))


@operator("TopK")
def top_k(x, K: Ints = None, *, k: int = 0, axis: int = -1, largest: int = 1) -> tuple[Tensor, Tensor]:
    """Equal elements are in the order of their indices."""
    values, indices = flow.sort(x, axis, descending=bool(largest), stable=True)
    count = K[0] if K else k
    return values.narrow(axis, 0, count), indices.narrow(axis, 0, count)


@operator("Unique")
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[np.ndarray, ...]:
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    order = np.arange(len(first)) if sorted else np.argsort(first)
    values = np.take(values, order, axis or 0)
    return values, first[order], np.argsort(order)[inverse.reshape(-1)], counts[order]
