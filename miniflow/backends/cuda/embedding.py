"""Embedding kernels: rows taken from a table, and rows added into a table of zeros.

If a word occurs ten times in a batch, ten different blocks add to its row: atomics keep the sum right, in an order that
may differ from run to run.
"""

from __future__ import annotations

from miniflow.backends.cuda.index import add_rows, checked_index, take_rows
from miniflow.backends.cuda.rows import as_bits, as_box
from miniflow.backends.registry import kernel


@kernel("cuda", half="native")
def embedding(y, indices, weight, *, padding_idx):
    rows = checked_index("embedding", indices, weight.shape[0])
    take_rows(as_bits(weight, 0), rows, as_bits(y, 0, indices.ndim))


@kernel("cuda")
def embedding_grad(dweight, dy, indices, *, rows, padding_idx):
    dweight[...] = 0
    add_rows(as_box(dy, 0, indices.ndim), checked_index("embedding", indices, rows), as_box(dweight, 0))
    if padding_idx >= 0:
        dweight[padding_idx] = 0
