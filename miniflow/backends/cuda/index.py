"""Indexing kernels; see `backends/cpu/index.py` for what `index` and `dims` mean.

An index tensor is converted to row numbers of an array seen as (outer, n, inner). If an element is written twice, the
last value counts, as on the CPU; values are added by atomics, so that the last bits of a float may differ from run to
run.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from miniflow.backends.cpu import index as cpu
from miniflow.backends.cuda import faults
from miniflow.backends.cuda.array import DeviceArray, contiguous, from_host, full
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.pointwise import broadcast
from miniflow.backends.cuda.rows import as_bits, as_box, launch_over_box
from miniflow.backends.registry import kernel
from miniflow.kernels import gather as gathering
from miniflow.kernels import scatter as scattering

NARROW = {np.dtype(t): np.dtype(np.int32) for t in (np.bool_, np.uint8, np.int8, np.int16)}


def integers(index: DeviceArray) -> DeviceArray:
    """A contiguous index of int32 or int64: kernels are compiled for these only."""
    return contiguous(index, index.dtype if index.dtype in (np.int32, np.int64) else np.int64)


def checked_index(op: str, index: DeviceArray, size: int) -> DeviceArray:
    """A contiguous index along a dim of that size, with at least 1 dim, whose range the device checks."""
    index = _one_dim(integers(index))
    faults.watch(op, index, 0, size)
    return index


def _one_dim(x: DeviceArray) -> DeviceArray:
    """A 0-dim array as one of 1 dim."""
    return x if x.ndim else x.reshape(1)


def summable(dtype: np.dtype) -> np.dtype:
    """The dtype in which atomics add values of `dtype`: GPUs have none for narrow integers."""
    return NARROW.get(dtype, dtype)


def row_numbers(index: DeviceArray, sizes: list[int]) -> DeviceArray:
    """The row-major position within the indexed dims that each place of B names, flat. One dim alone is not touched:
    its negative coordinates count from the end in the kernels too."""
    coordinates = integers(index).reshape(len(sizes), -1)
    lines = [coordinates[j] for j in range(len(sizes))]
    for line, size in zip(lines, sizes, strict=True):
        faults.watch("getitem", line, -size, size)
    if len(lines) == 1:
        return lines[0]
    rows = full(lines[0].shape, 0, np.int64, index.device_index)
    for line, size in zip(lines, sizes, strict=True):
        each(gathering.join_coordinates, rows.size, line, size, rows)
    return rows


def in_place(x: DeviceArray, dims: tuple[int, ...]) -> tuple[DeviceArray, tuple[int, ...]]:
    """`x` and the indexed dims; unless they are neighbours, they are moved to the front."""
    if dims[-1] - dims[0] == len(dims) - 1:
        return x, dims
    others = [d for d in range(x.ndim) if d not in dims]
    return x.view(lambda a: a.transpose([*dims, *others])), tuple(range(len(dims)))


def take_rows(x: DeviceArray, rows: DeviceArray, out: DeviceArray) -> None:
    """out[o, k, i] = x[o, rows[k], i]."""
    launch_over_box(gathering.take_rows, out.shape, x, as_box(rows, 0, rows.ndim), out)


def add_rows(source: DeviceArray, rows: DeviceArray, out: DeviceArray) -> None:
    """out[o, rows[k], i] += source[o, k, i]."""
    launch_over_box(scattering.add_rows, source.shape, source, as_box(rows, 0, rows.ndim), out)


def through_contiguous(region: DeviceArray, write: Callable[[DeviceArray], None], dtype: Any = None) -> None:
    """Let `write` change a region of any strides: if it is not contiguous in `dtype`, through such a copy."""
    target = contiguous(region, dtype)
    write(target)
    if target is not region:
        copy_into(region, target)


def last_writer(cells: DeviceArray, outer: int, n: int, inner: int) -> DeviceArray:
    """For each cell that `cells` (outer, k, inner) can name, (outer, n, inner), the last k that names it; else -1."""
    last = full((outer, n, inner), -1, np.int64, cells.device_index)
    launch_over_box(scattering.claim, cells.shape, cells, last)
    return last


@kernel("cuda", half="native")
def index(y, x, index, *, dims):
    rows = row_numbers(index, [x.shape[d] for d in dims])
    x, dims = in_place(x, dims)
    take_rows(as_bits(x, dims[0], len(dims)), rows, as_bits(y, dims[0], index.ndim - 1))


@kernel("cuda")
def index_into_zeros(dx, y, index, *, dims, shape):
    rows = row_numbers(index, [shape[d] for d in dims])
    dx[...] = 0
    target, dims = in_place(dx, dims)
    dtype = summable(y.dtype)
    source = as_box(contiguous(y, dtype), dims[0], index.ndim - 1)
    through_contiguous(target, lambda out: add_rows(source, rows, as_box(out, dims[0], len(dims))), dtype)


@kernel("cuda", half="native")
def set_item(y, x, value, index, *, basic, dims):
    if y is not x:
        copy_into(y, x)
    region = y[basic]
    if index is None:
        copy_into(region, value)
        return
    sizes = [region.shape[d] for d in dims]
    rows = as_box(row_numbers(index, sizes), 0)
    last = last_writer(rows, 1, prod(sizes), 1)
    region, dims = in_place(region, dims)
    first, behind = dims[0], dims[-1] + 1
    shape = (*region.shape[:first], *index.shape[1:], *region.shape[behind:])
    source = as_bits(broadcast(value, shape), first, index.ndim - 1)

    def put(out: DeviceArray) -> None:
        launch_over_box(scattering.put_rows, source.shape, source, rows, last, as_bits(out, first, len(dims)))

    through_contiguous(region, put)


@kernel("cuda", half="native")
def gather(y, x, index, *, dim):
    x, y = _one_dim(x), _one_dim(y)
    indices = checked_index("gather", index, x.shape[dim])
    source, cells = as_bits(_indexed_part(x, indices.shape, dim), dim), as_box(indices, dim)
    launch_over_box(gathering.take_cells, cells.shape, source, cells, as_bits(y, dim))


def _indexed_part(x: DeviceArray, index_shape: tuple[int, ...], dim: int) -> DeviceArray:
    """The view of the part of `x` that an index of smaller extent in the other dims reaches."""
    return x[tuple([slice(None) if d == dim else slice(n) for d, n in enumerate(index_shape)])]


@kernel("cuda", half="native")
def scatter(y, x, index, src, *, dim):
    copy_into(y, x)
    y, source = _one_dim(y), as_bits(_one_dim(src), dim)
    indices = checked_index("scatter", index, y.shape[dim])
    cells = as_box(indices, dim)
    last = last_writer(cells, cells.shape[0], y.shape[dim], cells.shape[2])

    def put(out: DeviceArray) -> None:
        launch_over_box(scattering.put_cells, cells.shape, source, cells, last, as_bits(out, dim))

    through_contiguous(_indexed_part(y, indices.shape, dim), put)


@kernel("cuda")
def scatter_add(y, x, index, src, *, dim, shape):
    y[...] = 0 if x is None else x
    y, dtype = _one_dim(y), summable(y.dtype)
    indices = checked_index("scatter_add", index, y.shape[dim])
    cells, source = as_box(indices, dim), as_box(contiguous(_one_dim(src), dtype), dim)

    def add(out: DeviceArray) -> None:
        launch_over_box(scattering.add_cells, cells.shape, source, cells, as_box(out, dim))

    through_contiguous(_indexed_part(y, indices.shape, dim), add, dtype)


@kernel("cuda", returns=True)
def nonzero(x):
    """The shape of the result depends on values, so the host reads them, and finds the indices too."""
    return from_host(cpu.nonzero(x.numpy()), x.device_index)
