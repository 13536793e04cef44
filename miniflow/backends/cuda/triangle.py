"""Triangles of matrices."""

from __future__ import annotations

from math import prod

from miniflow.backends.cuda.array import bits, contiguous
from miniflow.backends.cuda.rows import launch_over_box
from miniflow.backends.registry import kernel
from miniflow.kernels import mask as kernels


@kernel("cuda", half="native")
def triangle(y, x, *, diagonal, upper):
    sign, matrices = -1 if upper else 1, (prod(x.shape[:-2]), *x.shape[-2:])
    source, target = bits(contiguous(x).reshape(matrices)), bits(y.reshape(matrices))
    launch_over_box(kernels.triangle, matrices, source, sign, sign * diagonal, target)
