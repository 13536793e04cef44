"""Picking elements by integer tensors along a dim, and the ops that place them, which functions of `scatter` call."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.memory import peek
from miniflow.dispatch.dispatcher import Op, call, run_kernel
from miniflow.dtype import int64
from miniflow.errors import DTypeError, ShapeError
from miniflow.ops import split_dims
from miniflow.ops.creation import zeros
from miniflow.ops.indexing import Index, where
from miniflow.ops.method import method
from miniflow.ops.promotion import broadcast_shape, cast
from miniflow.ops.shape import View
from miniflow.ops.views import check_in_range, input_shape, split_as_input, without_split, wrap_dim
from miniflow.sbp import common_letters, signatures
from miniflow.tensor import Tensor, constant_like


def check_index(op: str, index: Any, dim: int, shape: tuple[int, ...]) -> None:
    """Refuse an index that is not of integers in [0, size of dim).

    Raises:
        DTypeError: for other dtypes.
        IndexRangeError: for the first index outside; negative ones do not count from the end here.
    """
    if index.dtype.kind not in "iu":
        raise DTypeError(f"{op}: got an index of {index.dtype}; expected int64: use .long()")
    check_in_range(op, index, dim, shape)


def check_reach(op: str, index: Any, shape: tuple[int, ...], dim: int) -> None:
    """Refuse an index with more dims, or in other dims than `dim` more elements, than `shape`.

    Raises:
        ShapeError: if it has.
    """
    if (len(index.shape) or 1) != (len(shape) or 1) or any(
        n > size for d, (n, size) in enumerate(zip(index.shape, shape, strict=False)) if d != dim
    ):
        got = f"an index of shape {tuple(index.shape)} for a tensor of shape {tuple(shape)} and dim {dim}"
        raise ShapeError(f"{op}: got {got}; expected as many dims, and no larger sizes in the other dims")


class Gather(Op):
    """y[i, ..., k, ..., j] = x[i, ..., index[i, ..., k, ..., j], ..., j] with the index at `dim`."""

    amp = "clear"
    saves = ("index",)
    checks_values = "infer"

    def infer(x, index, *, dim):
        check_reach("gather", index, x.shape, dim)
        check_index("gather", index, dim, x.shape)
        return index.shape, x.dtype

    def sbp(x, index, *, ranks, dim):
        common = common_letters(dim, x.shape, index.shape)
        x_dims, index_dims = [common[:dim] + letter[: len(common)] + common[dim + 1 :] for letter in "YZ"]
        return signatures([x_dims, index_dims], [index_dims], linear=[[0]])

    def on_shard(op, arrays, attrs, shard):
        (x, index), dim = arrays, attrs["dim"]
        if not x.ndim or split_dims.is_whole(shard.operands[0], shard.wholes[0].shape, [dim]):
            return run_kernel(op, arrays, attrs)
        check_index("gather", index, dim, shard.wholes[0].shape)
        index, inside = split_dims.along_part(index, shard.operands[0][dim])
        return split_dims.run("Where", inside, run_kernel(op, [x, index], attrs), split_dims.zeros(x, ()))

    def backward(ctx, dy):
        attrs = {"dim": ctx.attrs["dim"], "shape": input_shape(ctx), **split_as_input(ctx)}
        return call(ScatterAdd, None, *ctx.saved, dy, **attrs), None


@method
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Elements picked along `dim`: y[i][j] = x[index[i][j]][j] for dim 0, x[i][index[i][j]] for dim 1.

    Args:
        input: any shape.
        dim: the dim that `index` counts along.
        index: integers in [0, size of dim), of as many dims as `input`, no larger than `input` in the other dims.

    Returns:
        the shape of `index`.

    Raises:
        ShapeError, IndexRangeError, DTypeError: for an index that does not fit.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 2], [3, 4]]).gather(1, flow.tensor([[1], [0]])).tolist()
    [[2], [3]]

    Source: `torch.gather`.
    """
    return call(Gather, input, index, dim=wrap_dim("gather", dim, input._array.ndim))


