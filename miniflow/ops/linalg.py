"""Linear algebra on LAPACK: determinants, inverses, systems of equations, factorizations. Public as `flow.linalg`.

Matrices are (..., rows, columns) in float32 or float64. On a cuda device they take the way through the host.

Gradients: Giles, "An extended collection of matrix derivative results", 2008; of qr and svd: Townsend,
"Differentiating the Singular Value Decomposition", 2016, and `torch.linalg`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import miniflow.backends.lapack  # noqa: F401  (registers the kernels)
from miniflow.dispatch import Op, call
from miniflow.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.creation import new_empty, ones_like
from miniflow.ops.join import cat
from miniflow.ops.method import method
from miniflow.ops.piecewise import where
from miniflow.ops.promotion import broadcast_shape
from miniflow.ops.shape import wrap_dim
from miniflow.sbp import letters, signatures
from miniflow.tensor import Tensor

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def matrices(op: str, A: Any, square: bool = True) -> tuple[tuple[int, ...], int, int]:
    """The batch dims, rows and columns of matrices.

    Raises:
        ShapeError: for fewer than 2 dims, or matrices that are not square.
        DTypeError: for a dtype that LAPACK does not have.
    """
    if len(A.shape) < 2 or square and A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"{op}: got shape {A.shape}; expected (..., {'n, n' if square else 'm, n'})")
    if A.dtype not in FLOATS:
        raise DTypeError(f"{op}: got {A.dtype}; expected float32 or float64: use .float()")
    return tuple(A.shape[:-2]), *A.shape[-2:]


class Factorization(Op):
    """An op of each matrix of a batch."""

    linear: tuple[list[int], ...] = ()  # see `sbp.signatures`

    @classmethod
    def sbp(cls, A, *others, ranks, **attrs):
        batch = letters(A.ndim - 2)
        results = cls.infer(A, *others, **attrs)
        shapes = [shape for shape, _ in (results if isinstance(results, list) else [results])]
        given, made = [batch + ".."] * (1 + len(others)), [batch + "." * (len(s) - len(batch)) for s in shapes]
        return signatures(given, made, linear=cls.linear)


def identity_like(A: Tensor) -> Tensor:
    return ones_like(A).tril().triu()


def over_gaps(X: Tensor, values: Tensor) -> Tensor:
    """x_ij / (v_j - v_i), and 0 on the diagonal."""
    eye = identity_like(X)
    return X / (values.unsqueeze(-2) - values.unsqueeze(-1) + eye) * (1.0 - eye)


class Det(Factorization):
    """y = det A; dA = dy y A^-T."""

    saves = ("A", "y")

    def infer(A):
        return matrices("det", A)[0], A.dtype

    def backward(ctx, dy):
        A, y = ctx.saved
        return (dy * y)[..., None, None] * inv(A).mT


class Slogdet(Factorization):
    """log |det A| and the sign of det A; dA = dy A^-T."""

    outputs = ("logabsdet", "sign")
    nondifferentiable = ("sign",)
    saves = ("A",)

    def infer(A):
        return [(matrices("slogdet", A)[0], A.dtype)] * 2

    def backward(ctx, dy):
        return dy[..., None, None] * inv(ctx.saved[0]).mT


class Inv(Factorization):
    """Y = A^-1; dA = -Y^T dY Y^T."""

    checks_values = "kernel"
    saves = ("y",)

    def infer(A):
        matrices("inv", A)
        return A.shape, A.dtype

    def backward(ctx, dy):
        y = ctx.saved[0].mT
        return -(y @ (dy @ y))


class Solve(Factorization):
    """X = A^-1 B; dB = A^-T dX, dA = -dB X^T."""

    checks_values = "kernel"
    linear = ([1],)
    saves = ("A", "y")

    def infer(A, B):
        batch, rows, _ = matrices("solve", A)
        if A.dtype != B.dtype:
            raise DTypeError(f"solve: got {A.dtype} and {B.dtype}; expected the same dtype: use .to")
        if tuple(B.shape[:-1]) != (*batch, rows):
            raise ShapeError(f"solve: got A {A.shape} and B {B.shape}; expected (..., n, n) and (..., n, k) or (n,)")
        return B.shape, B.dtype

    def backward(ctx, dy):
        A, y = ctx.saved
        dB = call(Solve, A.mT, dy)
        return -(dB @ y.mT), dB


class Pinv(Factorization):
    """Y of A Y A = A; dA = (I - A Y) dY^T Y Y^T + Y^T Y dY^T (I - Y A) - Y^T dY Y^T, where the rank stays."""

    saves = ("A", "y")

    def infer(A, *, atol, rtol):
        batch, rows, columns = matrices("pinv", A, square=False)
        return (*batch, columns, rows), A.dtype

    def backward(ctx, dy):
        A, Y = ctx.saved
        left, right = dy.mT @ (Y @ Y.mT), (Y.mT @ Y) @ dy.mT
        return left - A @ (Y @ left) + right - (right @ Y) @ A - Y.mT @ dy @ Y.mT


class Cholesky(Factorization):
    """A = L L^T; dA is the symmetric part of L^-T P L^-1, P the lower half of L^T dL with half of its diagonal."""

    checks_values = "kernel"
    saves = ("y",)

    def infer(A):
        matrices("cholesky", A)
        return A.shape, A.dtype

    def backward(ctx, dy):
        (L,) = ctx.saved
        P = L.mT @ dy
        P = (P.tril() + P.tril(-1)) * 0.5
        dA = call(Solve, L.mT, call(Solve, L.mT, P).mT)
        return (dA + dA.mT) * 0.5


class Eigh(Factorization):
    """A = V diag(w) V^T; dA = V (diag(dw) + (V^T dV)_ij / (w_j - w_i)) V^T."""

    outputs = ("w", "V")
    saves = ("w", "V")

    def infer(A, *, UPLO):
        batch, rows, _ = matrices("eigh", A)
        return [((*batch, rows), A.dtype), (A.shape, A.dtype)]

    def backward(ctx, dw, dV):
        w, V = ctx.saved
        inner = None if dw is None else identity_like(V) * dw.unsqueeze(-1)
        if dV is not None:
            rotation = over_gaps(V.mT @ dV, w)
            inner = rotation if inner is None else inner + rotation
        return V @ (inner @ V.mT)


class Qr(Factorization):
    """A = Q R; dA = (dQ + Q S) R^-T, S being symmetric with the lower triangle of R dR^T - dQ^T Q."""

    outputs = ("Q", "R")
    saves = ("Q", "R")

    def infer(A, *, mode):
        batch, rows, columns = matrices("qr", A, square=False)
        inner = rows if mode == "complete" else min(rows, columns)
        return [((*batch, rows, inner), A.dtype), ((*batch, inner, columns), A.dtype)]

    def backward(ctx, dQ, dR):
        Q, R = ctx.saved
        if R.shape[-1] != R.shape[-2]:
            raise AutogradError(f"qr: got R {tuple(R.shape)}; expected a square one: use a matrix with rows >= columns")
        M = R @ dR.mT if dQ is None else -(dQ.mT @ Q)
        M = M + R @ dR.mT if dQ is not None and dR is not None else M
        X = Q @ (M.tril() + M.tril(-1).mT)
        return call(Solve, R, (X if dQ is None else dQ + X).mT).mT


class Svd(Factorization):
    """A = U diag(S) Vh, with gradients as of the first min(m, n) columns of U and rows of Vh alone."""

    outputs = ("U", "S", "Vh")
    saves = ("U", "S", "Vh")

    def infer(A, *, full_matrices):
        batch, m, n = matrices("svd", A, square=False)
        k = min(m, n)
        left, right = (m, n) if full_matrices else (k, k)
        return [((*batch, m, left), A.dtype), ((*batch, k), A.dtype), ((*batch, right, n), A.dtype)]

    def backward(ctx, dU, dS, dVh):
        U, S, Vh = ctx.saved
        k = S.shape[-1]
        U, V = U.narrow(-1, 0, k), Vh.mT.narrow(-1, 0, k)
        columns = S.unsqueeze(-2)
        parts = []
        inner = [] if dS is None else [identity_like(V.mT @ V) * dS.unsqueeze(-1)]
        if dU is not None:
            dU = dU.narrow(-1, 0, k)
            P = U.mT @ dU
            inner.append(over_gaps(P - P.mT, S * S) * columns)
            parts.append(((dU - U @ P) / columns) @ V.mT)
        if dVh is not None:
            dV = dVh.mT.narrow(-1, 0, k)
            P = V.mT @ dV
            inner.append(over_gaps(P - P.mT, S * S) * S.unsqueeze(-1))
            parts.append(U @ ((dV - V @ P) / columns).mT)
        parts.append(U @ (functools.reduce(operator.add, inner) @ V.mT))
        return functools.reduce(operator.add, parts)


class SlogdetResult(NamedTuple):
    """What `slogdet` returns."""

    sign: Tensor
    logabsdet: Tensor


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QrResult(NamedTuple):
    """What `qr` returns."""

    Q: Tensor
    R: Tensor


class SvdResult(NamedTuple):
    """What `svd` returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@takes_tensors
