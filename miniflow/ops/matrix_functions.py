"""Functions of matrices composed of factorizations and products: ranks, powers, least squares, norms."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.ops.creation import new_empty, zeros_like
from miniflow.ops.factorization import (
    check_matrices,
    identity_like,
    inv,
    largest,
    pinv,
    slogdet,
    solve_matrices,
    svdvals,
)
from miniflow.ops.indexing import where
from miniflow.ops.joining import cat
from miniflow.ops.method import method
from miniflow.ops.promotion import Number, broadcast_shape, cast
from miniflow.ops.reduction import Dim
from miniflow.ops.statistics import norm as elements_norm
from miniflow.ops.views import wrap_dim
from miniflow.tensor import Tensor


@method
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant: NaN where that is negative, -inf where it is 0. `torch.logdet`."""
    sign, value = slogdet(input)
    return where(sign > -0.5, value, np.nan)


def _smallest(S: Tensor, A: Tensor, atol: float | None, rtol: float | None) -> Tensor:
    """The threshold of singular values: max(atol, rtol max S), rtol by default max(m, n) eps if there is no atol."""
    if rtol is None:
        rtol = max(A.shape[-2:]) * float(np.finfo(A._array.dtype).eps) if atol is None else 0.0
    threshold = largest(S, True) * rtol
    return threshold if atol is None else where(threshold > atol, threshold, atol)


@takes_tensors
def matrix_rank(A: Tensor, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    """The number of singular values above max(atol, rtol max S); int64, (...).

    Args:
        A: (..., m, n).
        atol: 0 by default.
        rtol: max(m, n) eps by default, 0 if `atol` is given.

    Source: `torch.linalg.matrix_rank`.
    """
    S = svdvals(A)
    return (S > _smallest(S, A, atol, rtol)).sum(-1)


class LstsqResult(NamedTuple):
    """What `lstsq` returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@takes_tensors
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LstsqResult:
    """The X of least norm that minimizes |A X - B|: pinv(A) B, with gradients by A and B.

    Args:
        A: (..., m, n).
        B: (..., m, k), or vectors A.shape[:-1].
        rcond: singular values up to rcond times the largest count as 0; max(m, n) eps by default.
        driver: "gels", "gelsy" (by default), "gelsd" or "gelss"; all give the same solution here.

    Returns:
        solution (..., n, k); residuals, the squared lengths of the columns of A X - B, (..., k), empty for "gelsy" and
        unless m > n and all ranks are n; rank (...), empty for "gels"; singular_values (..., min(m, n)), empty
        but for "gelsd" and "gelss".

    Raises:
        ArgumentError: for another driver.
        ShapeError, DTypeError: if shapes or dtypes do not fit together.

    >>> import miniflow as flow
    >>> A, B = flow.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), flow.tensor([[1.0], [3.0], [5.0]])
    >>> [round(x, 4) for x in flow.linalg.lstsq(A, B).solution.flatten().tolist()]
    [1.0, 2.0]

    Source: `torch.linalg.lstsq`.
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ArgumentError(f"lstsq: got driver={driver!r}; expected 'gels', 'gelsy', 'gelsd' or 'gelss'")
    batch, m, n = check_matrices("lstsq", A._array, square=False)
    if A.dtype != B.dtype:
        raise DTypeError(f"lstsq: got {A.dtype} and {B.dtype}; expected the same dtype: use .to")
    is_vector = B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]
    if not is_vector and (B.ndim < 2 or B.shape[-2] != m):
        raise ShapeError(f"lstsq: got A {tuple(A.shape)} and B {tuple(B.shape)}; expected (..., m, n) and (..., m, k)")
    columns = B.unsqueeze(-1) if is_vector else B
    X = pinv(A, rtol=rcond) @ columns
    S = svdvals(A.detach())
    rank = (S > _smallest(S, A, None, rcond)).sum(-1)
    has_residuals = m > n and (driver == "gels" or driver in ("gelsd", "gelss") and bool((rank == n).all()))
    residuals = ((A @ X - columns) ** 2).sum(-2) if has_residuals else new_empty(A, 0)
    solution = X.squeeze(-1) if is_vector else X
    values = S if driver in ("gelsd", "gelss") else new_empty(A, 0)
    return LstsqResult(solution, residuals, new_empty(rank, 0) if driver == "gels" else rank, values)


@takes_tensors
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:  # fmt: skip
    """X with A X = B, or X A = B, of which only one triangle of A is read.

    Args:
        A: (..., n, n).
        B: (..., n, k), or (..., k, n) unless `left`; the batch dims are broadcast.
        upper: which triangle.
        left: whether A stands on the left.
        unitriangular: ones stand for the diagonal of A.

    Raises:
        ShapeError, DTypeError: if shapes or dtypes do not fit together.
        ArgumentError: for a zero on the diagonal.

    >>> import miniflow as flow
    >>> A = flow.tensor([[2.0, 0.0], [2.0, 4.0]])
    >>> flow.linalg.solve_triangular(A, flow.tensor([[2.0], [6.0]]), upper=False).tolist()
    [[1.0], [1.0]]

    Source: `torch.linalg.solve_triangular`.
    """
    if B.ndim < 2:
        raise ShapeError(f"solve_triangular: got B {tuple(B.shape)}; expected (..., n, k)")
    offset = 1 if unitriangular else 0
    triangle = A.triu(offset) if upper else A.tril(-offset)
    triangle = triangle + identity_like(A) if unitriangular else triangle
    return solve_matrices(triangle, B) if left else solve_matrices(triangle.mT, B.mT).mT


