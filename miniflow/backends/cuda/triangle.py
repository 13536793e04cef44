"""Triangles of matrices, and filling by a mask."""

from __future__ import annotations

from math import prod

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.rows import over_rows
from miniflow.backends.cuda.shape import as_bits_of
from miniflow.backends.registry import register
from miniflow.kernels import mask as kernels


def _triangle(kernel, x: DeviceArray, diagonal: int) -> DeviceArray:
    out = empty(x.shape, x.dtype, x.device_index)
    matrices = (prod(x.shape[:-2]), *x.shape[-2:])
    source, target = bits(contiguous(x).reshape(matrices)), bits(out.reshape(matrices))
    over_rows(kernel, matrices[0] * matrices[1], matrices[2], source, diagonal, target)
    return out


@register("cuda", "Tril", half="native")
def tril(x: DeviceArray, *, diagonal: int) -> DeviceArray:
    return _triangle(kernels.lower_triangle, x, diagonal)


@register("cuda", "Triu", half="native")
def triu(x: DeviceArray, *, diagonal: int) -> DeviceArray:
    return _triangle(kernels.upper_triangle, x, diagonal)


@register("cuda", "MaskedFill", half="native")
def masked_fill(x: DeviceArray, mask: DeviceArray, *, value: float) -> DeviceArray:
    shape = np.broadcast_shapes(x.shape, mask.shape)
    x, mask = [contiguous(a.view(lambda layout: np.broadcast_to(layout, shape))).reshape(-1) for a in (x, mask)]
    out = empty(shape, x.dtype, x.device_index)
    each(kernels.masked_fill, out.size, bits(x), bits(mask), as_bits_of(value, x.dtype), bits(out.reshape(-1)))
    return out
