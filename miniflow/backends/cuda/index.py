"""Indexing kernels; see `backends/cpu/index.py` for what `index` and `dims` mean.

An index tensor becomes numbers of rows in an array seen as (outer, n, inner). Values written to one place twice follow
the CPU's rule, the last counts; values added to one place are added by atomics, so that the last bits of a float may
differ from run to run.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from miniflow.backends.cpu import index as cpu
from miniflow.backends.cuda import faults
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, from_host, full
from miniflow.backends.cuda.copy import copy_into, fill_into
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.pointwise import broadcast
from miniflow.backends.cuda.rows import around, as_bits, over_rows
from miniflow.backends.registry import kernel
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


@kernel("cuda", half="native")
def index(y: DeviceArray, x: DeviceArray, index: DeviceArray, *, dims: tuple[int, ...]) -> None:
    rows = row_numbers(index, [x.shape[d] for d in dims])
    if not neighbours(dims):
        x, dims = indexed_first(x, dims), tuple(range(len(dims)))
    take(as_bits(x, dims[0], len(dims)), rows, as_bits(y, dims[0], index.ndim - 1))


def take(x: DeviceArray, rows: DeviceArray, out: DeviceArray) -> None:
    """out[o, k, i] = x[o, rows[k], i]."""
    over_cells(gathering.take_rows, out, x, around(rows, 0), out)


@kernel("cuda")
def index_into_zeros(dx, y, index, *, dims, shape) -> None:
    rows = row_numbers(index, [shape[d] for d in dims])
    target = dx
    if not neighbours(dims):
        target, dims = indexed_first(dx, dims), tuple(range(len(dims)))
    fill_into(dx, 0)

    def add(out: DeviceArray) -> None:
        add_rows(around(cast(y, out.dtype), dims[0], index.ndim - 1), rows, around(out, dims[0], len(dims)))

    through_contiguous(target, add, summable(y.dtype))


def add_rows(source: DeviceArray, rows: DeviceArray, out: DeviceArray) -> None:
    """out[o, rows[k], i] += source[o, k, i]."""
    over_cells(scattering.add_rows, source, source, around(rows, 0), out)


@kernel("cuda", half="native")
def set_item(y, x, value, index, *, basic, dims) -> None:
    if y is not x:
        copy_into(y, x)
    region = y.view(lambda a: a[basic])
    if index is None:
        copy_into(region, value)
        return
    rows = row_numbers(index, [region.shape[d] for d in dims])
    last = last_of(around(rows, 0), 1, prod([region.shape[d] for d in dims]), 1)
    if not neighbours(dims):
        region, dims = indexed_first(region, dims), tuple(range(len(dims)))
    first, behind = dims[0], dims[-1] + 1
    shape = (*region.shape[:first], *index.shape[1:], *region.shape[behind:])
    source = as_bits(broadcast(value, shape), first, index.ndim - 1)
    through_contiguous(region, lambda target: _put_rows(source, rows, last, as_bits(target, first, len(dims))))


def _put_rows(source: DeviceArray, rows: DeviceArray, last: DeviceArray, out: DeviceArray) -> None:
    over_cells(scattering.put_rows, source, source, around(rows, 0), last, out)


def through_contiguous(region: DeviceArray, write: Callable[[DeviceArray], None], dtype: Any = None) -> None:
    """Let `write` change a region of any strides: through a row-major copy of it, in `dtype`, where it is not so."""
    target = contiguous(region if dtype is None else cast(region, dtype))
    write(target)
    if target is not region:
        copy_into(region, target)


def last_of(places: DeviceArray, outer: int, n: int, inner: int) -> DeviceArray:
    """For each cell that `places` (outer, k, inner) can name, (outer, n, inner), the last k that names it; else -1."""
    last = full((outer, n, inner), -1, np.int64, places.device_index)
    over_cells(scattering.claim, places, places, last)
    return last


@kernel("cuda", half="native")
def written_last(y: DeviceArray, index: DeviceArray, *, dims: tuple[int, ...], shape: tuple[int, ...]) -> None:
    sizes = [shape[d] for d in dims]
    rows = around(row_numbers(index, sizes), 0)
    over_cells(scattering.is_last, rows, rows, last_of(rows, 1, prod(sizes), 1), bits(y).reshape(rows.shape))


def start_from(y: DeviceArray, x: DeviceArray | None) -> None:
    """Let `y` hold `x`, or zeros."""
    if x is None:
        fill_into(y, 0)
    else:
        copy_into(y, x)


@kernel("cuda", half="native")
def gather(y: DeviceArray, x: DeviceArray, index: DeviceArray, *, dim: int) -> None:
    x, y = _one_dim(x), _one_dim(y)
    picks = places_in("gather", index, x.shape[dim])
    source, places = as_bits(_reached(x, picks.shape, dim), dim), around(picks, dim)
    over_cells(gathering.take_cells, places, source, places, as_bits(y, dim))


def _one_dim(x: DeviceArray) -> DeviceArray:
    """A 0-dim array as one of 1 dim."""
    return x if x.ndim else x.reshape(1)


def _reached(x: DeviceArray, index_shape: tuple[int, ...], dim: int) -> DeviceArray:
    """The view of the part of `x` that an index of smaller extent in the other dims reaches."""
    return x.view(lambda a: a[tuple([slice(None) if d == dim else slice(n) for d, n in enumerate(index_shape)])])


def over_cells(kernel: Any, cells: DeviceArray, *arrays: DeviceArray) -> None:
    """Launch a kernel with a thread for each element of `cells` (outer, k, inner)."""
    over_rows(kernel, cells.shape[0] * cells.shape[1], cells.shape[2], *arrays)


@kernel("cuda", half="native")
def scatter(y: DeviceArray, x: DeviceArray, index: DeviceArray, src: DeviceArray, *, dim: int) -> None:
    copy_into(y, x)
    y, src = _one_dim(y), _one_dim(src)
    picks = places_in("scatter", index, y.shape[dim])
    places = around(picks, dim)
    last = last_of(places, places.shape[0], y.shape[dim], places.shape[2])
    source = as_bits(src, dim)

    def put(out: DeviceArray) -> None:
        over_cells(scattering.put_cells, places, source, places, last, as_bits(out, dim))

    through_contiguous(_reached(y, picks.shape, dim), put)


@kernel("cuda", half="native")
def scattered_last(y: DeviceArray, index: DeviceArray, *, dim: int, shape: tuple[int, ...]) -> None:
    size = (shape or (1,))[dim]
    places = around(places_in("scatter", index, size), dim)
    last = last_of(places, places.shape[0], size, places.shape[2])
    over_cells(scattering.is_last, places, places, last, as_bits(_one_dim(y), dim))


@kernel("cuda")
def scatter_add(y, x, index, src, *, dim, shape) -> None:
    start_from(y, x)
    y, src = _one_dim(y), _one_dim(src)
    picks = places_in("scatter_add", index, y.shape[dim])
    places = around(picks, dim)

    def add(out: DeviceArray) -> None:
        over_cells(scattering.add_cells, places, around(cast(src, out.dtype), dim), places, around(out, dim))

    through_contiguous(_reached(y, picks.shape, dim), add, summable(y.dtype))


@kernel("cuda", returns=True)
def nonzero(x: DeviceArray) -> DeviceArray:
    """The shape of the result depends on values, so that the host has to see them: it finds the places too."""
    return from_host(cpu.nonzero(x.numpy()), x.device_index)
