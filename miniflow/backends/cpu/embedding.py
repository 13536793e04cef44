"""Embedding kernels: copy rows of a table, and add rows into a table of zeros."""

from __future__ import annotations

import numba
import numpy as np
from numba import njit, prange

from miniflow.backends.cpu.loops import loop
from miniflow.backends.registry import register, register_into
from miniflow.errors import IndexRangeError


@njit(cache=True, nogil=True)
def first_outside(indices, rows):
    """The position of the first index that is not a row of the table; -1 if there is none."""
    for i in range(indices.size):
        if indices[i] < 0 or indices[i] >= rows:
            return i
    return -1


@loop()
def add_rows(dy, indices, padding, dweight, parts):
    """Part p of the table's rows gathers its own terms, in the order of the indices, however many threads there are."""
    for p in prange(parts):
        first, last = p * dweight.shape[0] // parts, (p + 1) * dweight.shape[0] // parts
        for i in range(indices.size):
            row = indices[i]
            if first <= row < last and row != padding:
                target, term = dweight[row], dy[i]
                for j in range(target.size):
                    target[j] += term[j]


@register("cpu", "Embedding", half="native")
def embedding(indices: np.ndarray, weight: np.ndarray, *, padding_idx: int) -> np.ndarray:
    out = np.empty((*indices.shape, weight.shape[1]), weight.dtype)
    embedding_into(out, indices, weight, padding_idx=padding_idx)
    return out


@register_into("cpu", "Embedding", half="native")
def embedding_into(out: np.ndarray, indices: np.ndarray, weight: np.ndarray, *, padding_idx: int) -> None:
    flat = np.ascontiguousarray(indices, np.int64).reshape(-1)
    bad = first_outside(flat, weight.shape[0])
    if bad >= 0:
        raise IndexRangeError(
            f"embedding: got index {flat[bad]} at position {bad}; expected 0 to {weight.shape[0] - 1} for a table of "
            f"{weight.shape[0]} rows: check the indices, or make num_embeddings larger"
        )
    if flat.size:
        weight.take(flat, 0, out=out.reshape(flat.size, weight.shape[1]), mode="wrap")  # "raise" would copy once more


@register("cpu", "EmbeddingGrad")
def embedding_grad(dy: np.ndarray, indices: np.ndarray, *, rows: int, padding_idx: int) -> np.ndarray:
    dweight = np.empty((rows, dy.shape[-1]), dy.dtype)
    embedding_grad_into(dweight, dy, indices, rows=rows, padding_idx=padding_idx)
    return dweight


@register_into("cpu", "EmbeddingGrad")
def embedding_grad_into(
    dweight: np.ndarray, dy: np.ndarray, indices: np.ndarray, *, rows: int, padding_idx: int
) -> None:
    width = dy.shape[-1]
    dweight[...] = 0
    flat = np.ascontiguousarray(indices, np.int64).reshape(-1)
    add_rows(np.ascontiguousarray(dy).reshape(flat.size, width), flat, padding_idx, dweight, numba.get_num_threads())
