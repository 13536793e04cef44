"""Triangles and diagonals of matrices."""

from __future__ import annotations

import operator

from miniflow.dispatch import Op, call
from miniflow.errors import ShapeError
from miniflow.ops.method import method
from miniflow.ops.shape import clone
from miniflow.ops.slice import DiagonalIntoZeros
from miniflow.ops.slice import diagonal as diagonal_view
from miniflow.sbp import letters_but, signatures
from miniflow.tensor import Tensor


class Triangle(Op):
    """y_ij = x_ij where j - i <= diagonal, or where it is >= diagonal for an upper triangle; else 0."""

    amp = "clear"

    def infer(x, *, diagonal, upper):
        if len(x.shape) < 2:
            name = "triu" if upper else "tril"
            raise ShapeError(f"{name}: got a tensor of shape {x.shape}; expected matrices, at least 2 dims")
        return x.shape, x.dtype

    def sbp(x, *, ranks, diagonal, upper):
        kept = letters_but(x.ndim, -2, -1)
        return signatures([kept], [kept], linear=[[0]])

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
    return call(Triangle, input, diagonal=operator.index(diagonal), upper=False)


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
    return call(Triangle, input, diagonal=operator.index(diagonal), upper=True)


@method
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a square matrix of zeros; of a matrix, a copy of its diagonal.

    Args:
        input: shape (n,) or (rows, columns).
        diagonal: which diagonal: 0 the main one, positive above it, negative below.

    Returns:
        shape (n + |diagonal|, n + |diagonal|), or the length of the diagonal.

    Raises:
        ShapeError: for other numbers of dims, or a diagonal outside the matrix.

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
    if len(shape) != 2 or not -shape[0] <= offset <= shape[1]:
        raise ShapeError(f"diag: got shape {shape} and diagonal={offset}; expected a vector, or a matrix that has it")
    return clone(diagonal_view(input, offset))
