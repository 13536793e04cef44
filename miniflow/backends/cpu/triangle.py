"""Triangles of matrices."""

from __future__ import annotations

import numpy as np

from miniflow.backends.registry import register


@register("cpu", "Tril", half="native")
def tril(x: np.ndarray, *, diagonal: int) -> np.ndarray:
    return np.tril(x, diagonal)


@register("cpu", "Triu", half="native")
def triu(x: np.ndarray, *, diagonal: int) -> np.ndarray:
    return np.triu(x, diagonal)