def det(A: Tensor) -> Tensor:
    """The determinant of each matrix (..., n, n); it has a gradient where that is not 0.

    >>> import miniflow as flow
    >>> round(flow.linalg.det(flow.tensor([[1.0, 2.0], [3.0, 4.0]])).item(), 4)
    -2.0

    Source: `torch.linalg.det`.
    """
    return call(Det, A)


@takes_tensors
def slogdet(A: Tensor) -> SlogdetResult:
    """The sign and the logarithm of the absolute value of each determinant. `torch.linalg.slogdet`."""
    return SlogdetResult(*call(Slogdet, A)[::-1])


@method
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant: NaN where that is negative, -inf where it is 0. `torch.logdet`."""
    sign, value = slogdet(input)
    return where(sign > -0.5, value, np.nan)


@takes_tensors
def inv(A: Tensor) -> Tensor:
    """The inverse of each matrix (..., n, n).

    Raises:
        ArgumentError: for a singular matrix.

    Source: `torch.linalg.inv`.
    """
    return call(Inv, A)


@takes_tensors
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B, or X A = B.

    Args:
        A: (..., n, n).
        B: (..., n, k), or vectors (n,) or A.shape[:-1]; the batch dims are broadcast.
        left: whether A stands on the left.

    Raises:
        ShapeError, DTypeError: if shapes or dtypes do not fit together.
        ArgumentError: for a singular matrix.

    >>> import miniflow as flow
    >>> flow.linalg.solve(flow.tensor([[2.0, 0.0], [0.0, 4.0]]), flow.tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]

    Source: `torch.linalg.solve`.
    """
    is_vector = B.ndim == 1 or B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]
    if is_vector:
        return solve(A, B.unsqueeze(-1)).squeeze(-1) if left else solve(A.mT, B.unsqueeze(-1)).squeeze(-1)
    return _solve_matrices(A, B) if left else _solve_matrices(A.mT, B.mT).mT


