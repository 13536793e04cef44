"""Many tensors in few launches, for the updates of optimizers and the clipping of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray
from miniflow.backends.cuda.copy import copy_into

ARRAYS_PER_LAUNCH = 8  # they are arguments of the kernel, which CUDA limits to 4 KB


def split_into_launches(
    arrays: Sequence[DeviceArray], elements: int, key: Callable[[DeviceArray], Any]
) -> Iterator[tuple[Any, list[int], tuple[int, ...]]]:
    """Distribute many arrays over launches; arrays without elements are left out.

    Every launch has the same number of arrays, so that it is compiled once: `padded` adds some, without blocks.

    Args:
        arrays: all of them.
        elements: the number of elements that a block handles.
        key: what must be equal for the arrays of a launch.

    Yields:
        the key, the positions of the arrays, and the first block of each, followed by the number of blocks.
    """
    groups: dict[Any, list[int]] = {}
    for i, x in enumerate(arrays):
        if x.size:
            groups.setdefault(key(x), []).append(i)
    for value, group in groups.items():
        for first in range(0, len(group), ARRAYS_PER_LAUNCH):
            positions = group[first : first + ARRAYS_PER_LAUNCH]
            blocks = [-(-arrays[i].size // elements) for i in positions]
            blocks += [0] * (ARRAYS_PER_LAUNCH - len(positions))
            yield value, positions, tuple(accumulate(blocks, initial=0))


def padded(items: Sequence[Any]) -> tuple:
    """The items of a launch, padded with the first to the number that every launch has."""
    return (*items, *[items[0]] * (ARRAYS_PER_LAUNCH - len(items)))


def compute_dtype(x: DeviceArray) -> type:
    """The dtype in which a floating array is computed."""
    return np.float64 if x.dtype == np.float64 else np.float32


def contiguous_as(x: DeviceArray | None, real: type) -> DeviceArray | None:
    """A contiguous array of the dtype `real`: the same, or a copy."""
    return x if x is None or (x.dtype == real and x.flags.c_contiguous) else x.astype(real)


def write_back(arrays: Sequence[DeviceArray | None], working: Sequence[DeviceArray | None]) -> None:
    """Copy results from the copies that `contiguous_as` made to the arrays."""
    for x, changed in zip(arrays, working, strict=True):
        if changed is not x:
            copy_into(x, changed)
