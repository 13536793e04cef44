"""Reductions: dims become (outer, reduced, inner), which `kernels/reduce.py` reduces in one launch or two.

Reduced dims that are neighbours count as one. Sums, products and extrema take one run of neighbours after the other;
for the rest, whose terms need to know the result they go into, reduced dims that lie apart are moved to the end.
"""

from __future__ import annotations

from math import prod as product
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty, full
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.cuda.rows import GRID_Y
from miniflow.backends.registry import KERNELS, register
from miniflow.kernels import reduce as kernels
from miniflow.kernels.reduce import THREADS, WARP, WARPS, Reduction
from miniflow.kernels.scan import CUMULATIVE_PRODUCT

Dims = int | tuple[int, ...] | None

WARP_WIDTH = 1024  # up to this a warp reduces a row, beyond a block
COLUMN_TERMS = 64  # rows that a thread adds up, one after the other
PARTS = 1024  # of a row, at most, as long as a thread then adds no more than 128 terms
SHORTEST_PART, LONGEST_PART = 4096, 128 * THREADS


def reduced_dims(x: DeviceArray, dim: Dims) -> tuple[int, ...]:
    """The dims to reduce, ascending; `dim` None and () stand for all."""
    if dim is None or dim == () or x.ndim == 0:
        return tuple(range(x.ndim))
    dims = (dim,) if isinstance(dim, int) else dim
    return tuple(sorted(d % x.ndim for d in dims))


def reduced_count(x: DeviceArray, dims: tuple[int, ...]) -> int:
    """How many elements of `x` go into each result."""
    return product([x.shape[d] for d in dims])


