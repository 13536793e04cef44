"""The geometry of strided arrays, for every device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

Dims = int | tuple[int, ...] | None


def layout_of(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A row-major array of this geometry that occupies no memory; its elements must not be accessed."""
    steps, stride = [], np.dtype(dtype).itemsize
    for size in reversed(shape):
        steps.append(stride)
        stride *= max(size, 1)
    return as_strided(np.empty(1, dtype), shape, tuple(reversed(steps)))


class LaidOut:
    """Base of array classes that take their geometry, under NumPy's names, from a NumPy array, the `layout`."""

    __slots__ = ()
    is_global = False  # whether its elements lie on the ranks of a placement

    layout: np.ndarray
    shape = property(attrgetter("layout.shape"))
    strides = property(attrgetter("layout.strides"))  # in bytes
    dtype = property(attrgetter("layout.dtype"))
    ndim = property(attrgetter("layout.ndim"))
    size = property(attrgetter("layout.size"))
    itemsize = property(attrgetter("layout.itemsize"))
    nbytes = property(attrgetter("layout.nbytes"))
    flags = property(attrgetter("layout.flags"))


def merged(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Shape and strides with neighbouring dims made one where every array steps through both as through one.

    >>> merged((2, 3, 4), [(12, 4, 1), (0, 4, 1)])
    ((2, 12), [(12, 1), (0, 1)])
    """
    sizes: list[int] = []
    steps: list[list[int]] = []  # for each dim that is kept, the step of each array
    for n, step in zip(shape, zip(*strides, strict=True), strict=True):
        if n == 1:
            continue
        if sizes and all(outer == inner * n for outer, inner in zip(steps[-1], step, strict=True)):
            sizes[-1] *= n
            steps[-1] = list(step)
        else:
            sizes.append(n)
            steps.append(list(step))
    return tuple(sizes), [tuple([s[a] for s in steps]) for a in range(len(strides))]


def reduced_dims(ndim: int, dim: Dims) -> tuple[int, ...]:
    """The dims to reduce, ascending; `dim` None and () stand for all."""
    if dim is None or dim == () or ndim == 0:
        return tuple(range(ndim))
    return tuple(sorted([d % ndim for d in ((dim,) if isinstance(dim, int) else dim)]))


@functools.lru_cache(maxsize=1024)
def reduction_steps(shape: tuple[int, ...], dim: Dims) -> tuple[tuple[int, int, int], ...]:
    """How to reduce a row-major array: each run of neighbouring dims in one step, the last run first.

    Returns:
        for each step, what is left of the array as (outer, reduced, inner).

    >>> reduction_steps((2, 3, 4, 5), (0, 2, 3))
    ((6, 20, 1), (1, 2, 3))
    """
    steps, dims = [], set(reduced_dims(len(shape), dim))
    sizes, stop = list(shape), len(shape)
    while stop > 0:
        start = stop
        while start - 1 in dims:
            start -= 1
        if start < stop:
            steps.append((prod(sizes[:start]), prod(sizes[start:stop]), prod(sizes[stop:])))
            sizes[start:stop] = []
        stop = start - 1
    return tuple(steps) or ((prod(shape), 1, 1),)


def reduced_count(shape: tuple[int, ...], dim: Dims) -> int:
    """How many elements go into each result of a reduction."""
    return prod([reduced for _, reduced, _ in reduction_steps(shape, dim)])


def dims_to_shape(x: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dims to sum over to undo the broadcast of `shape` to the shape of `x`."""
    lead = x.ndim - len(shape)
    return tuple([d for d in range(x.ndim) if d < lead or shape[d - lead] != x.shape[d]])
