"""Reduction kernels.

Sums of floats: NumPy adds pairwise along contiguous rows, but down columns one row after the other, where rounding
errors grow with the number of rows; and it leaves vector units idle. Here `total` splits the reduced dims into runs of
neighbours, each of which is a sum over the middle of (A, R, B) or over the end of (A, R). Compiled loops add blocks of
terms in the array's own dtype, side by side, and the sums of blocks in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as product

import numba
import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from miniflow.backends.registry import register, register_into

SMALL = {True: 8192, False: 512}  # elements up to which NumPy is as fast, for sums over all dims and over some
ROW_BLOCK, COLUMN_BLOCK = 512, 128

Dims = int | tuple[int, ...] | None


def axes(x: np.ndarray, dim: Dims) -> Dims:
    """`dim` as NumPy's axis: () means all dims, and a 0-dim tensor has a dim 0 for PyTorch but not for NumPy."""
    if x.ndim == 0:
        if dim in (None, 0, -1, (), (0,), (-1,)):
            return None
        raise IndexError("no such dim")
    return None if dim == () else dim


def total(x: np.ndarray, dim: Dims, keepdim: bool, out: np.ndarray | None = None) -> np.ndarray:
    """The sum over `dim`, in `out` if given: in x's own dtype for floats, in int64 for integers and bool."""
    if type(dim) is int and x.ndim == 2 and not keepdim and x.dtype.kind == "f" and x.flags.c_contiguous:
        if dim == 0:  # as in the gradient of a bias
            out = np.empty(x.shape[1], x.dtype) if out is None else out
            _sum_columns(x[None], out[None])
            return out
        if dim in (1, -1):
            out = np.empty(x.shape[0], x.dtype) if out is None else out
            _sum_rows(x, out)
            return out
    axis = axes(x, dim)
    if x.dtype.kind != "f":
        return np.add.reduce(x, axis, np.int64, out, keepdim)
    if x.size <= SMALL[axis is None]:
        return np.add.reduce(x, axis, None, out, keepdim)
    return _sum_runs(np.ascontiguousarray(x), axis, keepdim, out)


def _sum_runs(x: np.ndarray, axis: Dims, keepdim: bool, out: np.ndarray | None) -> np.ndarray:
    reduced = range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim)
    shape = [1 if d in reduced else n for d, n in enumerate(x.shape) if keepdim or d not in reduced]
    sizes = list(x.shape)
    runs = _runs(reduced, x.ndim)
    for start, stop in runs:
        before, count, behind = product(sizes[:start]), product(sizes[start:stop]), product(sizes[stop:])
        last = (start, stop) == runs[-1]
        sums = np.empty(before * behind, x.dtype) if out is None or not last else out.reshape(-1)
        if behind == 1:
            _sum_rows(x.reshape(before, count), sums)
        else:
            _sum_columns(x.reshape(before, count, behind), sums.reshape(before, behind))
        x = sums
        sizes[start:stop] = []
    return x.reshape(shape)


def _runs(reduced: Sequence[int], ndim: int) -> list[tuple[int, int]]:
    """Neighbouring reduced dims as (start, stop), from the last to the first: dims before and behind stay in place."""
    runs = []
    stop = ndim
    while stop > 0:
        start = stop
        while start > 0 and start - 1 in reduced:
            start -= 1
        if start < stop:
            runs.append((start, stop))
        stop = start - 1
    return runs


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


def reduced_count(x: np.ndarray, dim: Dims) -> int:
    """How many elements of `x` go into each result."""
    axis = axes(x, dim)
    if axis is None:
        return x.size
    return x.shape[axis] if type(axis) is int else product([x.shape[d] for d in axis])


@register("cpu", "Sum")
def sum_(x: np.ndarray, *, dim: Dims, keepdim: bool) -> np.ndarray:
    return total(x, dim, keepdim)


