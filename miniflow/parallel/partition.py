"""Which part of a global tensor each rank holds.

A dim of size n on k ranks is split as evenly as possible: the first n % k ranks hold one more. On a placement of
several dimensions the rule is applied to one after the other: a part of the first dimension is divided by the second.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from miniflow.device import Place
from miniflow.errors import ArgumentError
from miniflow.sbp import NdSbp, show

if TYPE_CHECKING:
    from miniflow.parallel.placement import placement

Region = tuple[tuple[int, int], ...]  # start and stop for each dim


def part(size: int, parts: int, i: int) -> tuple[int, int]:
    """Start and stop of part i.

    >>> [part(6, 4, i) for i in range(4)]
    [(0, 2), (2, 4), (4, 5), (5, 6)]
    """
    quotient, remainder = divmod(size, parts)
    start = i * quotient + min(i, remainder)
    return start, start + quotient + (i < remainder)


@functools.lru_cache(100_000)
def region(shape: tuple[int, ...], where: placement, sbp: NdSbp, rank: int) -> Region:
    """What a rank holds of a tensor of this shape: all of a dim that is not split."""
    return part_at(shape, where.shape, sbp, where.coordinates[rank])


def part_at(shape: tuple[int, ...], mesh: tuple[int, ...], sbp: NdSbp, position: tuple[int, ...]) -> Region:
    """The same for a position in a placement whose dimensions have these lengths."""
    bounds = [(0, n) for n in shape]
    for entry, count, i in zip(sbp, mesh, position, strict=True):
        if entry.dim is not None:
            first, last = bounds[entry.dim]
            start, stop = part(last - first, count, i)
            bounds[entry.dim] = first + start, first + stop
    return tuple(bounds)


def shape_of(bounds: Region) -> tuple[int, ...]:
    """The shape of a region."""
    return tuple([stop - start for start, stop in bounds])


def volume(bounds: Region | None) -> int:
    """The number of elements of a region; 0 for None."""
    return 0 if bounds is None else math.prod(shape_of(bounds))


def local_shape(shape: tuple[int, ...], where: placement, sbp: NdSbp, rank: int) -> tuple[int, ...]:
    """The shape of the shard of a rank."""
    return shape_of(region(shape, where, sbp, rank))


def intersection(a: Region, b: Region) -> Region | None:
    """What two regions have in common; None if that is empty."""
    common = tuple([(max(s, t), min(e, f)) for (s, e), (t, f) in zip(a, b, strict=True)])
    return common if all(start < stop for start, stop in common) or not common else None


def within(inner: Region, outer: Region) -> tuple:
    """The index of a region in an array that holds another one around it; for no dims the result is an array too."""
    return (*[slice(s - t, e - t) for (s, e), (t, _) in zip(inner, outer, strict=True)], ...)


class GlobalMeta(Place):
    """Placement, SBP, shape and dtype of a global array; equal ones are one object (`of`), compared by identity.

    Attributes:
        placement: the ranks.
        sbp: how each dimension of the placement divides the array.
        shape, dtype: of the whole.
    """

    __slots__ = ("placement", "sbp", "shape", "dtype")
    is_global = True
    index = None  # in the program of a graph it stands where others have a device

    def __init__(self, where: placement, sbp: NdSbp, shape: tuple[int, ...], dtype: np.dtype):
        self.placement = where
        self.sbp = sbp
        self.shape = shape
        self.dtype = dtype

    of = staticmethod(functools.lru_cache(100_000)(lambda *parts: GlobalMeta(*parts)))

    @property
    def type(self) -> str:
        """The type of the devices."""
        return self.placement.type

    def with_dtype(self, dtype: np.dtype) -> GlobalMeta:
        """The same for elements of another dtype."""
        return GlobalMeta.of(self.placement, self.sbp, self.shape, dtype)

    def __repr__(self) -> str:
        return f"{self.placement} with sbp {show(self.sbp)}"


def check_axes(sbp: NdSbp, ndim: int) -> None:
    """Refuse a split of a dim that the tensor does not have, with an ArgumentError."""
    for entry in sbp:
        if entry.dim is not None and entry.dim >= ndim:
            raise ArgumentError(
                f"to_global: Split axis out of range (expected to be in range of [0, {ndim}), but got {entry.dim}!)"
            )
