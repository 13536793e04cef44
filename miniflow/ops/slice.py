"""Parts of a tensor by strides alone: views, and the ops that put a part back among zeros (their gradients)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from miniflow.backends.memory import peek
from miniflow.backends.ranges import first_outside
from miniflow.dispatch import call
from miniflow.errors import IndexRangeError, ShapeError, refusal
from miniflow.ops.method import method
from miniflow.ops.shape import View, wrap_dim
from miniflow.ops.views import IntoZeros, StridedView
from miniflow.tensor import Tensor

FARTHEST = 2**31 - 1  # NumPy's diagonals are numbered in 32 bits


class Slice(StridedView):
    """y = x[index] for an `index` of ints, slices, None and exactly one Ellipsis: a view."""

    def infer(x, *, index):
        return sliced_shape("getitem", x.shape, index), x.dtype


class SliceIntoZeros(IntoZeros, of=Slice):
    """y = zeros of `shape` with y[index] = x: the adjoint of `Slice`."""

    amp = "clear"


def sliced_shape(op: str, shape: tuple[int, ...], index: tuple) -> tuple[int, ...]:
    """The shape of `x[index]` for an `x` of `shape`.

    Raises:
        IndexRangeError: for an int outside its dim, or too many indices.
    """
    consumed = sum(part is not None and part is not Ellipsis for part in index)
    check_count(op, index.count(...), consumed, shape)
    result, dim = [], 0
    for part in index:
        if part is Ellipsis:
            skipped = len(shape) - consumed
            result += shape[dim : dim + skipped]
            dim += skipped
        elif part is None:
            result.append(1)
        else:
            if isinstance(part, slice):
                result.append(len(range(*part.indices(shape[dim]))))
            elif not -shape[dim] <= part < shape[dim]:
                raise out_of_range(op, part, dim, shape)
            dim += 1
    return tuple(result)


def check_count(op: str, ellipses: int, consumed: int, shape: tuple[int, ...]) -> None:
    """Refuse several Ellipsis, and more indices than dims, with an IndexRangeError."""
    if ellipses > 1:
        raise IndexRangeError(f"{op}: got more than one Ellipsis (...); expected at most one")
    if consumed > len(shape):
        given = f"{consumed} for a tensor of shape {tuple(shape)}"
        raise IndexRangeError(f"{op}: too many indices: got {given}; expected at most {len(shape)}")


def check_in_range(
    op: str, index: Any, dim: int, shape: tuple[int, ...], negative: bool = False, remedy: str = ""
) -> None:
    """Refuse an index along `dim` that has values outside of it, as far as they can be looked at.

    Args:
        negative: whether negative values count from the end.
        remedy: what to do about it, for the message.

    Raises:
        IndexRangeError: for the first that is outside.
    """
    values = peek(index)
    if values is None or not values.size:
        return
    size = shape[dim] if shape else 1
    flat = np.ascontiguousarray(values, np.int64).reshape(-1)
    bad = first_outside(flat, -size if negative else 0, size, 0) if size else 0
    if bad >= 0:
        raise out_of_range(op, values.flat[bad], dim, shape, negative, remedy)


def out_of_range(
    op: str, index: int, dim: int, shape: tuple[int, ...], negative: bool = True, remedy: str = ""
) -> IndexRangeError:
    """The error for an index outside the size of its dim."""
    size = shape[dim] if shape else 1
    expected = f"from {-size if negative else 0} to {size - 1}" if size else "none, since the dim is empty"
    return IndexRangeError(
        f"{op}: index {index} is out of range for dim {dim} of size {size} (shape {tuple(shape)}); expected {expected}"
        f"{remedy}"
    )


@method
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The view `x[..., index, ...]` at `dim`, which disappears.

    Raises:
        DimError: for a dim that does not exist.
        IndexRangeError: for an index outside the dim; negative ones count from the end.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 2], [3, 4]]).select(1, -1).tolist()
    [2, 4]

    Source: `torch.select`.
    """
    shape = input._array.shape
    if not shape:
        raise ShapeError("select: got a 0-dim tensor; expected at least 1 dim: use x.item() for its value")
    dim = wrap_dim("select", dim, len(shape))
    if not -shape[dim] <= index < shape[dim]:
        raise out_of_range("select", index, dim, shape)
    return call(Slice, input, index=(slice(None),) * dim + (int(index), ...))


@method
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """The view of `length` elements from `start` on, along `dim`.

    Args:
        input: at least 1 dim.
        dim: the dim to shorten.
        start: the first index; negative ones count from the end.
        length: how many, at least 0.

    Raises:
        DimError: for a dim that does not exist.
        IndexRangeError: if the part reaches outside the tensor.

    >>> import miniflow as flow
    >>> flow.arange(5).narrow(0, 1, 3).tolist()
    [1, 2, 3]

    Source: `torch.narrow`.
    """
    shape = input._array.shape
    if not shape:
        raise ShapeError("narrow: got a 0-dim tensor; expected at least 1 dim: unsqueeze it")
    dim = wrap_dim("narrow", dim, len(shape))
    size, first = shape[dim], int(start) + shape[dim] if start < 0 else int(start)
    if length < 0 or not 0 <= first <= size - length:
        wanted = f"start from {-size} to {size}, and start + length inside the dim"
        given = f"start={start} and length={length} for dim {dim} of size {size}"
        raise IndexRangeError(f"narrow: got {given}; expected {wanted}")
    return call(Slice, input, index=(slice(None),) * dim + (slice(first, first + int(length)), ...))


