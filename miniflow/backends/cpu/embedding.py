"""Embedding kernels: copy rows of a table, and add rows into a table of zeros."""

from __future__ import annotations

import numba
import numpy as np
from numba import prange

from miniflow.backends.cpu.index import take
from miniflow.backends.cpu.loops import loop
from miniflow.backends.registry import kernel


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


@kernel("cpu", half="native")
def embedding(y: np.ndarray, indices: np.ndarray, weight: np.ndarray, *, padding_idx: int) -> None:
    take(y, weight, indices, 0)


@kernel("cpu")
def embedding_grad(dweight: np.ndarray, dy: np.ndarray, indices: np.ndarray, *, rows: int, padding_idx: int) -> None:
    dweight[...] = 0
    flat = np.ascontiguousarray(indices, np.int64).reshape(-1)
    terms = np.ascontiguousarray(dy).reshape(flat.size, dy.shape[-1])
    add_rows(terms, flat, padding_idx, dweight, numba.get_num_threads())
