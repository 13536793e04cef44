"""Putting arrays together: each is copied into its part of the result."""

from __future__ import annotations

from miniflow.backends.cuda.array import DeviceArray
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.registry import kernel


@kernel("cuda", half="native")
def cat(y: DeviceArray, *xs: DeviceArray, dim: int, sizes: tuple[int, ...]) -> None:
    start = 0
    for x, size in zip(xs, sizes, strict=True):
        part = (slice(None),) * dim + (slice(start, start + size),)
        copy_into(y.view(lambda a, part=part: a[part]), x)
        start += size


@kernel("cuda", half="native")
def stack(y: DeviceArray, *xs: DeviceArray, dim: int) -> None:
    for i, x in enumerate(xs):
        part = (slice(None),) * dim + (i, ...)
        copy_into(y.view(lambda a, part=part: a[part]), x)
