"""Putting arrays together: each is copied into its part of the result."""

from __future__ import annotations

from miniflow.backends.cuda.array import DeviceArray, empty
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.registry import register


@register("cuda", "Cat", half="native")
def cat(*xs: DeviceArray, dim: int, sizes: tuple[int, ...]) -> DeviceArray:
    first = xs[0]
    out = empty(first.shape[:dim] + (sum(sizes),) + first.shape[dim + 1 :], first.dtype, first.device_index)
    start = 0
    for x, size in zip(xs, sizes, strict=True):
        part = (slice(None),) * dim + (slice(start, start + size),)
        copy_into(out.view(lambda a, part=part: a[part]), x)
        start += size
    return out


@register("cuda", "Stack", half="native")
def stack(*xs: DeviceArray, dim: int) -> DeviceArray:
    first = xs[0]
    out = empty(first.shape[:dim] + (len(xs),) + first.shape[dim:], first.dtype, first.device_index)
    for i, x in enumerate(xs):
        part = (slice(None),) * dim + (i, ...)
        copy_into(out.view(lambda a, part=part: a[part]), x)
    return out