@register("cpu", "SumToShape")
def sum_to_shape(x: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    lead = x.ndim - len(shape)
    dims = tuple([d for d in range(x.ndim) if d < lead or shape[d - lead] != x.shape[d]])
    return total(x, dims, False).reshape(shape) if dims else x.copy()


@register("cpu", "Mean")
def mean(x: np.ndarray, *, dim: Dims, keepdim: bool) -> np.ndarray:
    if x.dtype.kind != "f":
        raise TypeError("not a float")
    y, count = total(x, dim, keepdim), reduced_count(x, dim)
    return y / count if count else y * np.nan


@register_into("cpu", "Sum")
def sum_into(out: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    total(x, dim, keepdim, out)


@register_into("cpu", "SumToShape")
def sum_to_shape_into(out: np.ndarray, x: np.ndarray, *, shape: tuple[int, ...]) -> None:
    lead = x.ndim - len(shape)
    dims = tuple([d for d in range(x.ndim) if d < lead or shape[d - lead] != x.shape[d]])
    if dims:
        kept = [n for d, n in enumerate(x.shape) if d not in dims]
        total(x, dims, False, out.reshape(kept))
    else:
        np.copyto(out, x)


@register_into("cpu", "Mean")
def mean_into(out: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    total(x, dim, keepdim, out)
    count = reduced_count(x, dim)
    np.true_divide(out, count if count else np.nan, out=out)


@register_into("cpu", "Amax", half="native")
def amax_into(out: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    np.maximum.reduce(x, axes(x, dim), None, out, keepdim)


@register_into("cpu", "Amin", half="native")
def amin_into(out: np.ndarray, x: np.ndarray, *, dim: Dims, keepdim: bool) -> None:
    np.minimum.reduce(x, axes(x, dim), None, out, keepdim)


@register("cpu", "Prod")
def prod(x: np.ndarray, *, dim: int | None, keepdim: bool) -> np.ndarray:
    return np.multiply.reduce(x, axes(x, dim), x.dtype if x.dtype.kind == "f" else np.int64, None, keepdim)


@register("cpu", "ProdOfOthers")
def prod_of_others(x: np.ndarray) -> np.ndarray:
    before, behind = np.ones_like(x), np.ones_like(x)
    np.multiply.accumulate(x[..., :-1], -1, out=before[..., 1:])
    np.multiply.accumulate(x[..., :0:-1], -1, out=behind[..., -2::-1])
    return before * behind


@register("cpu", "Amax", half="native")
def amax(x: np.ndarray, *, dim: Dims, keepdim: bool) -> np.ndarray:
    return np.maximum.reduce(x, axes(x, dim), None, None, keepdim)


@register("cpu", "Amin", half="native")
def amin(x: np.ndarray, *, dim: Dims, keepdim: bool) -> np.ndarray:
    return np.minimum.reduce(x, axes(x, dim), None, None, keepdim)


@register("cpu", "Argmax")
def argmax(x: np.ndarray, *, dim: int | None, keepdim: bool) -> np.ndarray:
    return np.argmax(x, axes(x, dim), keepdims=keepdim)


@register("cpu", "Argmin")
def argmin(x: np.ndarray, *, dim: int | None, keepdim: bool) -> np.ndarray:
    return np.argmin(x, axes(x, dim), keepdims=keepdim)


@register("cpu", "MaxDim")
def max_dim(x: np.ndarray, *, dim: int, keepdim: bool) -> tuple[np.ndarray, np.ndarray]:
    axis = axes(x, dim)
    return np.maximum.reduce(x, axis, None, None, keepdim), np.argmax(x, axis, keepdims=keepdim)


@register("cpu", "MinDim")
def min_dim(x: np.ndarray, *, dim: int, keepdim: bool) -> tuple[np.ndarray, np.ndarray]:
    axis = axes(x, dim)
    return np.minimum.reduce(x, axis, None, None, keepdim), np.argmin(x, axis, keepdims=keepdim)


@register("cpu", "Any")
def any_(x: np.ndarray, *, dim: Dims, keepdim: bool) -> np.ndarray:
    return np.logical_or.reduce(x, axes(x, dim), None, None, keepdim)


@register("cpu", "All")
def all_(x: np.ndarray, *, dim: Dims, keepdim: bool) -> np.ndarray:
    return np.logical_and.reduce(x, axes(x, dim), None, None, keepdim)


@register("cpu", "Var")
def var(x: np.ndarray, *, dim: Dims, correction: float, keepdim: bool) -> np.ndarray:
    count = reduced_count(x, dim)
    degrees = max(count - correction, 0)
    if count == 0:
        return total(x, dim, keepdim) * np.nan
    deviation = x - total(x, dim, True) / count
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(total(deviation * deviation, dim, keepdim), x.dtype.type(degrees))


@register("cpu", "Std")
def std(x: np.ndarray, *, dim: Dims, correction: float, keepdim: bool) -> np.ndarray:
    return np.sqrt(var(x, dim=dim, correction=correction, keepdim=keepdim))


@register("cpu", "Logsumexp")
def logsumexp(x: np.ndarray, *, dim: Dims, keepdim: bool) -> np.ndarray:
    axis = axes(x, dim)
    largest = np.maximum.reduce(x, axis, None, None, True, initial=-np.inf)
    largest = np.where(np.isfinite(largest), largest, 0).astype(x.dtype)
    with np.errstate(divide="ignore", over="ignore"):
        y = np.log(total(np.exp(x - largest), dim, True)) + largest
    return y if keepdim else y.squeeze(axis) if x.ndim else y


@register("cpu", "Norm")
def norm(x: np.ndarray, *, p: float, dim: Dims, keepdim: bool) -> np.ndarray:
    if p == 2 and axes(x, dim) is None and not keepdim:
        flat = x.reshape(-1)
        return np.sqrt(np.dot(flat, flat))
    if p == 2:
        return np.sqrt(total(x * x, dim, keepdim))
    with np.errstate(divide="ignore", invalid="ignore"):
        return total(np.abs(x) ** p, dim, keepdim) ** x.dtype.type(1 / p)