@method
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As `gather`, with the other dims broadcast, and negative indices from the end; without `dim`, of the flat tensor.

    Raises:
        ShapeError: if the numbers of dims differ, or the other dims cannot be broadcast.
        IndexRangeError, DimError: as `gather`.

    >>> import miniflow as flow
    >>> x = flow.tensor([[3, 1], [2, 4]])
    >>> flow.take_along_dim(x, x.argmax(1, keepdim=True), 1).tolist()
    [[3], [4]]

    Source: `torch.take_along_dim`.
    """
    if dim is None:
        return take_along_dim(input.reshape(-1), indices.reshape(-1), 0)
    shape, index_shape = input._array.shape, indices._array.shape
    dim = wrap_dim("take_along_dim", dim, len(shape))
    if len(shape) != len(index_shape):
        raise ShapeError(f"take_along_dim: got shapes {shape} and {index_shape}; expected as many dims in both")
    broadcast = broadcast_shape(
        "take_along_dim", shape[:dim] + (1,) + shape[dim + 1 :], index_shape[:dim] + (1,) + index_shape[dim + 1 :]
    )
    input = input.expand(broadcast[:dim] + shape[dim : dim + 1] + broadcast[dim + 1 :])
    size = input.shape[dim]
    indices = where((indices < 0) & (indices >= -size), indices + size, indices)
    return gather(input, dim, indices.expand(broadcast[:dim] + index_shape[dim : dim + 1] + broadcast[dim + 1 :]))


class Scatter(Op):
    """x with x[i, ..., index[i, ..., k, ..., j], ..., j] = src[i, ..., k, ..., j]; the last write wins."""

    amp = "clear"
    computes_in_first = True
    saves = ("index",)
    checks_values = "infer"

    def infer(x, index, src, *, dim):
        check_index("scatter", index, dim, x.shape)
        return x.shape, x.dtype

    def sbp(x, index, src, *, ranks, dim):
        x_dims = common_letters(dim, x.shape, index.shape)
        return signatures([x_dims] * 3, [x_dims], linear=[[0, 2]])

    def backward(ctx, dy):
        (index,) = ctx.saved
        dim, shape = ctx.attrs["dim"], dy._array.shape
        dx = dsrc = None
        if ctx.needs[0]:
            dx = call(Scatter, dy, index, zeros(index.shape, dtype=dy.dtype, device=dy._device), dim=dim)
        if ctx.needs[2]:
            numbers = constant_like(index, np.arange(index._array.size).reshape(index._array.shape))
            written = call(Scatter, zeros(shape, dtype=int64, device=dy._device), index, numbers, dim=dim)
            is_last = call(Gather, written, index, dim=dim) == numbers  # no later one replaced it
            dsrc = where(is_last, call(Gather, dy, index, dim=dim), 0.0)
        return dx, None, dsrc


class ScatterAdd(Op):
    """x (zeros of `shape` if None) with src added at the places that `index` names: the adjoint of `Gather`."""

    saves = ("index",)
    checks_values = "infer"

    def infer(x, index, src, *, dim, shape, split=()):
        check_index("scatter_add", index, dim, shape)
        return shape, src.dtype

    def sbp(x, index, src, *, ranks, dim, shape, split=()):
        common = common_letters(dim, shape, index.shape)
        index_dims = common[:dim] + "Z"[: len(common)] + common[dim + 1 :]
        result_dims = common[:dim] + ("Y" if x is not None or dim in split else ".")[: len(common)] + common[dim + 1 :]
        operand_dims = [None if x is None else result_dims, index_dims, index_dims]
        return signatures(operand_dims, [result_dims], linear=[[2] if x is None else [0, 2]], added=[0])

    def on_shard(op, arrays, attrs, shard):
        (x, index, src), dim, attrs = arrays, attrs["dim"], without_split(attrs)
        if not shard.shape or split_dims.is_whole(shard.result, shard.shape, [dim]):
            return run_kernel(op, arrays, attrs)
        check_index("scatter_add", index, dim, shard.shape)
        index, inside = split_dims.along_part(index, shard.result[dim])
        src = split_dims.run("Where", inside, src, split_dims.zeros(src, ()))
        return run_kernel(op, [x, index, src], attrs)

    def backward(ctx, dy):
        return dy, None, call(Gather, dy, *ctx.saved, dim=ctx.attrs["dim"]) if ctx.needs[2] else None


def coordinates_of(op: str, index: Tensor, dim: int = 0, shape: tuple[int, ...] | None = None) -> Tensor:
    """The coordinates that `Index` takes for one dim, of an index of at most 1 dim.

    With a `shape`, negative ones are refused too: at once, or, where the values are not known yet, by the operator that
    takes the coordinates.
    """
    if index._array.ndim > 1:
        raise ShapeError(f"{op}: got an index of shape {tuple(index.shape)}; expected at most 1 dim")
    if index._array.dtype.kind not in "iu":
        raise DTypeError(f"{op}: got an index of {index.dtype}; expected int64: use .long()")
    index = cast(index, int64)
    if shape is not None:
        check_in_range(op, index._array, dim, shape)
        index = where(index < 0, shape[dim], index) if peek(index._array) is None else index
    return call(View, index, shape=(1, index._array.size))


@method
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """A copy of the slices of `input` that `index` names along `dim`.

    Args:
        input: shape (..., n, ...) with n at `dim`.
        dim: the dim that `index` counts along.
        index: integers in [0, n), shape (m,).

    Returns:
        shape (..., m, ...).

    Raises:
        IndexRangeError, ShapeError, DTypeError: for an index that does not fit.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 2], [3, 4]]).index_select(1, flow.tensor([1, 1])).tolist()
    [[2, 2], [4, 4]]

    Source: `torch.index_select`.
    """
    dim = wrap_dim("index_select", dim, input._array.ndim)
    if not input._array.shape:
        return index_select(input.reshape(1), 0, index).reshape(())
    return call(Index, input, coordinates_of("index_select", index, dim, input._array.shape), dims=(dim,))
