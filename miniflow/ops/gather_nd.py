"""OneFlow's forms of indexing: by rows of coordinates, by batch, by lists of slices; and `as_strided`."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.errors import ArgumentError, IndexRangeError, ShapeError
from miniflow.ops.creation import sizes_to_shape, zeros
from miniflow.ops.method import method
from miniflow.ops.scatter import take
from miniflow.tensor import Tensor, constant_like


def _columns(index: Tensor) -> tuple[Tensor, ...]:
    return tuple(index[..., i] for i in range(index.shape[-1]))


@takes_tensors
def gather_nd(input: Tensor, index: Tensor) -> Tensor:
    """input[index[..., 0], index[..., 1], ...]. `oneflow.gather_nd`.

    >>> import miniflow as flow
    >>> flow.gather_nd(flow.arange(6).reshape(2, 3), flow.tensor([[0, 2], [1, 0]])).tolist()
    [2, 3]
    """
    return input[_columns(index)]


@takes_tensors
def scatter_nd(index: Tensor, update: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros of a shape with updates added at the coordinates of `gather_nd`. `oneflow.scatter_nd`."""
    return zeros(shape, dtype=update.dtype, device=update._device).index_put(_columns(index), update, True)


@takes_tensors
def tensor_scatter_nd_update(tensor: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy with updates at the coordinates of `gather_nd`. `oneflow.tensor_scatter_nd_update`."""
    return tensor.index_put(_columns(indices), updates)


@takes_tensors
def batch_gather(input: Tensor, indices: Tensor) -> Tensor:
    """out[b, ..., i] = input[b, ..., indices[b, ..., i]], the rest of the dims as they are. `oneflow.batch_gather`.

    Args:
        input: (B, ..., N, ...).
        indices: (B, ..., M).
    """
    trailing = input.shape[indices.ndim :]
    index = indices.reshape((*indices.shape, *[1] * len(trailing)))
    return input.gather(indices.ndim - 1, index.expand(*indices.shape, *trailing))


@takes_tensors
def broadcast_like(x: Tensor, like_tensor: Tensor, broadcast_axes: Sequence[int] = ()) -> Tensor:
    """A tensor, with new dims at `broadcast_axes`, expanded to another's shape. `oneflow.broadcast_like`."""
    for axis in sorted(d % like_tensor.ndim for d in broadcast_axes):
        x = x.unsqueeze(axis) if x.ndim < like_tensor.ndim else x
    return x.expand(*like_tensor.shape)


@method
def in_top_k(targets: Tensor, predictions: Tensor, k: int) -> Tensor:
    """Whether fewer than k predictions are above that of the target, which is finite. `oneflow.in_top_k`.

    Args:
        targets: (N,), classes.
        predictions: (N, C).
    """
    score = predictions.gather(1, targets.reshape((-1, 1)))
    return ((predictions > score).int().sum(1) < k) & score.reshape(-1).isfinite()


def _slices(slice_tup_list: Sequence[Sequence[int | None]]) -> tuple[builtins.slice, ...]:
    return tuple(builtins.slice(*bounds) for bounds in slice_tup_list)


@takes_tensors
def slice(x: Tensor, slice_tup_list: Sequence[Sequence[int | None]]) -> Tensor:
    """x[start:stop:step, ...] of tuples (start, stop, step), one for each dim. `oneflow.slice`."""
    return x[_slices(slice_tup_list)]


@takes_tensors
def slice_update(x: Tensor, update: Tensor, slice_tup_list: Sequence[Sequence[int | None]]) -> Tensor:
    """A copy of x with `update` in place of `slice(x, slice_tup_list)`. `oneflow.slice_update`."""
    y = x.clone()
    y[_slices(slice_tup_list)] = update
    return y


@takes_tensors
def logical_slice_assign(x: Tensor, update: Tensor, slice_tup_list: Sequence[Sequence[int | None]]) -> Tensor:
    """Write `update` into `slice(x, slice_tup_list)`, and return x. `oneflow.logical_slice_assign`.

    >>> import miniflow as flow
    >>> x = flow.ones(5)
    >>> flow.logical_slice_assign(x, flow.tensor([2.0, 3.0, 4.0]), [[1, 4, 1]]).tolist()
    [1.0, 2.0, 3.0, 4.0, 1.0]
    """
    x[_slices(slice_tup_list)] = update
    return x


@method
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """out[i, j, ...] = the element storage_offset + i stride[0] + j stride[1] + ... in memory of a tensor, as a copy.

    Raises:
        ArgumentError: for a tensor with gaps in memory; its dims may be in any order there.
        ShapeError: for sizes and strides of different lengths, and negative numbers.
        IndexRangeError: if that leaves the elements of the tensor.

    Source: `torch.as_strided`, which gives a view, and of all the memory.
    """
    input = input.permute(sorted(range(input.ndim), key=lambda dim: -input.stride(dim)))
    if not input.is_contiguous():
        raise ArgumentError("as_strided: got a tensor with gaps in memory; use x.contiguous() first")
    size, stride = sizes_to_shape("as_strided", (size,)), sizes_to_shape("as_strided", (stride,))
    offset = storage_offset or 0
    if len(size) != len(stride) or offset < 0:
        got = f"size={size}, stride={stride} and storage_offset={offset}"
        raise ShapeError(f"as_strided: got {got}; expected as many of both, and no negative offset")
    last = offset + builtins.sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and not 0 <= last < input.numel():
        raise IndexRangeError(f"as_strided: got element {last}; expected at most {input.numel() - 1}")
    positions = np.arange(input.numel())[offset:]
    positions = np.lib.stride_tricks.as_strided(positions, size, [positions.itemsize * step for step in stride])
    return take(input, constant_like(input, positions.copy()))
