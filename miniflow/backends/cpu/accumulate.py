"""Kernels that add to a few places of an array. In a compiled graph the array is mostly that of the result already."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.index import add_rows
from miniflow.backends.cpu.shape import start_from
from miniflow.backends.cpu.sparse import NO_ROW, group_rows
from miniflow.backends.registry import kernel


@kernel("cpu", in_place=(0,), half="native")
def slice_add(y: np.ndarray, total: np.ndarray, x: np.ndarray, *, index: tuple) -> None:
    start_from(y, total)
    place = y[index]
    np.add(place, x, out=place)


@kernel("cpu", in_place=(0,))
def embedding_add(y: np.ndarray, total: np.ndarray, dy: np.ndarray, indices: np.ndarray, *, padding_idx: int) -> None:
    """Sums of equal rows first: terms that are small beside the total would be lost one by one."""
    rows, sums = np.empty(indices.size, np.int64), np.empty((indices.size, dy.shape[-1]), dy.dtype)
    group_rows((rows, sums), dy, indices, padding_idx=padding_idx, rows=None)
    start_from(y, total)
    add_rows(y, rows, sums, NO_ROW)
