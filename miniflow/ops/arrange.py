"""The elements of a tensor in another arrangement: rolled, rotated, repeated, spread over grids."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod

import numpy as np

from miniflow.dispatch import Op, call
from miniflow.errors import ArgumentError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.join import cat, stack
from miniflow.ops.method import method
from miniflow.ops.promotion import broadcast_shape
from miniflow.ops.shape import sizes_of, wrap_dim, wrap_dims
from miniflow.ops.slice import DiagonalIntoZeros, nearest_offset
from miniflow.sbp import letters_but, signatures
from miniflow.tensor import Tensor, constant_like


@method
def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """The elements moved by `shifts` along `dims`; those that leave come in again at the other end.

    Args:
        input: any shape.
        shifts, dims: as many of each. Without dims, the flat tensor is rolled.

    >>> import miniflow as flow
    >>> flow.roll(flow.arange(4), 1).tolist()
    [3, 0, 1, 2]

    Source: `torch.roll`.
    """
    if dims is None:
        return roll(input.flatten(), shifts, 0).reshape(input.shape)
    shifts, dims = ((x,) if hasattr(x, "__index__") else tuple(x) for x in (shifts, dims))
    if len(shifts) != len(dims):
        raise ShapeError(f"roll: got shifts {shifts} and dims {dims}; expected as many of each")
    if dims and not input.ndim:
        raise ShapeError(f"roll: got dims {dims} of a tensor of no dims; expected none")
    rolled = input
    for shift, dim in zip(shifts, wrap_dims("roll", dims, input.ndim), strict=True):
        size = input.shape[dim]
        split = -shift % size if size else 0
        if split:
            rolled = cat([rolled.narrow(dim, split, size - split), rolled.narrow(dim, 0, split)], dim)
    return rolled.clone() if rolled is input else rolled


@method
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The planes of two dims turned `k` times by 90 degrees, from the first dim towards the second. `torch.rot90`."""
    first, second = wrap_dims("rot90", dims, input.ndim)
    turns = [lambda x: x.clone(), lambda x: x.flip(second).transpose(first, second), lambda x: x.flip(first, second)]
    return turns[k % 4](input) if k % 4 < 3 else input.transpose(first, second).flip(second)


@method
def fliplr(input: Tensor) -> Tensor:
    """The columns in reverse order. `torch.fliplr`."""
    return input.flip(1)


@method
def flipud(input: Tensor) -> Tensor:
    """The rows in reverse order. `torch.flipud`."""
    return input.flip(0)


@method
def repeat_interleave(
    input: Tensor, repeats: int | Tensor, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element `repeats` times, one after the other.

    Args:
        input: any shape; without a dim it is flattened.
        repeats: a number for all elements along `dim`, or a tensor with a number for each of them.
        output_size: not needed here.

    >>> import miniflow as flow
    >>> flow.tensor([1, 2]).repeat_interleave(2).tolist()
    [1, 1, 2, 2]

    Source: `torch.repeat_interleave`.
    """
    if dim is None:
        input, dim = input.flatten(), 0
    dim = wrap_dim("repeat_interleave", dim, input.ndim)
    if not isinstance(repeats, Tensor) and hasattr(repeats, "__index__"):
        wide = [*input.shape[: dim + 1], repeats, *input.shape[dim + 1 :]]
        return input.unsqueeze(dim + 1).expand(wide).clone().flatten(dim, dim + 1)
    counts = np.broadcast_to(repeats._host_array(), input.shape[dim])
    return input.index_select(dim, constant_like(input, np.repeat(np.arange(counts.size), counts)))


@method
def ravel(input: Tensor) -> Tensor:
    """The elements as a vector. `torch.ravel`."""
    return input.flatten()


@takes_tensors
def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: for vectors of n and m elements, two views of shape (n, m), or (m, n) for "xy".

    Args:
        tensors: vectors, or numbers of 0 dims; one by one or as a list.
        indexing: "ij", or "xy" for the first two dims exchanged.

    >>> import miniflow as flow
    >>> [x.tolist() for x in flow.meshgrid(flow.arange(2), flow.arange(3))]
    [[[0, 0, 0], [1, 1, 1]], [[0, 1, 2], [0, 1, 2]]]

    Source: `torch.meshgrid`.
    """
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"meshgrid: got indexing={indexing!r}; expected 'ij' or 'xy'")
    vectors = [x.flatten() for x in sizes_of(tensors)]
    if any(x.ndim > 1 for x in sizes_of(tensors)):
        raise ShapeError(f"meshgrid: got shapes {[tuple(x.shape) for x in sizes_of(tensors)]}; expected vectors")
    shape = tuple([x.numel() for x in vectors])
    grids = [x.reshape((1,) * i + (-1,) + (1,) * (len(shape) - i - 1)).expand(shape) for i, x in enumerate(vectors)]
    return tuple([x.transpose(0, 1) if indexing == "xy" and len(shape) > 1 else x for x in grids])


@takes_tensors
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of the elements of vectors, one in each row. `torch.cartesian_prod`."""
    grids = [x.flatten() for x in meshgrid(*tensors)]
    return grids[0] if len(grids) == 1 else stack(grids, 1)


@takes_tensors
def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of the tensors in one shape, to which they are broadcast. `torch.broadcast_tensors`."""
    tensors = sizes_of(tensors)
    shape = broadcast_shape("broadcast_tensors", *[x.shape for x in tensors])
    return tuple([x.expand(shape) for x in tensors])


def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """The shape to which tensors of these shapes are broadcast. `torch.broadcast_shapes`."""
    return broadcast_shape("broadcast_shapes", *[(s,) if isinstance(s, int) else tuple(s) for s in shapes])


@method
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of zeros, spanned by the dims `dim1` and `dim2` of the result, with the last dim as their diagonals.

    Source: `torch.diag_embed`.
    """
    if not input.ndim:
        raise ShapeError("diag_embed: got a tensor of no dims; expected at least 1 dim")
    ndim, size = input.ndim + 1, input.shape[-1] + abs(offset)
    dim1, dim2 = wrap_dims("diag_embed", (dim1, dim2), ndim)
    rest = iter(input.shape[:-1])
    shape = tuple([size if d in (dim1, dim2) else next(rest) for d in range(ndim)])
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


@takes_tensors
def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix of zeros with the tensors, matrices or vectors as rows, along its diagonal. `torch.block_diag`."""
    blocks = [x.reshape((1, -1)) if x.ndim < 2 else x for x in tensors]
    width, start, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(x.new_zeros(x.shape[0], width))
        if prod(x.shape):
            parts = [x.new_zeros(x.shape[0], start), x, x.new_zeros(x.shape[0], width - start - x.shape[1])]
            rows[-1] = cat(parts, 1)
        start += x.shape[1]
    return cat(rows)


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
