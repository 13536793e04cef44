"""Sums whose second term is zero except in a few rows, for compiled graphs: only those rows are touched.

In eager mode the gradient of a lookup is an array mostly of zeros, which is added to another gradient.
"""

from __future__ import annotations

from miniflow.dispatch.dispatcher import Op
from miniflow.ops.views import check_in_range


class EmbeddingAdd(Op):
    """y = total with dy[i] added to row indices[i], but for the padding row: total + EmbeddingGrad(dy, indices)."""

    made_by_passes = True
    checks_values = "infer"

    def infer(total, dy, indices, *, padding_idx):
        check_in_range("embedding_add", indices, 0, total.shape)
        return total.shape, total.dtype
