"""Reduction kernels.

Sums of floats: NumPy adds pairwise along contiguous rows, but along columns one row after the other, so that rounding
errors grow with the number of rows, and without vector instructions. Here `total` splits the reduced dims into runs of
neighbours, each of which is a sum over the middle of (A, R, B) or over the end of (A, R). Compiled loops add blocks of
terms in the dtype of the array, and the sums of blocks in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from miniflow.backends.geometry import Dims, dims_to_shape, reduced_dims, reduction_steps
from miniflow.backends.registry import kernel

ROW_BLOCK, COLUMN_BLOCK = 512, 128


def axes(x: np.ndarray, dim: Dims) -> Dims:
    """`dim` as NumPy's axis: () means all dims, and a 0-dim tensor has a dim 0 for PyTorch but not for NumPy."""
    return None if dim == () or x.ndim == 0 else dim


def total(y: np.ndarray, x: np.ndarray, dim: Dims, divisor: float = 1.0) -> None:
    """y = the sum of x over `dim`, in the dtype of y; of floats divided by `divisor`."""
    if x.dtype.kind == "f":
        add_up(y, np.ascontiguousarray(x), reduction_steps(x.shape, dim), divisor)
    else:
        np.add.reduce(x, axes(x, dim), y.dtype, y, x.ndim == y.ndim)


def add_up(y: np.ndarray, x: np.ndarray, steps: tuple[tuple[int, int, int], ...], divisor: float) -> None:
    """y = the sum of a contiguous x, reduced in `steps`, divided by `divisor`."""
    if len(steps) > 1:
        outer, _, inner = steps[0]
        partial = np.empty(outer * inner, x.dtype)
        add_up(partial, x, steps[:1], 1.0)
        add_up(y, partial, steps[1:], divisor)
        return
    outer, reduced, inner = steps[0]
    if inner != 1:
        _sum_columns(x.reshape(steps[0]), y.reshape(outer, inner), divisor, np.empty(inner, x.dtype), np.empty(inner))
    elif x.shape == (outer, reduced) and y.ndim == 1:
        _sum_rows(x, y, divisor)
    else:
        _sum_rows(x.reshape(outer, reduced), y.reshape(outer), divisor)


def kept_shape(shape: tuple[int, ...], dim: Dims) -> list[int]:
    """The shape of the result of a reduction with keepdim."""
    dims = reduced_dims(len(shape), dim)
    return [1 if d in dims else n for d, n in enumerate(shape)]


def count(x: np.ndarray, y: np.ndarray) -> float:
    """The number of elements of `x` per element of `y`; NaN for none."""
    return x.size / (y.size or 1) or np.nan


@numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def _sum_rows(x, out, divisor):
    """(A, R) -> (A,)"""
    for a in range(x.shape[0]):
        sums = 0.0
        for start in range(0, x.shape[1], ROW_BLOCK):
            block = x[a, start : start + ROW_BLOCK]
            terms = out.dtype.type(0)
            for i in range(block.shape[0]):
                terms += block[i]
            sums += terms
        out[a] = sums / divisor


@numba.njit(cache=True, error_model="numpy", fastmath=False)
def _sum_columns(x, out, divisor, terms, sums):
    """(A, R, B) -> (A, B); `terms` and `sums` are room for B numbers."""
    if x.shape[1] <= COLUMN_BLOCK and divisor == 1.0:
        for a in range(x.shape[0]):
            out[a] = 0.0
            _add_rows_to(out[a], x[a])
        return
    for a in range(x.shape[0]):
        sums[:] = 0.0
        for start in range(0, x.shape[1], COLUMN_BLOCK):
            terms[:] = 0.0
            _add_rows_to(terms, x[a, start : start + COLUMN_BLOCK])
            for j in range(x.shape[2]):
                sums[j] += terms[j]
        for j in range(x.shape[2]):
            out[a, j] = sums[j] / divisor


@numba.njit(inline="always")
def _add_rows_to(out, rows):
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(out.shape[0]):
            out[j] += row[j]


@kernel("cpu")
def sum_(y, x, *, dim, keepdim):
    total(y, x, dim)


@kernel("cpu")
def sum_to_shape(y, x, *, shape):
    dims = dims_to_shape(x, shape)
    if dims:
        total(y.reshape([n for d, n in enumerate(x.shape) if d not in dims]), x, dims)
    else:
        np.copyto(y, x)


@kernel("cpu")
def mean(y, x, *, dim, keepdim):
    total(y, x, dim, count(x, y))


def by_numpy(name: str, *reduces: Callable) -> None:
    """Register a kernel that calls `reduce(x, axis, out=..., keepdims=...)` of NumPy for each output."""
    (first, *others) = reduces

    def run(out: Any, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
        for reduce, y in zip(reduces, out if others else (out,), strict=True):
            reduce(x, axes(x, dim), out=y, keepdims=keepdim)

    run.__name__ = name
    kernel("cpu")(run)


for name, *reduces in [
    ("prod", np.multiply.reduce),
    ("any", np.logical_or.reduce),
    ("all", np.logical_and.reduce),
    ("amax", np.maximum.reduce),
    ("amin", np.minimum.reduce),
    ("argmax", np.ndarray.argmax),
    ("argmin", np.ndarray.argmin),
    ("max_dim", np.maximum.reduce, np.ndarray.argmax),
    ("min_dim", np.minimum.reduce, np.ndarray.argmin),
]:
    by_numpy(name, *reduces)


@kernel("cpu")
def var(y, x, *, dim, correction, keepdim):
    averages = np.empty(kept_shape(x.shape, dim), x.dtype)
    total(averages, x, dim, count(x, averages))
    deviation = x - averages
    deviation *= deviation
    terms = count(x, y)
    total(y, deviation, dim, terms if terms != terms else max(terms - correction, 0.0))


@kernel("cpu")
def std(y, x, *, dim, correction, keepdim):
    var(y, x, dim=dim, correction=correction, keepdim=keepdim)
    np.sqrt(y, y)


@kernel("cpu")
def logsumexp(y, x, *, dim, keepdim):
    largest = np.maximum.reduce(x, axes(x, dim), None, None, True, initial=-np.inf)
    largest = np.where(np.isfinite(largest), largest, 0).astype(x.dtype)
    with np.errstate(divide="ignore", over="ignore"):
        total(y, np.exp(x - largest), dim)
        np.log(y, y)
    np.add(y, largest.reshape(y.shape), y)


@kernel("cpu")
def norm(y, x, *, p, dim, keepdim):
    if p != 2:
        with np.errstate(divide="ignore", invalid="ignore"):
            total(y, np.abs(x) ** p, dim)
            np.power(y, 1 / p, y)
        return
    if axes(x, dim) is None:
        flat = x.reshape(-1)
        y[...] = np.dot(flat, flat)
    else:
        total(y, x * x, dim)
    np.sqrt(y, y)
