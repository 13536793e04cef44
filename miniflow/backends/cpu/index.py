"""Indexing kernels. Reading is NumPy's; adding into rows that may repeat is one compiled loop, in their order.

An advanced index is one integer array `index` of shape (k, *B): `index[j]` holds the coordinates along dim `dims[j]`,
for each place in B. Dims that are not in `dims` are taken whole. B stands where the indexed dims stood if those are
neighbours, else in front (NumPy's and PyTorch's rule).
"""

from __future__ import annotations

from math import prod

import numpy as np

from miniflow.backends.cpu.shape import start_from
from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel


def key(index: np.ndarray, dims: tuple[int, ...]) -> tuple:
    """NumPy's index tuple: `index[j]` at dim `dims[j]`, full slices before and between."""
    parts = [slice(None)] * (dims[-1] + 1)
    for dim, coordinates in zip(dims, index, strict=True):
        parts[dim] = coordinates
    return tuple(parts)


def take(y: np.ndarray, x: np.ndarray, index: np.ndarray, dim: int) -> None:
    """Slices along one dim; `mode="raise"` would go through a buffer, and the indices are known to be in range."""
    if y.size:
        x.take(index, dim, y, "wrap")


@kernel("cpu", half="native")
def index(y, x, index, *, dims):
    if len(dims) == 1:
        take(y, x, index[0], dims[0])
    else:
        y[...] = x[key(index, dims)]


@kernel("cpu")
def index_into_zeros(dx, y, index, *, dims, shape):
    dx[...] = 0
    if not y.size:
        return
    order = [*dims, *[d for d in range(len(shape)) if d not in dims]]
    if dims[-1] - dims[0] == len(dims) - 1:  # neighbours: bring B to the front
        batch = range(dims[0], dims[0] + index.ndim - 1)
        y = y.transpose([*batch, *[d for d in range(y.ndim) if d not in batch]])
    in_front = order == sorted(order)
    out = dx if in_front else np.zeros([shape[d] for d in order], y.dtype)
    inner = prod([shape[d] for d in order[len(dims) :]])
    add_rows(out.reshape(-1, inner), flat_rows(index, dims, shape), y.reshape(-1, inner))
    if not in_front:
        dx.transpose(order)[...] = out


def flat_rows(index: np.ndarray, dims: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """The row-major position within the indexed dims alone that each place of B names, in one dimension."""
    rows = np.zeros(index[0].size, np.int64)
    for dim, coordinates in zip(dims, index, strict=True):
        coordinates = coordinates.reshape(-1)
        rows = rows * shape[dim] + np.where(coordinates < 0, coordinates + shape[dim], coordinates)
    return rows


@kernel("cpu", in_place=(0,), half="native")
def set_item(y, x, value, index, *, basic, dims):
    start_from(y, x)
    y[basic][... if index is None else key(index, dims)] = value


@kernel("cpu", half="native")
def gather(y, x, index, *, dim):
    y[...] = np.take_along_axis(_indexed_part(x, index, dim), index, dim) if x.ndim else x


@kernel("cpu", in_place=(0,), half="native")
def scatter(y, x, index, src, *, dim):
    start_from(y, x)
    if x.ndim and index.ndim:
        np.put_along_axis(_indexed_part(y, index, dim), index, src, dim)
    elif index.size:
        y.reshape(-1)[index.reshape(-1)] = src.reshape(-1)


@kernel("cpu")
def scatter_add(y, x, index, src, *, dim, shape):
    y[...] = 0 if x is None else x
    add_rows(y.reshape(-1, 1), flat_cells(index, dim, shape), src.reshape(-1, 1))


def flat_cells(index: np.ndarray, dim: int, shape: tuple[int, ...]) -> np.ndarray:
    """The row-major position in `shape` of (i, ..., index[i, ..., k], ..., j), the index at `dim`; in one dimension."""
    cells = np.zeros(index.shape, np.int64)
    for d, size in enumerate(shape):
        coordinates = index if d == dim else np.arange(index.shape[d]).reshape((-1,) + (1,) * (index.ndim - d - 1))
        cells = cells * size + coordinates
    return cells.reshape(-1)


@kernel("cpu", returns=True)
def nonzero(x):
    return np.argwhere(x)


def _indexed_part(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    """The part of `x` that an index of smaller extent in the other dims reaches."""
    if x.shape[:dim] == index.shape[:dim] and x.shape[dim + 1 :] == index.shape[dim + 1 :]:
        return x
    return x[tuple([slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape)])]


def add_rows(out: np.ndarray, rows: np.ndarray, source: np.ndarray, ignored: int | None = None) -> None:
    """out[rows[i]] += source[i] for i = 0, 1, 2 ...

    Args:
        out: (R, K), contiguous.
        rows: (M,), each in [0, R): nothing checks it below here. Or `ignored`, a row that gets nothing, or none at all.
        source: (M, K).
    """
    if out.dtype == np.bool_:
        np.logical_or.at(out, rows, source)
    elif out.shape[1] == 1 and ignored is None:
        np.add.at(out.reshape(-1), rows, source.reshape(-1))
    else:
        source, rows = np.ascontiguousarray(source), np.ascontiguousarray(rows, np.int64)
        share(_add_rows, len(out), source.size, source, rows, -1 if ignored is None else ignored, out)


@unlocked()
def _add_rows(start, stop, source, rows, ignored, out):
    """The rows from start to stop gather their terms in the order of the source, however many threads there are."""
    for i in range(rows.size):
        row = rows[i]
        if start <= row < stop and row != ignored:
            for j in range(out.shape[1]):
                out[row, j] += source[i, j]


@kernel("cpu", half="native")
def embedding(y, indices, weight, *, padding_idx):
    take(y, weight, indices, 0)


@kernel("cpu")
def embedding_grad(dweight, dy, indices, *, rows, padding_idx):
    dweight[...] = 0
    add_rows(dweight, indices.reshape(-1), dy.reshape(indices.size, dy.shape[-1]), padding_idx)
