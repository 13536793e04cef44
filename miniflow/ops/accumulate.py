"""Sums whose second term is zero except at a few indices, for compiled graphs: only those elements are touched.

Eager mode adds an array full of zeros, the gradient of a slice or of a lookup, to another gradient.
"""

from __future__ import annotations

from miniflow.dispatch import Op
from miniflow.errors import ShapeError, refusal
from miniflow.ops.slice import check_in_range, sliced_shape


class SliceAdd(Op):
    """y = total with x added to total[index]: total + SliceIntoZeros(x)."""

    made_by_passes = True

    def infer(total, x, *, index):
        place = sliced_shape("slice_add", total.shape, index)
        if place != x.shape or total.dtype != x.dtype:
            raise ShapeError(f"slice_add: got {x.shape} of {x.dtype}; expected {place} of {total.dtype}")
        return total.shape, total.dtype


class EmbeddingAdd(Op):
    """y = total with dy[i] added to row indices[i], but for the padding row: total + EmbeddingGrad(dy, indices)."""

    made_by_passes = True

    checks_values = "infer"

    def infer(total, dy, indices, *, padding_idx):
        check_in_range("embedding_add", indices, 0, total.shape)
        if (*indices.shape, total.shape[1]) != dy.shape or total.dtype != dy.dtype:
            wanted = f"{(*indices.shape, total.shape[1])} of {total.dtype}"
            raise refusal(ShapeError, "embedding_add", wanted, dy=dy, indices=indices, dtype=dy.dtype)
        return total.shape, total.dtype
