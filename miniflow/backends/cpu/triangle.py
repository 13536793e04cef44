"""Triangles of matrices."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.shape import start_from
from miniflow.backends.cpu.threads import unlocked
from miniflow.backends.registry import kernel


@kernel("cpu", in_place=(0,), half="native")
def triangle(y: np.ndarray, x: np.ndarray, *, diagonal: int, upper: bool) -> None:
    start_from(y, x)
    if y.size:
        rows, columns = x.shape[-2:]
        clear_bytes(y.reshape(-1, columns).view(np.uint8), rows, y.itemsize, diagonal + (not upper), not upper)


@unlocked()
def clear_bytes(lines, rows, itemsize, diagonal, right):
    """Zeros in the bytes of rows, whatever their dtype is, to the right of a diagonal (included) or to its left."""
    width = lines.shape[1]
    for i in range(lines.shape[0]):
        bound = min(max((i % rows + diagonal) * itemsize, 0), width)
        for j in range(bound if right else 0, width if right else bound):
            lines[i, j] = 0
