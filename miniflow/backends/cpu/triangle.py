"""Triangles of matrices."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.shape import start_from
from miniflow.backends.registry import kernel


@kernel("cpu", in_place=(0,), half="native")
def tril(y: np.ndarray, x: np.ndarray, *, diagonal: int) -> None:
    start_from(y, x)
    np.copyto(y, y.dtype.type(0), where=~np.tri(*x.shape[-2:], diagonal, np.bool_))


@kernel("cpu", in_place=(0,), half="native")
def triu(y: np.ndarray, x: np.ndarray, *, diagonal: int) -> None:
    start_from(y, x)
    np.copyto(y, y.dtype.type(0), where=np.tri(*x.shape[-2:], diagonal - 1, np.bool_))
