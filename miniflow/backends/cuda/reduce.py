"""Reductions: dims become (outer, reduced, inner), which `kernels/reduce.py` reduces in one launch or two.

Reduced dims that are neighbours count as one, and one run of neighbours is reduced after the other; where the terms
need to know the result they go into, reduced dims that lie apart are moved to the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty, full
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.cuda.pointwise import pointwise
from miniflow.backends.geometry import Dims, dims_to_shape, reduced_count, reduced_dims, reduction_steps
from miniflow.backends.registry import kernel
from miniflow.kernels import reduce as kernels
from miniflow.kernels.reduce import THREADS, WARP, WARPS, Reduction

WARP_WIDTH = 1024  # up to this a warp reduces a row, beyond a block
COLUMN_TERMS = 64  # rows that a thread adds up, one after the other
PARTS = 1024  # of a row, at most, as long as a thread then adds no more than 128 terms
SHORTEST_PART, LONGEST_PART = 4096, 128 * THREADS


def as_number(value: Any, dtype: np.dtype) -> Any:
    """A kernel's number: in the dtype, but at least 32 bits wide, as shuffles are."""
    narrow = dtype.kind in "biu" and dtype.itemsize < 4
    return np.int32(value) if narrow else dtype.type(value)


def numbers(x: DeviceArray) -> DeviceArray:
    """`x` with bools as the numbers 0 and 1."""
    return bits(x) if x.dtype == np.bool_ else x


def fold(
    reduction: Reduction, y: DeviceArray, x: DeviceArray, dim: Dims, identity: Any = 0, shift: DeviceArray | None = None
) -> None:
    """Reduce `x` over `dim`, one run of neighbouring dims after the other, into `y`.

    Args:
        reduction: the kernels.
        y: row-major.
        x: of any layout.
        dim: the dims to reduce.
        identity: what the result of no elements is.
        shift: one number for each result, for terms that read it.
    """
    y, x = numbers(y), numbers(x)
    steps = reduction_steps(x.shape, dim)
    if shift is not None and len(steps) > 1:
        dims = reduced_dims(x.ndim, dim)
        other_dims = [d for d in range(x.ndim) if d not in dims]
        x, steps = x.view(lambda a: a.transpose([*other_dims, *dims])), ((y.size, reduced_count(x.shape, dim), 1),)
    x, number = contiguous(x), as_number(identity, y.dtype)
    for step in steps:
        outer, _, inner = step
        out = y if step is steps[-1] else empty((outer * inner,), y.dtype, x.device_index)
        fold_run(reduction, out.reshape((outer, 1, inner)), x.reshape(step), shift, number)
        reduction, x, shift = reduction.finish, out, None


def fold_run(reduction: Reduction, y: DeviceArray, x: DeviceArray, shift: DeviceArray | None, identity: Any) -> None:
    """(outer, reduced, inner) into (outer, 1, inner): in one launch, or in parts which a second one reduces."""
    outer, reduced, inner = x.shape
    if y.size == 0:
        return
    arguments = (x.reshape(-1) if shift is None else shift.reshape(-1)), identity  # without `shift` no term reads it
    if inner == 1 and reduced <= WARP_WIDTH:
        launch(reduction.warp_rows, -(-outer // WARPS), THREADS, x.reshape((outer, reduced)), *arguments, y.reshape(-1))
        return
    across = min(THREADS, 1 << (inner - 1).bit_length())
    down = 1 if inner >= WARP else THREADS // across
    chunk = COLUMN_TERMS * down if inner > 1 else min(max(SHORTEST_PART, -(-reduced // PARTS)), LONGEST_PART)
    parts = max(1, -(-reduced // chunk))
    out = y if parts == 1 else empty((outer, parts, inner), y.dtype, y.device_index)
    if inner == 1:
        rows, results = x.reshape((outer, reduced)), out.reshape((outer, parts))
        launch(reduction.block_rows, outer * parts, THREADS, rows, *arguments, chunk, results)
    elif down == 1:
        launch(reduction.columns, outer * parts * -(-inner // across), across, x, *arguments, chunk, out)
    else:
        launch(reduction.narrow_columns, outer * parts, (across, down), x, *arguments, chunk, out)
    if parts > 1:
        fold_run(reduction.finish, y, out, None, identity)


def total(y: DeviceArray, x: DeviceArray, dim: Dims) -> None:
    """y = the sum of x over `dim`, in the dtype of y."""
    fold(kernels.SUM, y, x, dim)


@kernel("cuda")
def sum_(y, x, *, dim, keepdim):
    total(y, x, dim)


@kernel("cuda")
def sum_to_shape(y, x, *, shape):
    dims = dims_to_shape(x, shape)
    if dims:
        total(y, x, dims)
    else:
        copy_into(y, x)


@kernel("cuda")
def mean(y, x, *, dim, keepdim):
    total(y, x, dim)
    pointwise("div", y, y, reduced_count(x.shape, dim) or np.nan)


@kernel("cuda")
def prod(y, x, *, dim, keepdim):
    fold(kernels.PROD, y, x, dim, 1)


def extremum(reduction: Reduction, y: DeviceArray, x: DeviceArray, dim: Dims, end: int) -> None:
    """The largest element, or the smallest; `end` is -1 or 1, see `end_of`."""
    fold(reduction, y, x, dim, end_of(numbers(x).dtype, end))


def end_of(dtype: np.dtype, end: int) -> Any:
    """The lowest number of a dtype for -1, the largest for 1: the identity of a maximum, of a minimum."""
    if dtype.kind == "f":
        return end * np.inf
    return np.iinfo(dtype).min if end < 0 else np.iinfo(dtype).max


@kernel("cuda")
def amax(y, x, *, dim, keepdim):
    extremum(kernels.AMAX, y, x, dim, -1)


@kernel("cuda")
def amin(y, x, *, dim, keepdim):
    extremum(kernels.AMIN, y, x, dim, 1)


@kernel("cuda")
def any_(y, x, *, dim, keepdim):
    fold(kernels.ANY, y, x, dim, 0)


@kernel("cuda")
def all_(y, x, *, dim, keepdim):
    fold(kernels.ALL, y, x, dim, 1)


@kernel("cuda")
def var(y, x, *, dim, correction, keepdim):
    count, center = reduced_count(x.shape, dim), empty(y.shape, y.dtype, y.device_index)
    mean(center, x, dim=dim, keepdim=keepdim)
    fold(kernels.SQUARE_DEVIATIONS, y, x, dim, 0, center)
    pointwise("div", y, y, max(count - correction, 0) if count else np.nan)


@kernel("cuda")
def std(y, x, *, dim, correction, keepdim):
    var(y, x, dim=dim, correction=correction, keepdim=keepdim)
    pointwise("sqrt", y, y)


@kernel("cuda")
def logsumexp(y, x, *, dim, keepdim):
    largest = empty((y.size,), y.dtype, y.device_index)
    extremum(kernels.AMAX, largest, x, dim, -1)
    each(kernels.finite_or_zero, largest.size, largest)
    fold(kernels.EXPONENTIALS, y, x, dim, 0, largest)
    pointwise("log", y, y)
    pointwise("add", y, y, largest.reshape(y.shape))


@kernel("cuda")
def norm(y, x, *, p, dim, keepdim):
    if p == 2:
        fold(kernels.SQUARES, y, x, dim)
        pointwise("sqrt", y, y)
        return
    fold(kernels.ABSOLUTE_POWERS, y, x, dim, 0, full((1,), p, x.dtype, x.device_index))
    pointwise("pow", y, y, 1 / p)
