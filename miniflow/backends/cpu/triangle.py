"""Triangles of matrices."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.shape import start_from
from miniflow.backends.cpu.threads import unlocked
from miniflow.backends.registry import kernel


@kernel("cpu", in_place=(0,), half="native")
def tril(y: np.ndarray, x: np.ndarray, *, diagonal: int) -> None:
    clear(y, x, diagonal + 1, True)


@kernel("cpu", in_place=(0,), half="native")
def triu(y: np.ndarray, x: np.ndarray, *, diagonal: int) -> None:
    clear(y, x, diagonal, False)


def clear(y: np.ndarray, x: np.ndarray, diagonal: int, right: bool) -> None:
    """Copy matrices and write zeros from `diagonal` on to the right, or to the left of it."""
    start_from(y, x)
    if y.size:
        rows, columns = x.shape[-2:]
        clear_bytes(y.reshape(-1, columns).view(np.uint8), rows, y.itemsize, diagonal, right)


@unlocked()
def clear_bytes(lines, rows, itemsize, diagonal, right):
    """Zeros in the bytes of rows, whatever their dtype is."""
    width = lines.shape[1]
    for i in range(lines.shape[0]):
        bound = min(max((i % rows + diagonal) * itemsize, 0), width)
        for j in range(bound if right else 0, width if right else bound):
            lines[i, j] = 0
