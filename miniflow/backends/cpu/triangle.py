"""Triangles of matrices."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.shape import start_from
from miniflow.backends.registry import kernel


@kernel("cpu", in_place=(0,), half="native")
def triangle(y, x, *, diagonal, upper):
    start_from(y, x)
    lower = np.tri(*x.shape[-2:], diagonal - upper, bool)
    y[..., lower if upper else ~lower] = 0