def _solve_matrices(A: Tensor, B: Tensor) -> Tensor:
    batch = broadcast_shape("solve", A.shape[:-2], B.shape[:-2])
    return call(Solve, A.expand((*batch, *A.shape[-2:])), B.expand((*batch, *B.shape[-2:])))


@takes_tensors
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangular L with A = L L^T, or its transpose if `upper`; of A only the lower triangle is read.

    Raises:
        ArgumentError: for a matrix that is not positive definite.

    Source: `torch.linalg.cholesky`.
    """
    L = call(Cholesky, A)
    return L.mT if upper else L


@takes_tensors
def eigh(A: Tensor, UPLO: str = "L") -> EighResult:
    """Ascending eigenvalues (..., n) and eigenvectors, in columns, of symmetric matrices (..., n, n).

    The gradient of the eigenvectors is defined for distinct eigenvalues, and only for functions that do not depend on
    the signs of the vectors.

    Args:
        A: symmetric; one triangle is read.
        UPLO: "L" for the lower triangle, "U" for the upper one.

    Source: `torch.linalg.eigh`.
    """
    return EighResult(*call(Eigh, A, UPLO=UPLO))


@takes_tensors
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The ascending eigenvalues of symmetric matrices. `torch.linalg.eigvalsh`."""
    return eigh(A, UPLO)[0]


@takes_tensors
def qr(A: Tensor, mode: str = "reduced") -> QrResult:
    """Q with orthonormal columns and the upper triangular R, A = Q R.

    Args:
        A: (..., m, n); the gradient needs m >= n, and "reduced" unless m = n.
        mode: "reduced" for Q (..., m, min(m, n)), "complete" for Q (..., m, m), "r" for an empty Q.

    Raises:
        ArgumentError: for another mode.

    Source: `torch.linalg.qr`.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"qr: got mode={mode!r}; expected 'reduced', 'complete' or 'r'")
    Q, R = call(Qr, A, mode="reduced" if mode == "r" else mode)
    return QrResult(new_empty(A, 0) if mode == "r" else Q, R)


@takes_tensors
def svd(A: Tensor, full_matrices: bool = True) -> SvdResult:
    """The singular value decomposition A = U diag(S) Vh, S (..., min(m, n)) descending.

    The gradients of U and Vh are defined for distinct singular values other than 0, and for functions that do not
    depend on the signs of the vectors; columns of U and rows of Vh beyond min(m, n) have none.

    Args:
        A: (..., m, n).
        full_matrices: whether U is (..., m, m) and Vh (..., n, n); else (..., m, min(m, n)), (..., min(m, n), n).

    Source: `torch.linalg.svd`.
    """
    return SvdResult(*call(Svd, A, full_matrices=full_matrices))


@takes_tensors
def svdvals(A: Tensor) -> Tensor:
    """The descending singular values. `torch.linalg.svdvals`."""
    return svd(A, False)[1]


def largest(values: Tensor, keepdim: bool = False) -> Tensor:
    """The largest in the last dim of values that are not negative; 0 of none."""
    return values.amax(-1, keepdim) if values.shape[-1] else values.sum(-1, keepdim)


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


@takes_tensors
def pinv(A: Tensor, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    """The pseudoinverse V diag(1 / S) U^T, without the singular values that `matrix_rank` does not count.

    Its gradient is that among matrices of the same rank: Golub and Pereyra 1973, "The Differentiation of
    Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate".

    Source: `torch.linalg.pinv`.
    """
    return call(Pinv, A, atol=atol, rtol=rtol)


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
    batch, m, n = matrices("lstsq", A._array, square=False)
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
    return _solve_matrices(triangle, B) if left else _solve_matrices(triangle.mT, B.mT).mT


@takes_tensors
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A multiplied n times; the inverse for negative n, the identity for 0. `torch.linalg.matrix_power`."""
    matrices("matrix_power", A._array)
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
    matrices("matrix_exp", A._array)
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
            given = f"shapes {tuple(tensors[i].shape)} and {tuple(tensors[i + 1].shape)} at positions {i} and {i + 1}"
            raise ShapeError(f"multi_dot: got {given}; expected as many rows as columns before: transpose one")

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
