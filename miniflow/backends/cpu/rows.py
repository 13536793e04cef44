"""Arrays that are broadcast to one shape, as the loops of a region walk through them: rows of columns.

After neighbouring dims are merged where all arrays step through both as through one, what is left is at most
(n0, n1, n2, columns). Along the columns an input has step 1, or step 0: then one element of it serves the whole row.
Where all arrays are contiguous there is one row, of all elements.

    element (i0, i1, i2, j) of an array  ->  address + i0 s0 + i1 s1 + i2 s2 + j itemsize
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miniflow.backends.geometry import merged

OUTER = 3  # dims besides the columns


@dataclass(frozen=True)
class Walk:
    """How to walk through arrays.

    Attributes:
        sizes: (n0, n1, n2, columns).
        steps: for each array the steps (s0, s1, s2) in bytes.
        forms: for each array "v" if it has a step along the columns, "s" if one element serves the row.
    """

    sizes: tuple[int, int, int, int]
    steps: tuple[tuple[int, int, int], ...]
    forms: str

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.sizes[0] * self.sizes[1] * self.sizes[2]


def walk(shape: tuple[int, ...], arrays: Sequence[np.ndarray]) -> Walk | None:
    """How to walk through `arrays`, broadcast to `shape`, which is not of size 0; None where it takes a copy.

    The first array is a C-contiguous one of that shape.
    """
    strides = [np.broadcast_to(x, shape).strides for x in arrays]
    itemsizes = [x.itemsize for x in arrays]
    if any(step % size for row, size in zip(strides, itemsizes, strict=True) for step in row):
        return None
    counted = [tuple([s // size for s in row]) for row, size in zip(strides, itemsizes, strict=True)]
    sizes, steps = merged(shape, counted)
    if len(sizes) > OUTER + 1 or any(row and row[-1] not in (0, 1) for row in steps):
        return None
    missing = OUTER + 1 - len(sizes)
    whole = (1,) * missing + sizes
    padded = [((0,) * missing + row) for row in steps]
    forms = "".join("v" if row and row[-1] == 1 else "s" for row in steps)
    outer = [tuple([s * size for s in row[:OUTER]]) for row, size in zip(padded, itemsizes, strict=True)]
    return Walk(whole, tuple(outer), forms)
