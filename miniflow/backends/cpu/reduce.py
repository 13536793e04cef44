"""Reduction kernels.

Sums of floats: NumPy adds pairwise along contiguous rows, but down columns one row after the other, where rounding
errors grow with the number of rows; and it leaves vector units idle. Here `total` splits the reduced dims into runs of
neighbours, each of which is a sum over the middle of (A, R, B) or over the end of (A, R). Compiled loops add blocks of
terms in the array's own dtype, side by side, and the sums of blocks in float64.
"""

from __future__ import annotations

import numba
import numpy as np

from miniflow.backends.geometry import Dims, dims_to_shape, reduced_count, reduced_dims, reduction_steps
from miniflow.backends.registry import kernel

SMALL = {True: 8192, False: 512}  # elements up to which NumPy is as fast, for sums over all dims and over some
ROW_BLOCK, COLUMN_BLOCK = 512, 128


def axes(x: np.ndarray, dim: Dims) -> Dims:
    """`dim` as NumPy's axis: () means all dims, and a 0-dim tensor has a dim 0 for PyTorch but not for NumPy."""
    return None if dim == () or x.ndim == 0 else dim


def total(y: np.ndarray, x: np.ndarray, dim: Dims, keepdim: bool = False) -> None:
    """y = the sum of x over `dim`, in the dtype of y."""
    if x.dtype.kind != "f" or x.size <= SMALL[dim is None]:
        np.add.reduce(x, axes(x, dim), y.dtype, y, keepdim)
        return
    x = np.ascontiguousarray(x)
    steps = reduction_steps(x.shape, dim)
    for step in steps:
        outer, reduced, inner = step
        sums = y if step is steps[-1] else np.empty(outer * inner, x.dtype)
        if inner == 1:
            _sum_rows(x.reshape(outer, reduced), sums.reshape(outer))
        else:
            _sum_columns(x.reshape(step), sums.reshape(outer, inner))
        x = sums


@numba.njit(cache=True, fastmath={"reassoc", "nsz", "contract"})
def _sum_rows(x, out):
    """(A, R) -> (A,)"""
    for a in range(x.shape[0]):
        sums = 0.0
        for start in range(0, x.shape[1], ROW_BLOCK):
            block = x[a, start : start + ROW_BLOCK]
            terms = out.dtype.type(0)
            for i in range(block.shape[0]):
                terms += block[i]
            sums += terms
        out[a] = sums


@numba.njit(cache=True)
def _sum_columns(x, out):
    """(A, R, B) -> (A, B)"""
    if x.shape[1] <= COLUMN_BLOCK:
        for a in range(x.shape[0]):
            out[a] = 0.0
            _add_rows_to(out[a], x[a])
        return
    terms = np.empty(x.shape[2], x.dtype)
    sums = np.empty(x.shape[2], np.float64)
    for a in range(x.shape[0]):
        sums[:] = 0.0
        for start in range(0, x.shape[1], COLUMN_BLOCK):
            terms[:] = 0.0
            _add_rows_to(terms, x[a, start : start + COLUMN_BLOCK])
            for j in range(x.shape[2]):
                sums[j] += terms[j]
        for j in range(x.shape[2]):
            out[a, j] = sums[j]


@numba.njit(cache=True, inline="always")
def _add_rows_to(out, rows):
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(out.shape[0]):
            out[j] += row[j]


