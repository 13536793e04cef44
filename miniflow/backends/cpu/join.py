"""Kernels that put tensors together."""

from __future__ import annotations

import numpy as np

from miniflow.backends.registry import register


@register("cpu", "Cat", half="native")
def cat(*xs: np.ndarray, dim: int, sizes: tuple[int, ...]) -> np.ndarray:
    return np.concatenate(xs, dim)


@register("cpu", "Stack", half="native")
def stack(*xs: np.ndarray, dim: int) -> np.ndarray:
    return np.stack(xs, dim)