@takes_tensors
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A multiplied n times; the inverse for negative n, the identity for 0. `torch.linalg.matrix_power`."""
    check_matrices("matrix_power", A._array)
    if n < 0:
        return matrix_power(inv(A), -n)
    if n < 2:
        return A.clone() if n else identity_like(A)
    half = matrix_power(A, n // 2)
    return half @ half @ A if n % 2 else half @ half


@takes_tensors
def matrix_exp(A: Tensor) -> Tensor:
    """exp(A) = I + A + A^2 / 2 + ... of square matrices (..., n, n), by scaling and squaring; not in nn.Graph.

    Source: `torch.linalg.matrix_exp`; Moler and Van Loan 2003, "Nineteen Dubious Ways to Compute the Exponential".
    """
    check_matrices("matrix_exp", A._array)
    size = A.detach().abs().sum(-1).max().item() if A.numel() else 0.0
    squarings = max(0, math.frexp(size)[1] + 1) if math.isfinite(size) else 0  # the rows sum to 1/2 at most
    A, identity = A * 0.5**squarings, identity_like(A)
    y = identity
    for k in range(14, 0, -1):  # 2^-15 / 15! < 2^-55
        y = identity + A @ y / k
    for _ in range(squarings):
        y = y @ y
    return y


@takes_tensors
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of two or more matrices, in the order that takes the fewest multiplications.

    Args:
        tensors: matrices; the first and the last one may be vectors.

    Raises:
        ShapeError: for fewer than two tensors, or shapes that do not fit together.

    Source: `torch.linalg.multi_dot`; Cormen et al., "Introduction to Algorithms", section 15.2.
    """
    if len(tensors) < 2:
        raise ShapeError(f"multi_dot: got {len(tensors)} tensors; expected two or more")
    if not all(1 + (0 < i < len(tensors) - 1) <= x.ndim <= 2 for i, x in enumerate(tensors)):
        shapes = [tuple(x.shape) for x in tensors]
        raise ShapeError(f"multi_dot: got shapes {shapes}; expected matrices, the first and the last also vectors")
    first, last = tensors[0].ndim == 1, tensors[-1].ndim == 1
    chain = list(tensors)
    chain[0] = chain[0].unsqueeze(0) if first else chain[0]
    chain[-1] = chain[-1].unsqueeze(1) if last else chain[-1]
    sizes = [x.shape[0] for x in chain] + [chain[-1].shape[1]]
    for i, x in enumerate(chain[:-1]):
        if x.shape[1] != sizes[i + 1]:
            got = f"shapes {tuple(tensors[i].shape)} and {tuple(tensors[i + 1].shape)} at positions {i} and {i + 1}"
            raise ShapeError(f"multi_dot: got {got}; expected as many rows as columns before: transpose one")

    @functools.cache
    def best(i: int, j: int) -> tuple[int, int]:
        """The multiplications of the product of i to j, and where it is split."""
        costs = [(best(i, k)[0] + best(k + 1, j)[0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
        return min(costs, default=(0, i))

    def product(i: int, j: int) -> Tensor:
        split = best(i, j)[1]
        return chain[i] if i == j else product(i, split) @ product(split + 1, j)

    y = product(0, len(chain) - 1)
    y = y.squeeze(-1) if last else y
    return y.squeeze(0) if first else y


@takes_tensors
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of 3 elements along `dim`; the other dims are broadcast.

    Raises:
        ShapeError: for another size along `dim`, or no dims.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.linalg.cross(flow.tensor([1.0, 0.0, 0.0]), flow.tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]

    Source: `torch.linalg.cross`.
    """
    shape = broadcast_shape("cross", input.shape, other.shape)
    wrap_dim("cross", dim, len(shape))
    if not input.ndim or not other.ndim or shape[dim] != 3 or 1 in (input.shape[dim], other.shape[dim]):
        raise ShapeError(f"cross: got {tuple(input.shape)}, {tuple(other.shape)}; expected 3 elements along dim {dim}")
    x, y = input.expand(shape), other.expand(shape)
    x0, x1, x2 = (x.narrow(dim, i, 1) for i in range(3))
    y0, y1, y2 = (y.narrow(dim, i, 1) for i in range(3))
    parts = [a * b - c * d for a, b, c, d in ((x1, y2, x2, y1), (x2, y0, x0, y2), (x0, y1, x1, y0))]
    return cat(parts, dim)


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
    batch, m, n = check_matrices("cond", A._array, square=p in ("fro", "nuc"))
    if not (m and n):
        return zeros_like(A.sum((-2, -1)))
    if p in (None, 2, -2):
        S = svdvals(A)
        return S.amin(-1) / S.amax(-1) if p == -2 else S.amax(-1) / S.amin(-1)
    singular = slogdet(A)[0] == 0
    inverse = inv(where(singular[..., None, None], identity_like(A), A))
    return where(singular, inf, matrix_norm(A, p) * matrix_norm(inverse, p))
