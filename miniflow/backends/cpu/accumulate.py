"""Kernels that add to a few places of an array. In a compiled graph the array is mostly that of the result already."""

from __future__ import annotations

import numba
import numpy as np

from miniflow.backends.cpu.embedding import add_rows
from miniflow.backends.cpu.sparse import NO_ROW, group_rows
from miniflow.backends.registry import register, register_into


def start_from(total: np.ndarray, out: np.ndarray) -> None:
    """Let `out` hold `total`, if it is not the same memory."""
    if out is not total and out.ctypes.data != total.ctypes.data:
        np.copyto(out, total)


@register_into("cpu", "SliceAdd", in_place=(0,), half="native")
def slice_add_into(out: np.ndarray, total: np.ndarray, x: np.ndarray, *, index: tuple) -> None:
    start_from(total, out)
    place = out[index]
    np.add(place, x, out=place)


@register("cpu", "SliceAdd", half="native")
def slice_add(total: np.ndarray, x: np.ndarray, *, index: tuple) -> np.ndarray:
    out = total.copy()
    slice_add_into(out, out, x, index=index)
    return out


@register_into("cpu", "EmbeddingAdd", in_place=(0,))
def embedding_add_into(
    out: np.ndarray, total: np.ndarray, dy: np.ndarray, indices: np.ndarray, *, padding_idx: int
) -> None:
    """Sums of equal rows first: terms that are small beside the total would be lost one by one."""
    rows, sums = group_rows(dy, indices, padding_idx=padding_idx)
    start_from(total, out)
    add_rows(sums, rows, NO_ROW, out, numba.get_num_threads())


@register("cpu", "EmbeddingAdd")
def embedding_add(total: np.ndarray, dy: np.ndarray, indices: np.ndarray, *, padding_idx: int) -> np.ndarray:
    out = total.copy()
    embedding_add_into(out, out, dy, indices, padding_idx=padding_idx)
    return out
