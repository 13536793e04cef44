"""Embedding kernels: copy rows of a table, and add rows into a table of zeros."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.embedding import first_outside
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty, full
from miniflow.backends.cuda.index import places_in
from miniflow.backends.cuda.rows import over_rows
from miniflow.backends.registry import register
from miniflow.errors import IndexRangeError
from miniflow.kernels import embedding as kernels


@register("cuda", "Embedding", half="native")
def embedding(indices: DeviceArray, weight: DeviceArray, *, padding_idx: int) -> DeviceArray:
    flat = places_in("embedding", indices, weight.shape[0]).reshape(-1)
    _refuse_outside(flat.peek(), weight.shape[0])
    out = empty((*indices.shape, weight.shape[1]), weight.dtype, weight.device_index)
    picked = out.reshape(flat.size, weight.shape[1])
    over_rows(kernels.look_up, *picked.shape, bits(contiguous(weight)), flat, bits(picked))
    return out


def _refuse_outside(flat: np.ndarray | None, rows: int) -> None:
    """Raise for an index that is not a row of the table; on a GPU, where `flat` is None, `faults` does so later."""
    bad = first_outside(flat, rows) if flat is not None else -1
    if bad >= 0:
        raise IndexRangeError(
            f"embedding: got index {flat[bad]} at position {bad}; expected 0 to {rows - 1} for a table of {rows} rows: "
            "check the indices, or make num_embeddings larger"
        )


@register("cuda", "EmbeddingGrad")
def embedding_grad(dy: DeviceArray, indices: DeviceArray, *, rows: int, padding_idx: int) -> DeviceArray:
    dweight = full((rows, dy.shape[-1]), 0, dy.dtype, dy.device_index)
    flat = places_in("embedding", indices, rows).reshape(-1)
    terms = contiguous(dy).reshape(flat.size, dy.shape[-1])
    over_rows(kernels.add_to_table, *terms.shape, terms, flat, padding_idx, dweight)
    return dweight
