"""The geometry of arrays that are walked through together, whatever the device."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

Dims = int | tuple[int, ...] | None


class LaidOut:
    """What stands for an array and has the geometry of a NumPy array, its `layout`, under NumPy's names."""

    __slots__ = ()

    layout: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of all dimensions."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps between neighbours along each dimension, in bytes."""
        return self.layout.strides

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.layout.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.layout.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.layout.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.layout.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.layout.nbytes

    @property
    def flags(self) -> Any:
        """NumPy's flags of the layout: `c_contiguous`, `f_contiguous`, `writeable`."""
        return self.layout.flags


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


def reduced_dims(x: Any, dim: Dims) -> tuple[int, ...]:
    """The dims of `x` to reduce, ascending; `dim` None and () stand for all."""
    if dim is None or dim == () or x.ndim == 0:
        return tuple(range(x.ndim))
    return tuple(sorted([d % x.ndim for d in ((dim,) if isinstance(dim, int) else dim)]))


def reduced_count(x: Any, dim: Dims) -> int:
    """How many elements of `x` go into each result of a reduction."""
    return x.size if dim is None else prod([x.shape[d] for d in reduced_dims(x, dim)])


def dims_to_shape(x: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dims whose sums bring `x` to `shape`, from which it was broadcast."""
    lead = x.ndim - len(shape)
    return tuple([d for d in range(x.ndim) if d < lead or shape[d - lead] != x.shape[d]])


def runs(dims: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbours among ascending dims, as [start, stop).

    >>> runs((0, 2, 3))
    [(0, 1), (2, 4)]
    """
    found: list[tuple[int, int]] = []
    for d in dims:
        if found and found[-1][1] == d:
            found[-1] = (found[-1][0], d + 1)
        else:
            found.append((d, d + 1))
    return found


def around_run(x: Any, start: int, stop: int) -> Any:
    """A row-major array as (outer, reduced, inner), where dims start to stop are the reduced ones."""
    return x.reshape((prod(x.shape[:start]), prod(x.shape[start:stop]), prod(x.shape[stop:])))
