"""Diagonals and triangles of matrices: views of diagonals, diagonal matrices, `tril` and `triu`, and their indices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.dispatch.dispatcher import Op, call
from miniflow.dtype import as_dtype, int64
from miniflow.errors import ShapeError, refusal
from miniflow.ops.creation import new_leaf, sizes_to_shape
from miniflow.ops.method import method
from miniflow.ops.views import IntoZeros, StridedView, wrap_dim, wrap_dims
from miniflow.sbp import letters_but, signatures
from miniflow.tensor import Tensor


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


FARTHEST = 2**31 - 1  # NumPy's diagonals are numbered in 32 bits


def nearest_offset(offset: int) -> int:
    """The offset of a diagonal, limited to what kernels can add to; diagonals that far out have no elements."""
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


@method
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of zeros, spanned by the dims `dim1` and `dim2` of the result, with the last dim as their diagonals.

    Source: `torch.diag_embed`.
    """
    if not input.ndim:
        raise ShapeError("diag_embed: got a tensor of no dims; expected at least 1 dim")
    ndim, size = input.ndim + 1, input.shape[-1] + abs(offset)
    dim1, dim2 = wrap_dims("diag_embed", (dim1, dim2), ndim)
    sizes = iter(input.shape[:-1])
    shape = tuple([size if d in (dim1, dim2) else next(sizes) for d in range(ndim)])
    return call(DiagonalIntoZeros, input, shape=shape, offset=offset, dim1=dim1, dim2=dim2)


@method
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix of zeros with the elements as its diagonal. `torch.diagflat`."""
    return diag_embed(input.flatten(), offset)


@method
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix. `torch.trace`."""
    if input.ndim != 2:
        raise ShapeError(f"trace: got shape {tuple(input.shape)}; expected a matrix")
    return input.diagonal().sum()


class Triangle(Op):
    """y_ij = x_ij where j - i <= diagonal, or where it is >= diagonal for an upper triangle; else 0."""

    amp = "clear"

    def infer(x, *, diagonal, upper):
        if len(x.shape) < 2:
            name = "triu" if upper else "tril"
            raise ShapeError(f"{name}: got a tensor of shape {x.shape}; expected matrices, at least 2 dims")
        return x.shape, x.dtype

    def sbp(x, *, ranks, diagonal, upper):
        x_dims = letters_but(x.ndim, -2, -1)
        return signatures([x_dims], [x_dims], linear=[[0]])

    def backward(ctx, dy):
        return call(Triangle, dy, **ctx.attrs)


@method(in_place=True)
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of each matrix, zeros above.

    Args:
        input: shape (..., rows, columns).
        diagonal: the last diagonal kept: 0 the main one, positive above it, negative below.

    Returns:
        the shape and dtype of `input`.

    Raises:
        ShapeError: for fewer than 2 dims.

    >>> import miniflow as flow
    >>> flow.tril(flow.ones(2, 2))
    tensor([[1., 0.],
            [1., 1.]], dtype=miniflow.float32)

    Source: `torch.tril`.
    """
    return call(Triangle, input, diagonal=nearest_offset(diagonal), upper=False)


@method(in_place=True)
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of each matrix, zeros below.

    Args:
        input: shape (..., rows, columns).
        diagonal: the first diagonal kept: 0 the main one, positive above it, negative below.

    Returns:
        the shape and dtype of `input`.

    Raises:
        ShapeError: for fewer than 2 dims.

    >>> import miniflow as flow
    >>> flow.triu(flow.ones(2, 2), diagonal=1)
    tensor([[0., 1.],
            [0., 0.]], dtype=miniflow.float32)

    Source: `torch.triu`.
    """
    return call(Triangle, input, diagonal=nearest_offset(diagonal), upper=True)


@method
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a square matrix of zeros; of a matrix, a copy of its diagonal.

    Args:
        input: shape (n,) or (rows, columns).
        diagonal: which diagonal: 0 the main one, positive above it, negative below.

    Returns:
        shape (n + |diagonal|, n + |diagonal|), or the length of the diagonal, 0 outside the matrix.

    Raises:
        ShapeError: for other numbers of dims.

    >>> import miniflow as flow
    >>> flow.diag(flow.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]], dtype=miniflow.int64)
    >>> flow.diag(flow.tensor([[1, 2], [3, 4]]), 1)
    tensor([2], dtype=miniflow.int64)

    Source: `torch.diag`.
    """
    shape, offset = input._array.shape, operator.index(diagonal)
    if len(shape) == 1:
        size = shape[0] + abs(offset)
        return call(DiagonalIntoZeros, input, shape=(size, size), offset=offset, dim1=0, dim2=1)
    if len(shape) != 2:
        raise ShapeError(f"diag: got shape {shape}; expected a vector or a matrix")
    return input.diagonal(offset).clone()


def tril_indices(
    row: int, col: int, offset: int = 0, dtype: Any = int64, *, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The row and column indices of the elements that `tril` keeps of a matrix (row, col): (2, count).

    Args:
        row, col: the sizes of the matrix.
        offset: the diagonal at which the part ends; 0 for the main one, positive above it.
        dtype, device, requires_grad: of the result.

    Raises:
        ShapeError: for a negative size.

    >>> tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]

    Source: `torch.tril_indices`.
    """
    return _triangle_indices("tril_indices", np.tril, row, col, offset, dtype, device, requires_grad)


def triu_indices(
    row: int, col: int, offset: int = 0, dtype: Any = int64, *, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """The row and column indices of the elements that `triu` keeps of a matrix (row, col): (2, count).

    Args, Raises: as of `tril_indices`.

    Source: `torch.triu_indices`.
    """
    return _triangle_indices("triu_indices", np.triu, row, col, offset, dtype, device, requires_grad)


def _triangle_indices(name: str, triangle: Callable, row, col, offset, dtype, device, requires_grad) -> Tensor:
    shape = sizes_to_shape(name, (row, col))
    offset = max(-row - 1, min(offset, col + 1))
    indices = np.stack(np.nonzero(triangle(np.ones(shape, bool), offset)))
    return new_leaf(indices.astype(as_dtype(dtype).numpy), device, requires_grad)
