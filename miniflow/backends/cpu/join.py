"""Kernels that put tensors together."""

from __future__ import annotations

import numpy as np

from miniflow.backends.registry import kernel


@kernel("cpu", half="native")
def cat(y: np.ndarray, *xs: np.ndarray, dim: int, sizes: tuple[int, ...]) -> None:
    np.concatenate(xs, dim, out=y)


@kernel("cpu", half="native")
def stack(y: np.ndarray, *xs: np.ndarray, dim: int) -> None:
    lead = (slice(None),) * dim
    for i, x in enumerate(xs):
        y[(*lead, i)] = x
