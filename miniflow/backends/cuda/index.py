"""Indexing kernels; see `backends/cpu/index.py` for what `index` and `dims` mean.

An index tensor becomes numbers of rows in an array seen as (outer, n, inner). Values written to one place twice follow
the CPU's rule, the last counts; values added to one place are added by atomics, so that the last bits of a float may
differ from run to run.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from miniflow.backends.cpu import index as cpu
from miniflow.backends.cuda import faults
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty, from_host, full
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.rows import around, as_bits, over_rows
from miniflow.backends.registry import register
from miniflow.kernels import gather as gathering
from miniflow.kernels import scatter as scattering

NARROW = {np.dtype(t): np.dtype(np.int32) for t in (np.bool_, np.uint8, np.int8, np.int16)}


def integers(index: DeviceArray) -> DeviceArray:
    """An index, contiguous, as int32 or int64: kernels are compiled for these only."""
    return contiguous(index if index.dtype in (np.int32, np.int64) else index.astype(np.int64))


def places_in(op: str, index: DeviceArray, size: int) -> DeviceArray:
    """An index along one dim of that size, as `integers`, of at least one dim."""
    index = _one_dim(integers(index))
    faults.watch(op, index, 0, size)
    return index


def summable(dtype: np.dtype) -> np.dtype:
    """The dtype in which atomics add what is to become `dtype`: GPUs have none for narrow integers."""
    return NARROW.get(dtype, dtype)


def cast(x: DeviceArray, dtype: np.dtype) -> DeviceArray:
    """`x` itself if it has that dtype, else a copy that has."""
    return x if x.dtype == dtype else x.astype(dtype)


def row_numbers(index: DeviceArray, sizes: list[int]) -> DeviceArray:
    """The row-major position within the indexed dims that each place of B names, flat. One dim alone is not touched:
    its negative coordinates count from the end in the kernels too."""
    coordinates = integers(index).reshape(len(sizes), -1)
    lines = [coordinates.view(lambda a, j=j: a[j]) for j in range(len(sizes))]
    for line, size in zip(lines, sizes, strict=True):
        faults.watch("getitem", line, -size, size)
    if len(lines) == 1:
        return lines[0]
    rows = full(lines[0].shape, 0, np.int64, index.device_index)
    for line, size in zip(lines, sizes, strict=True):
        each(gathering.join_coordinates, rows.size, line, size, rows)
    return rows


def neighbours(dims: tuple[int, ...]) -> bool:
    """Whether B stands in place of the indexed dims, not in front."""
    return dims[-1] - dims[0] == len(dims) - 1


def indexed_first(x: DeviceArray, dims: tuple[int, ...]) -> DeviceArray:
    """The view of `x` with the indexed dims in front."""
    return x.view(lambda a: a.transpose([*dims, *[d for d in range(a.ndim) if d not in dims]]))


@register("cuda", "Index", half="native")
def index(x: DeviceArray, index: DeviceArray, *, dims: tuple[int, ...]) -> DeviceArray:
    rows = row_numbers(index, [x.shape[d] for d in dims])
    if not neighbours(dims):
        x, dims = indexed_first(x, dims), tuple(range(len(dims)))
    first, behind = dims[0], dims[-1] + 1
    out = empty((*x.shape[:first], *index.shape[1:], *x.shape[behind:]), x.dtype, x.device_index)
    take(as_bits(x, first, len(dims)), rows, as_bits(out, first, index.ndim - 1))
    return out


def take(x: DeviceArray, rows: DeviceArray, out: DeviceArray) -> None:
    """out[o, k, i] = x[o, rows[k], i]."""
    over_rows(gathering.take_rows, out.shape[0] * out.shape[1], out.shape[2], x, rows, out)


@register("cuda", "IndexIntoZeros")
def index_into_zeros(
    y: DeviceArray, index: DeviceArray, *, dims: tuple[int, ...], shape: tuple[int, ...]
) -> DeviceArray:
    rows = row_numbers(index, [shape[d] for d in dims])
    order = [*dims, *[d for d in range(len(shape)) if d not in dims]]
    if neighbours(dims):
        out = full(shape, 0, summable(y.dtype), y.device_index)
        first = dims[0]
    else:
        out = full(tuple([shape[d] for d in order]), 0, summable(y.dtype), y.device_index)
        first = 0
    add(around(cast(y, out.dtype), first, index.ndim - 1), rows, around(out, first, len(dims)))
    out = cast(out, y.dtype)
    return out if neighbours(dims) else out.view(lambda a: a.transpose(np.argsort(order)))


def add(source: DeviceArray, rows: DeviceArray, out: DeviceArray) -> None:
    """out[o, rows[k], i] += source[o, k, i]."""
    over_rows(scattering.add_rows, source.shape[0] * source.shape[1], source.shape[2], source, rows, out)


@register("cuda", "SetItem", half="native")
def set_item(
    x: DeviceArray, value: DeviceArray, index: DeviceArray | None, *, basic: tuple, dims: tuple[int, ...]
) -> DeviceArray:
    out = x.copy()
    set_item_into(out, value, index, basic=basic, dims=dims)
    return out


@register("cuda", "SetItemInto", half="native")
def set_item_into(
    out: DeviceArray, value: DeviceArray, index: DeviceArray | None, *, basic: tuple, dims: tuple[int, ...]
) -> None:
    region = out.view(lambda a: a[basic])
    if index is None:
        copy_into(region, value)
        return
    rows = row_numbers(index, [region.shape[d] for d in dims])
    last = last_rows(rows, prod([region.shape[d] for d in dims]))
    if not neighbours(dims):
        region, dims = indexed_first(region, dims), tuple(range(len(dims)))
    first, behind = dims[0], dims[-1] + 1
    shape = (*region.shape[:first], *index.shape[1:], *region.shape[behind:])
    source = as_bits(value.view(lambda a: np.broadcast_to(a, shape)), first, index.ndim - 1)
    through_contiguous(region, lambda target: _put_rows(source, rows, last, as_bits(target, first, len(dims))))


def _put_rows(source: DeviceArray, rows: DeviceArray, last: DeviceArray, out: DeviceArray) -> None:
    over_rows(scattering.put_rows, source.shape[0] * source.shape[1], source.shape[2], source, rows, last, out)


def through_contiguous(region: DeviceArray, write: Callable[[DeviceArray], None]) -> None:
    """Let `write` change a region that need not be contiguous: where it is not, through a copy of it."""
    target = contiguous(region)
    write(target)
    if target is not region:
        copy_into(region, target)


def last_rows(rows: DeviceArray, count: int) -> DeviceArray:
    """For each row below `count`, the last position in `rows` that names it; -1 if none does."""
    last = full((count,), -1, np.int64, rows.device_index)
    each(scattering.claim_rows, rows.size, rows, last)
    return last


@register("cuda", "WrittenLast", half="native")
def written_last(index: DeviceArray, *, dims: tuple[int, ...], shape: tuple[int, ...]) -> DeviceArray:
    sizes = [shape[d] for d in dims]
    rows = row_numbers(index, sizes)
    out = empty(index.shape[1:], np.bool_, index.device_index)
    each(scattering.is_last_row, rows.size, rows, last_rows(rows, prod(sizes)), bits(out).reshape(-1))
    return out


@register("cuda", "IndexSelect", half="native")
def index_select(x: DeviceArray, index: DeviceArray, *, dim: int) -> DeviceArray:
    if x.ndim == 0:
        return x.copy()
    out = empty((*x.shape[:dim], index.size, *x.shape[dim + 1 :]), x.dtype, x.device_index)
    take(as_bits(x, dim), places_in("index_select", index, x.shape[dim]), as_bits(out, dim))
    return out


@register("cuda", "IndexAdd")
def index_add(
    x: DeviceArray | None, index: DeviceArray, source: DeviceArray, *, dim: int, shape: tuple[int, ...]
) -> DeviceArray:
    out = _start(x, source, shape)
    terms = cast(source, out.dtype)
    if not shape:  # one element, which all of `source` is added to
        terms, target = terms.reshape(1, -1, 1), out.reshape(1, 1, 1)
    else:
        terms, target = around(terms, dim), around(out, dim)
    add(terms, places_in("index_add", index, target.shape[1]), target)
    return cast(out, source.dtype)


def _start(x: DeviceArray | None, source: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """What is added to: a copy of `x`, or zeros."""
    dtype = summable(source.dtype)
    return full(shape, 0, dtype, source.device_index) if x is None else x.astype(dtype)


@register("cuda", "Gather", half="native")
def gather(x: DeviceArray, index: DeviceArray, *, dim: int) -> DeviceArray:
    out = empty(index.shape, x.dtype, x.device_index)
    x, target = _one_dim(x), _one_dim(out)
    picks = places_in("gather", index, x.shape[dim])
    source = as_bits(_reached(x, picks.shape, dim), dim)
    places = around(picks, dim)
    over_rows(
        gathering.gather_cells, places.shape[0] * places.shape[1], places.shape[2], source, places, as_bits(target, dim)
    )
    return out


def _one_dim(x: DeviceArray) -> DeviceArray:
    """A 0-dim array as one of 1 dim."""
    return x if x.ndim else x.reshape(1)


def _reached(x: DeviceArray, index_shape: tuple[int, ...], dim: int) -> DeviceArray:
    """The view of the part of `x` that an index of smaller extent in the other dims reaches."""
    return x.view(lambda a: a[tuple([slice(None) if d == dim else slice(n) for d, n in enumerate(index_shape)])])


@register("cuda", "Scatter", half="native")
def scatter(x: DeviceArray, index: DeviceArray, src: DeviceArray, *, dim: int) -> DeviceArray:
    out = x.copy()
    target = _one_dim(out)
    picks = places_in("scatter", index, target.shape[dim])
    places, last = last_cells(picks, dim, target.shape)
    source = as_bits(_one_dim(src), dim)

    def put(region: DeviceArray) -> None:
        rows, columns = places.shape[0] * places.shape[1], places.shape[2]
        over_rows(scattering.put_cells, rows, columns, source, places, last, as_bits(region, dim))

    through_contiguous(_reached(target, picks.shape, dim), put)
    return out


def last_cells(index: DeviceArray, dim: int, shape: tuple[int, ...]) -> tuple[DeviceArray, DeviceArray]:
    """`index` as (outer, k, inner), and for each cell that it can name (outer, n, inner) the last k that names it."""
    places = around(index, dim)
    last = full((places.shape[0], shape[dim], places.shape[2]), -1, np.int64, index.device_index)
    over_rows(scattering.claim_cells, places.shape[0] * places.shape[1], places.shape[2], places, last)
    return places, last


@register("cuda", "ScatteredLast", half="native")
def scattered_last(index: DeviceArray, *, dim: int, shape: tuple[int, ...]) -> DeviceArray:
    out = empty(index.shape, np.bool_, index.device_index)
    sizes = shape or (1,)
    places, last = last_cells(places_in("scatter", index, sizes[dim]), dim, sizes)
    marks = as_bits(_one_dim(out), dim)
    over_rows(scattering.is_last_cell, places.shape[0] * places.shape[1], places.shape[2], places, last, marks)
    return out


@register("cuda", "ScatterAdd")
def scatter_add(
    x: DeviceArray | None, index: DeviceArray, src: DeviceArray, *, dim: int, shape: tuple[int, ...]
) -> DeviceArray:
    out = _start(x, src, shape)
    picks = places_in("scatter_add", index, _one_dim(out).shape[dim])
    terms = _one_dim(cast(src, out.dtype))
    places, source = around(picks, dim), around(terms, dim)
    rows, columns = places.shape[0] * places.shape[1], places.shape[2]
    through_contiguous(
        _reached(_one_dim(out), picks.shape, dim),
        lambda region: over_rows(scattering.add_cells, rows, columns, source, places, around(region, dim)),
    )
    return cast(out, src.dtype)


@register("cuda", "Nonzero", half="native")
def nonzero(x: DeviceArray) -> DeviceArray:
    """The shape of the result depends on values, so that the host has to see them: it finds the places too."""
    return from_host(cpu.nonzero(x.numpy()), x.device_index)