@kernel("cpu")
def sum_(y: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    total(y, x, dim, keepdim)


@kernel("cpu")
def sum_to_shape(y: np.ndarray, x: np.ndarray, *, shape: tuple[int, ...]) -> None:
    dims = dims_to_shape(x, shape)
    if dims:
        total(y.reshape([n for d, n in enumerate(x.shape) if d not in dims]), x, dims)
    else:
        np.copyto(y, x)


@kernel("cpu")
def mean(y: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    total(y, x, dim, keepdim)
    np.true_divide(y, reduced_count(x.shape, dim) or np.nan, y)


@kernel("cpu")
def prod(y: np.ndarray, x: np.ndarray, *, dim: int | None, keepdim: bool) -> None:
    np.multiply.reduce(x, axes(x, dim), y.dtype, y, keepdim)


@kernel("cpu")
def prod_of_others(y: np.ndarray, x: np.ndarray) -> None:
    y[..., :1] = 1
    np.multiply.accumulate(x[..., :-1], -1, out=y[..., 1:])
    behind = np.ones_like(x)
    np.multiply.accumulate(x[..., :0:-1], -1, out=behind[..., -2::-1])
    y *= behind


@kernel("cpu", half="native")
def amax(y: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    np.maximum.reduce(x, axes(x, dim), None, y, keepdim)


@kernel("cpu", half="native")
def amin(y: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    np.minimum.reduce(x, axes(x, dim), None, y, keepdim)


@kernel("cpu")
def argmax(y: np.ndarray, x: np.ndarray, *, dim: int | None, keepdim: bool) -> None:
    np.argmax(x, axes(x, dim), y, keepdims=keepdim)


@kernel("cpu")
def argmin(y: np.ndarray, x: np.ndarray, *, dim: int | None, keepdim: bool) -> None:
    np.argmin(x, axes(x, dim), y, keepdims=keepdim)


@kernel("cpu")
def max_dim(out: tuple[np.ndarray, np.ndarray], x: np.ndarray, *, dim: int, keepdim: bool) -> None:
    amax(out[0], x, dim=dim, keepdim=keepdim)
    argmax(out[1], x, dim=dim, keepdim=keepdim)


@kernel("cpu")
def min_dim(out: tuple[np.ndarray, np.ndarray], x: np.ndarray, *, dim: int, keepdim: bool) -> None:
    amin(out[0], x, dim=dim, keepdim=keepdim)
    argmin(out[1], x, dim=dim, keepdim=keepdim)


@kernel("cpu")
def any_(y: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    np.logical_or.reduce(x, axes(x, dim), None, y, keepdim)


@kernel("cpu")
def all_(y: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    np.logical_and.reduce(x, axes(x, dim), None, y, keepdim)


@kernel("cpu")
def var(y: np.ndarray, x: np.ndarray, *, dim: Dims, correction: float, keepdim: bool) -> None:
    mean(y, x, dim=dim, keepdim=keepdim)
    count, reduced = reduced_count(x.shape, dim), reduced_dims(x.ndim, dim)
    deviation = x - y.reshape([1 if d in reduced else n for d, n in enumerate(x.shape)])
    deviation *= deviation
    total(y, deviation, dim, keepdim)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.true_divide(y, max(count - correction, 0) if count else np.nan, y)


@kernel("cpu")
def std(y: np.ndarray, x: np.ndarray, *, dim: Dims, correction: float, keepdim: bool) -> None:
    var(y, x, dim=dim, correction=correction, keepdim=keepdim)
    np.sqrt(y, y)


@kernel("cpu")
def logsumexp(y: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    largest = np.maximum.reduce(x, axes(x, dim), None, None, True, initial=-np.inf)
    largest = np.where(np.isfinite(largest), largest, 0).astype(x.dtype)
    with np.errstate(divide="ignore", over="ignore"):
        total(y, np.exp(x - largest), dim, keepdim)
        np.log(y, y)
    np.add(y, largest.reshape(y.shape), y)


@kernel("cpu")
def norm(y: np.ndarray, x: np.ndarray, *, p: float, dim: Dims, keepdim: bool) -> None:
    if p != 2:
        with np.errstate(divide="ignore", invalid="ignore"):
            total(y, np.abs(x) ** p, dim, keepdim)
            np.power(y, 1 / p, y)
        return
    if axes(x, dim) is None:
        flat = x.reshape(-1)
        y[...] = np.dot(flat, flat)
    else:
        total(y, x * x, dim, keepdim)
    np.sqrt(y, y)