def result_shape(x: DeviceArray, dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """The shape that a reduction leaves."""
    return tuple([1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims])


def runs(dims: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbours among ascending dims, as [start, stop).

    >>> runs((0, 2, 3))
    [(0, 1), (2, 4)]
    """
    found: list[tuple[int, int]] = []
    for d in dims:
        if found and found[-1][1] == d:
            found[-1] = (found[-1][0], d + 1)
        else:
            found.append((d, d + 1))
    return found


def around_run(x: DeviceArray, start: int, stop: int) -> DeviceArray:
    """A contiguous array as (outer, reduced, inner)."""
    return x.reshape((product(x.shape[:start]), product(x.shape[start:stop]), product(x.shape[stop:])))


def as_number(value: Any, dtype: np.dtype) -> Any:
    """A kernel's number: in the dtype, but at least 32 bits wide, as shuffles are."""
    narrow = dtype.kind in "biu" and dtype.itemsize < 4
    return np.int32(value) if narrow else dtype.type(value)


def numbers(x: DeviceArray) -> DeviceArray:
    """`x` with bools as the numbers 0 and 1."""
    return bits(x) if x.dtype == np.bool_ else x


def fold(reduction: Reduction, x: DeviceArray, dims: tuple[int, ...], identity: Any, dtype: np.dtype) -> DeviceArray:
    """Reduce run after run, the last one first; the result has the dims that are kept."""
    x, number = contiguous(numbers(x)), as_number(identity, dtype)
    if not dims:
        return fold_run(reduction, x.reshape((x.size, 1, 1)), None, number, dtype).reshape(x.shape)
    for start, stop in reversed(runs(dims)):
        kept = x.shape[:start] + x.shape[stop:]
        x = fold_run(reduction, around_run(x, start, stop), None, number, dtype).reshape(kept)
    return x


def fold_terms(reduction: Reduction, x: DeviceArray, dims: tuple[int, ...], shift: DeviceArray | None) -> DeviceArray:
    """The sum of terms that read `shift`, which has the dims that are kept."""
    found = runs(dims)
    if len(found) > 1:
        kept = [d for d in range(x.ndim) if d not in dims]
        x = x.view(lambda a: a.transpose([*kept, *dims]))
        found = [(len(kept), x.ndim)]
    shape = tuple([n for d, n in enumerate(x.shape) if not found or not found[0][0] <= d < found[0][1]])
    x = contiguous(x)
    x = around_run(x, *found[0]) if found else x.reshape((x.size, 1, 1))
    shift = None if shift is None else shift.reshape(shift.size)
    return fold_run(reduction, x, shift, x.dtype.type(0), x.dtype).reshape(shape)


def fold_run(
    reduction: Reduction, x: DeviceArray, shift: DeviceArray | None, identity: Any, dtype: np.dtype
) -> DeviceArray:
    """(outer, reduced, inner) to (outer, 1, inner)."""
    while True:
        y = launch_once(reduction, x, shift, identity, dtype)
        if y.shape[1] == 1:
            return y
        reduction, x, shift = reduction.finish, y, None


def launch_once(
    reduction: Reduction, x: DeviceArray, shift: DeviceArray | None, identity: Any, dtype: np.dtype
) -> DeviceArray:
    """(outer, reduced, inner) to (outer, parts, inner)."""
    outer, reduced, inner = x.shape
    if inner != 1:
        return launch_columns(reduction, x, shift, identity, dtype)
    rows = x.reshape((outer, reduced))
    shift = rows if shift is None else shift  # no term reads it then
    if reduced <= WARP_WIDTH:
        y = empty((outer, 1, 1), dtype, x.device_index)
        launch(reduction.warp_rows, -(-outer // WARPS), THREADS, rows, shift, identity, y.reshape((outer,)))
        return y
    chunk = min(max(SHORTEST_PART, -(-reduced // PARTS)), LONGEST_PART)
    parts = -(-reduced // chunk)
    y = empty((outer, parts, 1), dtype, x.device_index)
    launch(reduction.block_rows, outer * parts, THREADS, rows, shift, identity, chunk, y.reshape((outer, parts)))
    return y


def launch_columns(
    reduction: Reduction, x: DeviceArray, shift: DeviceArray | None, identity: Any, dtype: np.dtype
) -> DeviceArray:
    """The same for inner > 1, or 0."""
    outer, reduced, inner = x.shape
    across = min(THREADS, 1 << max(inner - 1, 0).bit_length())
    down = 1 if inner >= WARP else THREADS // across
    chunk = COLUMN_TERMS * down
    parts = max(1, -(-reduced // chunk))
    y = empty((outer, parts, inner), dtype, x.device_index)
    arguments = x, x if shift is None else shift, identity, chunk, y
    if down == 1:
        launch(reduction.columns, column_grid(outer * parts, inner, across), across, *arguments)
    else:
        launch(reduction.narrow_columns, outer * parts, (across, down), *arguments)
    return y


def column_grid(groups: int, inner: int, threads: int) -> tuple[int, int, int]:
    """Blocks along x for the groups, along y, and beyond its limit along z, for the tiles of neighbouring columns.

    >>> column_grid(groups=5, inner=1000, threads=256)
    (5, 4, 1)
    """
    tiles = -(-inner // threads)
    y = min(tiles, GRID_Y)
    return groups, y, -(-tiles // max(y, 1))


def total(x: DeviceArray, dim: Dims, keepdim: bool) -> DeviceArray:
    """The sum over `dim`: in x's own dtype for floats, in int64 for integers and bool."""
    dims = reduced_dims(x, dim)
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
    return fold(kernels.SUM, x, dims, 0, dtype).reshape(result_shape(x, dims, keepdim))


def divide(y: DeviceArray, divisor: float) -> DeviceArray:
    """y / divisor, in place."""
    each(kernels.divide, y.size, y.reshape((y.size,)), y.dtype.type(divisor))
    return y


def square_root(y: DeviceArray) -> DeviceArray:
    """The square root of y, in place."""
    each(kernels.square_root, y.size, y.reshape((y.size,)))
    return y


@register("cuda", "Sum")
def sum_(x: DeviceArray, *, dim: Dims, keepdim: bool) -> DeviceArray:
    return total(x, dim, keepdim)


@register("cuda", "SumToShape")
def sum_to_shape(x: DeviceArray, *, shape: tuple[int, ...]) -> DeviceArray:
    lead = x.ndim - len(shape)
    dims = tuple([d for d in range(x.ndim) if d < lead or shape[d - lead] != x.shape[d]])
    return total(x, dims, False).reshape(shape) if dims else x.copy()


@register("cuda", "Mean")
def mean(x: DeviceArray, *, dim: Dims, keepdim: bool) -> DeviceArray:
    return divide(total(x, dim, keepdim), reduced_count(x, reduced_dims(x, dim)) or np.nan)


@register("cuda", "Prod")
def prod(x: DeviceArray, *, dim: int | None, keepdim: bool) -> DeviceArray:
    dims = reduced_dims(x, dim)
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
    return fold(kernels.PROD, x, dims, 1, dtype).reshape(result_shape(x, dims, keepdim))


@register("cuda", "ProdOfOthers")
def prod_of_others(x: DeviceArray) -> DeviceArray:
    rows = contiguous(x).reshape((-1, x.shape[-1]) if x.size else (0, 1))
    one = x.dtype.type(1)
    before, behind = (empty(rows.shape, x.dtype, x.device_index) for _ in range(2))
    launch(CUMULATIVE_PRODUCT.rows, rows.shape[0], THREADS, rows, one, True, False, before)
    launch(CUMULATIVE_PRODUCT.rows, rows.shape[0], THREADS, rows, one, True, True, behind)
    return KERNELS["cuda"]["Mul"](before, behind).reshape(x.shape)


def extremum(reduction: Reduction, x: DeviceArray, dim: Dims, keepdim: bool, end: int) -> DeviceArray:
    """The largest element, or the smallest; `end` is -1 or 1: where the elements begin that never win."""
    dims, dtype = reduced_dims(x, dim), numbers(x).dtype
    if dtype.kind == "f":
        identity = end * np.inf
    else:
        identity = np.iinfo(dtype).min if end < 0 else np.iinfo(dtype).max
    y = fold(reduction, x, dims, identity, dtype).reshape(result_shape(x, dims, keepdim))
    return y.view(lambda a: a.view(x.dtype))


@register("cuda", "Amax")
def amax(x: DeviceArray, *, dim: Dims, keepdim: bool) -> DeviceArray:
    return extremum(kernels.AMAX, x, dim, keepdim, -1)


@register("cuda", "Amin")
def amin(x: DeviceArray, *, dim: Dims, keepdim: bool) -> DeviceArray:
    return extremum(kernels.AMIN, x, dim, keepdim, 1)


def truth(reduction: Reduction, x: DeviceArray, dim: Dims, keepdim: bool, identity: int) -> DeviceArray:
    dims = reduced_dims(x, dim)
    y = fold(reduction, x, dims, identity, np.dtype(np.uint8)).reshape(result_shape(x, dims, keepdim))
    return y.view(lambda a: a.view(np.bool_))


@register("cuda", "Any")
def any_(x: DeviceArray, *, dim: Dims, keepdim: bool) -> DeviceArray:
    return truth(kernels.ANY, x, dim, keepdim, 0)


@register("cuda", "All")
def all_(x: DeviceArray, *, dim: Dims, keepdim: bool) -> DeviceArray:
    return truth(kernels.ALL, x, dim, keepdim, 1)


@register("cuda", "Var")
def var(x: DeviceArray, *, dim: Dims, correction: float, keepdim: bool) -> DeviceArray:
    dims = reduced_dims(x, dim)
    count = reduced_count(x, dims)
    center = divide(fold(kernels.SUM, x, dims, 0, x.dtype), count or np.nan)
    y = fold_terms(kernels.SQUARE_DEVIATIONS, x, dims, center)
    return divide(y, max(count - correction, 0) if count else np.nan).reshape(result_shape(x, dims, keepdim))


@register("cuda", "Std")
def std(x: DeviceArray, *, dim: Dims, correction: float, keepdim: bool) -> DeviceArray:
    return square_root(var(x, dim=dim, correction=correction, keepdim=keepdim))


@register("cuda", "Logsumexp")
def logsumexp(x: DeviceArray, *, dim: Dims, keepdim: bool) -> DeviceArray:
    dims = reduced_dims(x, dim)
    largest = fold(kernels.AMAX, x, dims, -np.inf, x.dtype)
    largest = largest.reshape((largest.size,))
    each(kernels.finite_or_zero, largest.size, largest)
    y = fold_terms(kernels.EXPONENTIALS, x, dims, largest)
    each(kernels.log_plus, y.size, y.reshape((y.size,)), largest)
    return y.reshape(result_shape(x, dims, keepdim))


@register("cuda", "Norm")
def norm(x: DeviceArray, *, p: float, dim: Dims, keepdim: bool) -> DeviceArray:
    dims = reduced_dims(x, dim)
    shape = result_shape(x, dims, keepdim)
    if p == 2:
        return square_root(fold_terms(kernels.SQUARES, x, dims, None)).reshape(shape)
    y = fold_terms(kernels.ABSOLUTE_POWERS, x, dims, full((1,), p, x.dtype, x.device_index))
    each(kernels.power, y.size, y.reshape((y.size,)), y.dtype.type(1 / p))
    return y.reshape(shape)