class Diagonal(StridedView):
    """y[..., i] = x[..., i, ..., i + offset, ...] with the two indices at dim1 and dim2: a view."""

    def infer(x, *, offset, dim1, dim2):
        ndim = len(x.shape)
        a, b = wrap_dim("diagonal", dim1, ndim), wrap_dim("diagonal", dim2, ndim)
        if ndim < 2 or a == b:
            raise refusal(ShapeError, "diagonal", "two different dims", input=x, dim1=dim1, dim2=dim2)
        length = min(x.shape[a], x.shape[b] - offset) if offset >= 0 else min(x.shape[a] + offset, x.shape[b])
        return (*[n for d, n in enumerate(x.shape) if d not in (a, b)], max(length, 0)), x.dtype


class DiagonalIntoZeros(IntoZeros, of=Diagonal):
    """zeros of `shape` with x on the diagonal: the adjoint of `Diagonal`."""

    amp = "clear"


def nearest_offset(offset: int) -> int:
    """The offset of a diagonal; of one beyond all matrices, which has no elements, one that kernels can add to."""
    return max(-FARTHEST, min(operator.index(offset), FARTHEST))


@method(checked=False)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The view of a diagonal of the matrices that `dim1` and `dim2` span, as a new last dim.

    Args:
        input: at least 2 dims.
        offset: 0 is the main diagonal, positive ones are above it, negative ones below.
        dim1: the dim of the rows.
        dim2: the dim of the columns.

    Raises:
        DimError: for dims that do not exist.
        ShapeError: if the dims are the same.

    >>> import miniflow as flow
    >>> flow.tensor([[1, 2], [3, 4]]).diagonal().tolist()
    [1, 4]

    Source: `torch.diagonal`.
    """
    return call(Diagonal, input, offset=nearest_offset(offset), dim1=dim1, dim2=dim2)


class Unfold(StridedView):
    """y[..., w, ..., k] = x[..., w * step + k, ...]: all windows of `size` along `dim`, as a view."""

    def infer(x, *, dim, size, step):
        limit = x.shape[dim]
        if not 0 <= size <= limit or step <= 0:
            given = f"size={size} and step={step} for dim {dim} of shape {tuple(x.shape)}"
            raise ShapeError(f"unfold: got {given}; expected a size from 0 to {limit} and a step of at least 1")
        return (*x.shape[:dim], (limit - size) // step + 1, *x.shape[dim + 1 :], size), x.dtype

    @classmethod
    def common_dims(cls, shape, attrs):
        (whole,), (part,) = super().common_dims(shape, attrs)
        return [whole.replace(part[-1], ".")], [f"{part[:-1]}."]  # a window is not split, even if there is only one


class FoldAdd(IntoZeros, of=Unfold):
    """Every window of x added to its position in zeros of `shape`: the adjoint of `Unfold`."""


@method
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """The view of all windows of `size` elements along `dimension`, every `step` elements; they make a new last dim.

    Args:
        input: shape (..., n, ...), with n at `dimension`.
        dimension: the dim to take windows along.
        size: elements of a window, at most n.
        step: from the start of a window to that of the next, at least 1.

    Returns:
        shape (..., (n - size) // step + 1, ..., size). Windows that overlap cannot be written to.

    Raises:
        DimError: for a dim that does not exist.
        ShapeError: for a size or step out of range.

    >>> import miniflow as flow
    >>> flow.arange(5).unfold(0, 3, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]

    Source: `torch.Tensor.unfold`.
    """
    dim = wrap_dim("unfold", dimension, input._array.ndim)
    if not input._array.ndim:
        return select(call(Unfold, call(View, input, shape=(1,)), dim=0, size=size, step=step), 0, 0)
    return call(Unfold, input, dim=dim, size=size, step=step)


def basic_part(op: str, part: Any) -> Any:
    """An int, slice, None or Ellipsis of an index, in plain Python ints.

    Raises:
        IndexRangeError: for a slice with a step below 1.
    """
    if not isinstance(part, slice):
        return part
    step = 1 if part.step is None else int(part.step.__index__())
    if step < 1:
        raise IndexRangeError(
            f"{op}: got a slice with step {step}; step must be greater than zero: use flip() to reverse a dim"
        )
    bounds = [None if bound is None else bound.__index__() for bound in (part.start, part.stop)]
    return slice(*bounds, None if step == 1 else step)
