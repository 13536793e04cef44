"""Norms of vectors and matrices, as in `torch.linalg`."""

from __future__ import annotations

from math import inf

from miniflow.errors import ArgumentError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.creation import zeros_like
from miniflow.ops.linalg import identity_like, inv, largest, matrices, slogdet, svdvals
from miniflow.ops.piecewise import where
from miniflow.ops.promotion import Number, cast
from miniflow.ops.reduce import Dim
from miniflow.ops.shape import wrap_dim
from miniflow.ops.statistics import norm as elements_norm
from miniflow.tensor import Tensor


@takes_tensors
def vector_norm(x: Tensor, ord: Number = 2, dim: Dim = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """(sum of |x|^ord)^(1/ord) over `dim`; the largest |x| for inf, the smallest for -inf.

    Args:
        x: floating, any shape.
        ord: the exponent.
        dim: the dims to reduce; all if None.
        keepdim: leave the reduced dims with size 1.
        dtype: cast to it first.

    >>> import miniflow as flow
    >>> flow.linalg.vector_norm(flow.tensor([3.0, 4.0])).item()
    5.0

    Source: `torch.linalg.vector_norm`.
    """
    return elements_norm(x, ord, dim, keepdim, dtype)


@takes_tensors
def matrix_norm(
    A: Tensor,
    ord: Number | str = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> Tensor:
    """The norm of matrices.

    Args:
        A: at least 2 dims, floating.
        ord: "fro" (of the elements), "nuc" (the sum of the singular values), 2 or -2 (the largest or smallest of them),
            1 or -1 (of the sums of |a| of the columns), inf or -inf (of those of the rows).
        dim: of the rows and columns.
        keepdim: leave these dims with size 1.
        dtype: cast to it first.

    Raises:
        ArgumentError: for another `ord`.
        ShapeError: for fewer than 2 dims.

    >>> import miniflow as flow
    >>> [flow.linalg.matrix_norm(flow.tensor([[1.0, -2.0], [3.0, 4.0]]), ord).item() for ord in (1, float("inf"))]
    [6.0, 7.0]

    Source: `torch.linalg.matrix_norm`.
    """
    if A.ndim < 2 or len(dim) != 2:
        raise ShapeError(f"matrix_norm: got {tuple(A.shape)} and dim={dim}; expected at least 2 dims, and two of them")
    if ord not in ("fro", "nuc", 2, -2, 1, -1, inf, -inf):
        raise ArgumentError(f"matrix_norm: got ord={ord!r}; expected 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2")
    A = A if dtype is None else cast(A, dtype)
    if ord == "fro":
        return elements_norm(A, 2, tuple(dim), keepdim)
    rows, columns = (wrap_dim("matrix_norm", d, A.ndim) for d in dim)
    last = A.movedim((rows, columns), (-2, -1))
    if ord in ("nuc", 2, -2):
        values = svdvals(last)
    else:
        values = abs(last).sum(-2 if ord in (1, -1) else -1)
    y = values.sum(-1) if ord == "nuc" else largest(values) if ord > 0 else values.amin(-1)
    for d in sorted((rows, columns)) if keepdim else ():
        y = y.unsqueeze(d)
    return y


@takes_tensors
def norm(
    A: Tensor, ord: Number | str | None = None, dim: Dim = None, keepdim: bool = False, *, dtype: object = None
) -> Tensor:
    """`matrix_norm` where `ord` comes with two dims or a matrix; else `vector_norm`, by default with exponent 2.

    Raises:
        ShapeError: for an `ord` without `dim`, and more than 2 dims.

    Source: `torch.linalg.norm`.
    """
    if ord is None or isinstance(dim, int) or dim is not None and len(dim) == 1 or dim is None and A.ndim == 1:
        return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    if dim is None and A.ndim != 2:
        raise ShapeError(f"norm: got {tuple(A.shape)} and ord={ord!r}; expected 1 or 2 dims, or dim=")
    return matrix_norm(A, ord, (-2, -1) if dim is None else tuple(dim), keepdim, dtype=dtype)


@takes_tensors
def cond(A: Tensor, p: Number | str | None = None) -> Tensor:
    """The condition number: the norm of each matrix times that of its inverse; inf where it has none; 0 if empty.

    Args:
        A: (..., m, n); square unless p is None, 2 or -2.
        p: an `ord` of `matrix_norm`; 2 if None, computed from the singular values, as -2 is.

    >>> import miniflow as flow
    >>> flow.linalg.cond(flow.tensor([[2.0, 0.0], [0.0, 8.0]])).item()
    4.0

    Source: `torch.linalg.cond`.
    """
    batch, m, n = matrices("cond", A._array, square=p in ("fro", "nuc"))
    if not (m and n):
        return zeros_like(A.sum((-2, -1)))
    if p in (None, 2, -2):
        S = svdvals(A)
        return S.amin(-1) / S.amax(-1) if p == -2 else S.amax(-1) / S.amin(-1)
    singular = slogdet(A)[0] == 0
    inverse = inv(where(singular[..., None, None], identity_like(A), A))
    return where(singular, inf, matrix_norm(A, p) * matrix_norm(inverse, p))
