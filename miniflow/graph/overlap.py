"""Which states and inputs of a program share memory."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from miniflow.backends import memory

MOST_WORK = 100_000  # of NumPy, to find out whether two arrays have an element in common


def overlapping(arrays: Mapping[Hashable, Any]) -> list[list]:
    """Pairs of states whose memories overlap, or may."""
    arrays = {slot: array for slot, array in arrays.items() if array.size and not _is_elsewhere(array)}
    spans = sorted([(*_span(array), slot) for slot, array in arrays.items()], key=lambda span: span[:2])
    pairs = []
    for i, (_, high, slot) in enumerate(spans):
        for low, _, other in spans[i + 1 :]:
            if low >= high:
                break
            pairs.append([slot, other])
    return pairs


def _is_elsewhere(array: Any) -> bool:
    """Whether this process holds no shard of a global array."""
    return memory.is_global(array) and not array.shards


def _shard(array: Any) -> Any:
    """A shard of a global array, for all: global arrays share memory if their shards do."""
    return next(iter(array.shards.values())) if memory.is_global(array) else array


def _span(array: Any) -> tuple[int, int]:
    """Where an array's memory begins and ends; on a device that of all arrays in its block."""
    array = _shard(array)
    if isinstance(array, np.ndarray):
        return byte_bounds(array)
    return byte_bounds(array.block.memory)


def sharing(arrays: Mapping[Hashable, Any]) -> list[list]:
    """Pairs of states that have elements in common."""
    return [pair for pair in overlapping(arrays) if share(*[arrays[slot] for slot in pair])]


def share(a: Any, b: Any) -> bool:
    """Whether two arrays have, or may have, elements in common."""
    a, b = _shard(a), _shard(b)
    try:
        return np.shares_memory(_placed(a), _placed(b), max_work=MOST_WORK)
    except np.exceptions.TooHardError:
        return True


class _Place:
    """What NumPy asks for the geometry of an array of bytes at an address."""

    def __init__(self, array: Any):
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{array.itemsize}",
            "shape": array.shape,
            "strides": array.strides,
            "data": (memory.address(array), False),
        }


def _placed(array: Any) -> np.ndarray:
    """An array at the addresses of `array`, which may be those of a device: its elements must never be looked at."""
    return array if isinstance(array, np.ndarray) else np.asarray(_Place(array))
