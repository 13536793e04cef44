"""Indexing kernels. Reading is NumPy's; adding into rows that may repeat is one compiled loop, in their order.

An advanced index is one integer array `index` of shape (k, *B): `index[j]` holds the coordinates along dim `dims[j]`,
for each place in B. Dims that are not in `dims` are taken whole. B stands where the indexed dims stood if those are
neighbours, else in front (NumPy's and PyTorch's rule).
"""

from __future__ import annotations

from math import prod

import numba
import numpy as np

from miniflow.backends import memory
from miniflow.backends.registry import register, register_into


def key(index: np.ndarray, dims: tuple[int, ...]) -> tuple:
    """NumPy's index tuple: `index[j]` at dim `dims[j]`, full slices before and between."""
    parts = [slice(None)] * (dims[-1] + 1)
    for dim, coordinates in zip(dims, index, strict=True):
        parts[dim] = coordinates
    return tuple(parts)


@register("cpu", "Index", half="native")
def index(x: np.ndarray, index: np.ndarray, *, dims: tuple[int, ...]) -> np.ndarray:
    if len(dims) == 1 and x.size:
        return x.take(index[0], dims[0])
    return np.asarray(x[key(index, dims)])


@register("cpu", "IndexIntoZeros")
def index_into_zeros(y: np.ndarray, index: np.ndarray, *, dims: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    rest = [d for d in range(len(shape)) if d not in dims]
    rows = flat_rows(index, dims, shape)
    if dims[-1] - dims[0] == len(dims) - 1:  # neighbours: bring B to the front
        batch = range(dims[0], dims[0] + index.ndim - 1)
        y = y.transpose([*batch, *[d for d in range(y.ndim) if d not in batch]])
    out = np.zeros([shape[d] for d in dims] + [shape[d] for d in rest], y.dtype)
    inner = prod([shape[d] for d in rest])
    if rows.size and inner:
        add_rows(out.reshape(-1, inner), rows, y.reshape(-1, inner))
    return out.transpose(np.argsort([*dims, *rest]))


def flat_rows(index: np.ndarray, dims: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """The row-major position within the indexed dims alone that each place of B names, in one dimension."""
    rows = np.zeros(index[0].size, np.int64)
    for dim, coordinates in zip(dims, index, strict=True):
        coordinates = coordinates.reshape(-1)
        rows = rows * shape[dim] + np.where(coordinates < 0, coordinates + shape[dim], coordinates)
    return rows


@register("cpu", "SetItem", half="native")
def set_item(
    x: np.ndarray, value: np.ndarray, index: np.ndarray | None, *, basic: tuple, dims: tuple[int, ...]
) -> np.ndarray:
    out = x.copy()
    set_item_into(out, value, index, basic=basic, dims=dims)
    return out


@register_into("cpu", "SetItem", (0,), half="native")
def copy_and_set_item(
    out: np.ndarray,
    x: np.ndarray,
    value: np.ndarray,
    index: np.ndarray | None,
    *,
    basic: tuple,
    dims: tuple[int, ...],
) -> None:
    np.copyto(out, x)
    set_item_into(out, value, index, basic=basic, dims=dims)


@register("cpu", "SetItemInto", half="native")
def set_item_into(
    out: np.ndarray, value: np.ndarray, index: np.ndarray | None, *, basic: tuple, dims: tuple[int, ...]
) -> None:
    region = out[basic]
    region[... if index is None else key(index, dims)] = value


@register("cpu", "WrittenLast", half="native")
def written_last(index: np.ndarray, *, dims: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    rows = flat_rows(index, dims, shape)
    return last_of_each(rows, prod([shape[d] for d in dims])).reshape(index.shape[1:])


def last_of_each(rows: np.ndarray, count: int) -> np.ndarray:
    """For each i, whether no later entry of `rows` equals rows[i]; the rows are below `count`."""
    order = np.arange(rows.size)
    writer = np.empty(count, np.int64)
    writer[rows] = order
    return writer[rows] == order


@register("cpu", "Gather", half="native")
def gather(x: np.ndarray, index: np.ndarray, *, dim: int) -> np.ndarray:
    refuse_outside(index, x.shape[dim] if x.ndim else 1)
    if x.ndim == 0:
        return np.broadcast_to(x, index.shape).copy()
    return np.take_along_axis(_reached(x, index, dim), index, dim)


@register("cpu", "Scatter", half="native")
def scatter(x: np.ndarray, index: np.ndarray, src: np.ndarray, *, dim: int) -> np.ndarray:
    refuse_outside(index, x.shape[dim] if x.ndim else 1)
    out = x.copy()
    if x.ndim and index.ndim == x.ndim:
        np.put_along_axis(_reached(out, index, dim), index, src, dim)
    elif index.size:
        out.reshape(-1)[index.reshape(-1)] = src.reshape(-1)
    return out


@register("cpu", "ScatterAdd")
def scatter_add(
    x: np.ndarray | None, index: np.ndarray, src: np.ndarray, *, dim: int, shape: tuple[int, ...]
) -> np.ndarray:
    refuse_outside(index, shape[dim] if shape else 1)
    out = np.zeros(shape, src.dtype) if x is None else x.copy()
    if index.size:
        add_rows(out.reshape(-1, 1), flat_cells(index, dim, shape), src.reshape(-1, 1))
    return out


@register("cpu", "ScatteredLast", half="native")
def scattered_last(index: np.ndarray, *, dim: int, shape: tuple[int, ...]) -> np.ndarray:
    return last_of_each(flat_cells(index, dim, shape), prod(shape)).reshape(index.shape)


def flat_cells(index: np.ndarray, dim: int, shape: tuple[int, ...]) -> np.ndarray:
    """The row-major position in `shape` of (i, ..., index[i, ..., k], ..., j), the index at `dim`; in one dimension."""
    cells = np.zeros(index.shape, np.int64)
    for d, size in enumerate(shape):
        coordinates = index if d == dim else np.arange(index.shape[d]).reshape((-1,) + (1,) * (index.ndim - d - 1))
        cells = cells * size + coordinates
    return cells.reshape(-1)


@register("cpu", "IndexSelect", half="native")
def index_select(x: np.ndarray, index: np.ndarray, *, dim: int) -> np.ndarray:
    refuse_outside(index, x.shape[dim] if x.ndim else 1)
    return x.copy() if x.ndim == 0 else x.take(index.reshape(-1), dim)


@register("cpu", "IndexAdd")
def index_add(
    x: np.ndarray | None, index: np.ndarray, source: np.ndarray, *, dim: int, shape: tuple[int, ...]
) -> np.ndarray:
    rows = index.reshape(-1)
    refuse_outside(rows, shape[dim] if shape else 1)
    out = np.zeros(shape, source.dtype) if x is None else x.copy()
    outer, inner = prod(shape[:dim]), prod(shape[dim + 1 :])
    if outer != 1:
        rows = (np.arange(outer)[:, None] * shape[dim] + rows).reshape(-1)
    if out.size and source.size:
        add_rows(out.reshape(-1, inner), rows, source.reshape(-1, inner))
    return out


@register("cpu", "MaskedFill", half="native")
def masked_fill(x: np.ndarray, mask: np.ndarray, *, value: float) -> np.ndarray:
    if mask.dtype != np.bool_:
        raise TypeError("mask is not bool")
    out = x.copy() if mask.shape == x.shape else np.broadcast_to(x, np.broadcast_shapes(x.shape, mask.shape)).copy()
    np.copyto(out, np.asarray(value, x.dtype), where=mask)
    return out


@register_into("cpu", "MaskedFill", (0,), half="native")
def masked_fill_into(out: np.ndarray, x: np.ndarray, mask: np.ndarray, *, value: float) -> None:
    np.copyto(out, x)
    np.copyto(out, np.asarray(value, x.dtype), where=mask)


@register("cpu", "Nonzero", half="native")
def nonzero(x: np.ndarray) -> np.ndarray:
    return np.argwhere(x)


def refuse_outside(index: np.ndarray, size: int) -> None:
    """Raise for indices outside [0, size). Negative ones count from the end in NumPy, but not in PyTorch."""
    if index.size and (index.min() < 0 or index.max() >= size):
        raise IndexError("index out of range")


def _reached(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    """The part of `x` that an index of smaller extent in the other dims reaches."""
    if x.shape[:dim] == index.shape[:dim] and x.shape[dim + 1 :] == index.shape[dim + 1 :]:
        return x
    return x[tuple([slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape)])]


def add_rows(out: np.ndarray, rows: np.ndarray, source: np.ndarray) -> None:
    """out[rows[i]] += source[i] for i = 0, 1, 2 ...

    Args:
        out: (R, K), contiguous.
        rows: (M,), each in [0, R): nothing checks it below here.
        source: (M, K).
    """
    if out.dtype == np.bool_:
        np.logical_or.at(out, rows, source)
    else:
        _add_rows(out, np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(source))


@numba.njit(cache=True)
def _add_rows(out, rows, source):
    if out.shape[1] == 1:
        for i in range(rows.shape[0]):
            out[rows[i], 0] += source[i, 0]
        return
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(out.shape[1]):
            out[row, j] += source[i, j]


@register("cpu", "ViewScatter", half="native")
def view_scatter(x: np.ndarray, values: np.ndarray, *, steps: tuple) -> np.ndarray:
    out = x.copy()
    memory.write_through(out, values, steps)
    return out


@register_into("cpu", "ViewScatter", (0,), half="native")
def view_scatter_into(out: np.ndarray, x: np.ndarray, values: np.ndarray, *, steps: tuple) -> None:
    np.copyto(out, x)
    memory.write_through(out, values, steps)
