"""Linear algebra by LAPACK: determinants, inverses, linear systems, factorizations. Public as `flow.linalg`.

Matrices are (..., rows, columns) in float32 or float64. Those on a cuda device are copied to the host and back.

Gradients: Giles, "An extended collection of matrix derivative results", 2008; of qr and svd: Townsend,
"Differentiating the Singular Value Decomposition", 2016, and `torch.linalg`.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import numpy as np

import miniflow.backends.lapack  # noqa: F401  (registers the kernels)
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op, call
from miniflow.errors import ArgumentError, AutogradError, DTypeError, ShapeError
from miniflow.ops.creation import new_empty, ones_like
from miniflow.ops.promotion import broadcast_shape
from miniflow.sbp import letters, signatures
from miniflow.tensor import Tensor

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def check_matrices(op: str, A: Any, square: bool = True) -> tuple[tuple[int, ...], int, int]:
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
    """An op that computes each matrix of a batch by itself."""

    linear: tuple[list[int], ...] = ()  # see `sbp.signatures`

    @classmethod
    def sbp(cls, A, *others, ranks, **attrs):
        batch = letters(A.ndim - 2)
        results = cls.infer(A, *others, **attrs)
        shapes = [shape for shape, _ in (results if isinstance(results, list) else [results])]
        result_dims = [batch + "." * (len(shape) - len(batch)) for shape in shapes]
        return signatures([batch + ".."] * (1 + len(others)), result_dims, linear=cls.linear)


def identity_like(A: Tensor) -> Tensor:
    return ones_like(A).tril().triu()


def divide_by_gaps(X: Tensor, values: Tensor) -> Tensor:
    """x_ij / (v_j - v_i), and 0 on the diagonal."""
    eye = identity_like(X)
    return X / (values.unsqueeze(-2) - values.unsqueeze(-1) + eye) * (1.0 - eye)


class Det(Factorization):
    """y = det A; dA = dy y A^-T."""

    saves = ("A", "y")

    def infer(A):
        return check_matrices("det", A)[0], A.dtype

    def backward(ctx, dy):
        A, y = ctx.saved
        return (dy * y)[..., None, None] * inv(A).mT


class Slogdet(Factorization):
    """log |det A| and the sign of det A; dA = dy A^-T."""

    outputs = ("logabsdet", "sign")
    nondifferentiable = ("sign",)
    saves = ("A",)

    def infer(A):
        return [(check_matrices("slogdet", A)[0], A.dtype)] * 2

    def backward(ctx, dy):
        return dy[..., None, None] * inv(ctx.saved[0]).mT


class Inv(Factorization):
    """Y = A^-1; dA = -Y^T dY Y^T."""

    checks_values = "kernel"
    saves = ("y",)

    def infer(A):
        check_matrices("inv", A)
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
        batch, rows, _ = check_matrices("solve", A)
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
        batch, rows, columns = check_matrices("pinv", A, square=False)
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
        check_matrices("cholesky", A)
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
        batch, rows, _ = check_matrices("eigh", A)
        return [((*batch, rows), A.dtype), (A.shape, A.dtype)]

    def backward(ctx, dw, dV):
        w, V = ctx.saved
        inner = None if dw is None else identity_like(V) * dw.unsqueeze(-1)
        if dV is not None:
            rotation = divide_by_gaps(V.mT @ dV, w)
            inner = rotation if inner is None else inner + rotation
        return V @ (inner @ V.mT)


class Qr(Factorization):
    """A = Q R; dA = (dQ + Q S) R^-T, S being symmetric with the lower triangle of R dR^T - dQ^T Q."""

    outputs = ("Q", "R")
    saves = ("Q", "R")

    def infer(A, *, mode):
        batch, rows, columns = check_matrices("qr", A, square=False)
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
        batch, m, n = check_matrices("svd", A, square=False)
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
            inner.append(divide_by_gaps(P - P.mT, S * S) * columns)
            parts.append(((dU - U @ P) / columns) @ V.mT)
        if dVh is not None:
            dV = dVh.mT.narrow(-1, 0, k)
            P = V.mT @ dV
            inner.append(divide_by_gaps(P - P.mT, S * S) * S.unsqueeze(-1))
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
    return solve_matrices(A, B) if left else solve_matrices(A.mT, B.mT).mT


def solve_matrices(A: Tensor, B: Tensor) -> Tensor:
    """`solve` for matrices B, whose batches are broadcast with those of A."""
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
    """The largest of non-negative values along the last dim; 0 if it is empty."""
    return values.amax(-1, keepdim) if values.shape[-1] else values.sum(-1, keepdim)


@takes_tensors
def pinv(A: Tensor, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    """The pseudoinverse V diag(1 / S) U^T, without the singular values that `matrix_rank` does not count.

    Its gradient is that among matrices of the same rank: Golub and Pereyra 1973, "The Differentiation of
    Pseudo-Inverses and Nonlinear Least Squares Problems Whose Variables Separate".

    Source: `torch.linalg.pinv`.
    """
    return call(Pinv, A, atol=atol, rtol=rtol)
