"""Many arrays in few launches, as the updates of optimizers and the clipping of gradients need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray
from miniflow.backends.cuda.copy import copy_into

TOGETHER = 8  # arrays in a launch: they are arguments, of which CUDA takes 4 KB


def together(
    arrays: Sequence[DeviceArray], elements: int, kind: Callable[[DeviceArray], Any]
) -> Iterator[tuple[Any, list[int], tuple[int, ...]]]:
    """Which of many arrays each launch takes; those without elements are left out.

    A launch has always the same number of arrays, so that it is compiled once: `padded` adds some, without blocks.

    Args:
        arrays: all of them.
        elements: of a block.
        kind: what has to be equal for the arrays of a launch.

    Yields:
        the kind, the positions of the arrays, and the first block of each, with the number of all blocks.
    """
    kinds: dict[Any, list[int]] = {}
    for i, x in enumerate(arrays):
        if x.size:
            kinds.setdefault(kind(x), []).append(i)
    for value, positions in kinds.items():
        for first in range(0, len(positions), TOGETHER):
            some = positions[first : first + TOGETHER]
            blocks = [-(-arrays[i].size // elements) for i in some] + [0] * (TOGETHER - len(some))
            yield value, some, tuple(accumulate(blocks, initial=0))


def padded(items: Sequence[Any]) -> tuple:
    """As many as a launch takes; the first stands in for those that are missing."""
    return (*items, *[items[0]] * (TOGETHER - len(items)))


def real_of(x: DeviceArray) -> type:
    """The class of numbers with which the elements of a floating array are computed."""
    return np.float64 if x.dtype == np.float64 else np.float32


def plain(x: DeviceArray | None, real: type) -> DeviceArray | None:
    """A contiguous array of the dtype `real`: the same, or a copy."""
    return x if x is None or (x.dtype == real and x.flags.c_contiguous) else x.astype(real)


def write_back(arrays: Sequence[DeviceArray | None], working: Sequence[DeviceArray | None]) -> None:
    """Copy what was computed in `plain` copies of the arrays."""
    for x, changed in zip(arrays, working, strict=True):
        if changed is not x:
            copy_into(x, changed)
