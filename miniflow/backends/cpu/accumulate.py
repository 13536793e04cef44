"""A kernel that adds to a few rows of an array, which in a compiled graph mostly is the output itself."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.index import add_rows
from miniflow.backends.cpu.shape import start_from
from miniflow.backends.cpu.sparse import NO_ROW, group_rows
from miniflow.backends.registry import kernel


@kernel("cpu", in_place=(0,))
def embedding_add(y, total, dy, indices, *, padding_idx):
    """Terms of the same row are summed first: added one by one, small terms would be lost in a large total."""
    rows, sums = np.empty(indices.size, np.int64), np.empty((indices.size, dy.shape[-1]), dy.dtype)
    group_rows((rows, sums), dy, indices, padding_idx=padding_idx, rows=None)
    start_from(y, total)
    add_rows(y, rows, sums, NO_ROW)
