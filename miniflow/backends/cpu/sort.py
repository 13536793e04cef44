"""Sorting by NumPy, whose order of NaN is PyTorch's: larger than all numbers."""

from __future__ import annotations

import numpy as np

from miniflow.backends.registry import kernel


@kernel("cpu")
def argsort(y, x, *, dim, descending, count, stable):
    """A descending order is the ascending one of the reversed dim, read from the back: equal ones keep their order."""
    size = x.shape[dim]
    if not y.size:
        return
    if count < size:
        parts = np.argpartition(x, size - count if descending else count - 1, dim)
        candidates = np.take(parts, range(size - count, size) if descending else range(count), dim)
        x = np.take_along_axis(x, candidates, dim)
    order = np.argsort(np.flip(x, dim) if descending else x, dim, kind="stable" if stable else None)
    if descending:
        order = count - 1 - np.flip(order, dim)
    y[...] = np.take_along_axis(candidates, order, dim) if count < size else order


@kernel("cpu", returns=True)
def unique(x, *, dim, consecutive):
    rows = x.reshape(-1) if dim is None else np.moveaxis(x, dim, 0)
    if consecutive:
        new = np.ones(len(rows), bool)
        new[1:] = (rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim)))
        values, inverse = rows[new], new.cumsum() - 1
        counts = np.bincount(inverse)
    else:
        values, inverse, counts = np.unique(
            rows, return_inverse=True, return_counts=True, axis=None if dim is None else 0, equal_nan=False
        )
    inverse = inverse.reshape(x.shape if dim is None else -1)
    return values if dim is None else np.ascontiguousarray(np.moveaxis(values, 0, dim)), inverse, counts
