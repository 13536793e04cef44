"""Embedding kernels: rows taken from a table, and rows added into a table of zeros.

A word that comes ten times in a batch gets ten rows added to its own, by ten different blocks: atomics keep every sum
right, in an order that may differ from run to run.
"""

from __future__ import annotations

from miniflow.backends.cuda.index import add_rows, places_in, take_rows
from miniflow.backends.cuda.rows import around, as_bits
from miniflow.backends.registry import kernel


@kernel("cuda", half="native")
def embedding(y, indices, weight, *, padding_idx):
    rows = places_in("embedding", indices, weight.shape[0])
    take_rows(as_bits(weight, 0), rows, as_bits(y, 0, indices.ndim))


@kernel("cuda")
def embedding_grad(dweight, dy, indices, *, rows, padding_idx):
    dweight[...] = 0
    add_rows(around(dy, 0, indices.ndim), places_in("embedding", indices, rows), around(dweight, 0))
    if padding_idx >= 0:
        dweight[padding_idx] = 0
