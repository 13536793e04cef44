"""The stretches of memory that a checked launch works in, their shadow cells, and which array an address belongs to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from miniflow.hostcuda.shadow import CELL, SPACES, STRETCH
from miniflow.hostcuda.syntax import Compilation

UNKNOWN = 16
"""Bytes of an element whose dtype is that of an argument, at most."""


@dataclass
class PlacedArray:
    """An array of a launch.

    Attributes:
        name: as the kernel's author knows it.
        shape, strides: strides in bytes.
        itemsize: of an element, in bytes.
        start: its first element, in bytes from the start of the stretch.
        period: bytes from one copy to the next, of arrays that each thread or block has; 0 for one copy.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    start: int = 0
    period: int = 0

    def index(self, offset: int) -> tuple[int, ...] | None:
        """The index of the element at a byte of the stretch; None if it has none, or several."""
        offset, index = (offset % self.period if self.period else offset) - self.start, [0] * len(self.shape)
        for axis in sorted(range(len(self.shape)), key=lambda axis: -abs(self.strides[axis])):
            n, stride = self.shape[axis], self.strides[axis]
            if n > 1 and stride == 0:
                return None
            if n > 1:
                index[axis] = offset // stride if stride > 0 else -(offset // -stride)
                offset -= index[axis] * stride
        inside = all(0 <= i < n for i, n in zip(index, self.shape, strict=True))
        return tuple(index) if inside and 0 <= offset < self.itemsize else None


@dataclass
class Stretch:
    """A stretch of memory: a row of the table that `shadow` reads, and what Python knows of it.

    Attributes:
        space: "global", "shared", "local" or "const".
        granule: bytes for which there is one shadow cell.
        size: in bytes.
        placed: the arrays in it.
        start: its address; 0 for an array of the kernel, until the kernel declares it.
        constant, defined: whether it must not be written, and whether all of it was written before.
        allocation: of the device, if it is one.
    """

    space: str
    granule: int
    size: int
    placed: list[PlacedArray] = field(default_factory=list)
    start: int = 0
    constant: bool = False
    defined: bool = False
    allocation: Any = None

    def __post_init__(self) -> None:
        self.granule &= -self.granule  # a power of two that divides it

    def array(self, offset: int, preferred: str) -> tuple[PlacedArray, tuple[int, ...]] | None:
        """The array, and the index in it, at a byte of the stretch; preferably the array that is called `what`."""
        for array in sorted(self.placed, key=lambda array: array.name != preferred):
            index = array.index(offset)
            if index is not None:
                return array, index
        return None


class MemoryMap:
    """All stretches: number 0 is dynamic shared memory; then come the kernel's arrays, and then those of arguments.

    Args:
        arrays: name, array, device allocation or None, and space of the arguments.

    Attributes:
        table, cells: the tables of `shadow`.
    """

    def __init__(self, compilation: Compilation, threads: int, blocks: int, shared_bytes: int, arrays: Iterable[tuple]):
        dynamic = [a.itemsize or 1 for a in compilation.arrays.values() if a.kind == "dynamic"]
        self.stretches = [Stretch("shared", math.gcd(*dynamic) or 1, shared_bytes * blocks if dynamic else 0)]
        for array in compilation.arrays.values():
            itemsize, dtype = array.itemsize or UNKNOWN, compilation.injected.get(array.dtype)
            copies = blocks * (threads if array.kind == "local" else 1) * (array.kind != "dynamic")
            strides = tuple(itemsize * math.prod(array.shape[k + 1 :]) for k in range(len(array.shape)))
            whole = PlacedArray(array.source_name, array.shape, strides, itemsize, period=array.nbytes)
            granule = array.itemsize or 1 if dtype is None else granule_of(dtype)
            space, size = "local" if array.kind == "local" else "shared", math.prod(array.shape) * itemsize * copies
            self.stretches.append(Stretch(space, granule, size, [whole] if array.itemsize else []))
        self.stretches += stretches_of(arrays)
        self.table = np.zeros(len(self.stretches), STRETCH)
        self.table["shift"] = [stretch.granule.bit_length() - 1 for stretch in self.stretches]
        for name in ("start", "constant", "defined"):
            self.table[name] = [getattr(stretch, name) for stretch in self.stretches]
        self.table["end"] = [stretch.start + stretch.size for stretch in self.stretches]
        self.table["space"] = [SPACES.index(stretch.space) for stretch in self.stretches]
        last = np.cumsum([stretch.size // stretch.granule + 2 for stretch in self.stretches])
        self.table["first"][1:], self.cells = last[:-1], np.zeros(last[-1], CELL)
        for allocation, written, granule, _ in self._unwritten():
            known = np.zeros(len(allocation.buffer), np.bool_) | allocation.initialised
            written[...] = np.minimum.reduceat(known, np.arange(0, len(known), granule))

    def commit(self) -> None:
        """Tell the device allocations which bytes are written now."""
        for allocation, written, granule, name in self._unwritten():
            mask = np.repeat(written > 0, granule)[: len(allocation.buffer)]
            allocation.initialised, allocation.parameter = True if mask.all() else mask, name

    def _unwritten(self) -> Iterator[tuple[Any, np.ndarray, int, str]]:
        """(allocation, stamps when its granules were written, bytes of one, name) of what is not written as yet."""
        for stretch, first in zip(self.stretches, self.table["first"], strict=True):
            if stretch.allocation is not None and stretch.allocation.initialised is not True:
                written = self.cells["written"][first : first - (-stretch.size // stretch.granule)]
                yield stretch.allocation, written, stretch.granule, stretch.placed[0].name


def stretches_of(arrays: Iterable[tuple]) -> Iterator[Stretch]:
    """The stretches of arguments: one for each allocation, of which arrays are views."""
    groups: dict[tuple[int, int], list] = {}
    for name, host, allocation, space in arrays:
        span = np.lib.array_utils.byte_bounds(host if allocation is None else allocation.buffer)
        if host.size:
            groups.setdefault(span, []).append((name, host, allocation, space))
    for (low, high), members in groups.items():
        _, hosts, (allocation, *_), (space, *_) = zip(*members, strict=True)
        placed = [PlacedArray(n, h.shape, h.strides, h.itemsize, h.ctypes.data - low) for n, h, *_ in members]
        granule = math.gcd(*(granule_of(h.dtype) for h in hosts), *(array.start for array in placed))
        defined = allocation is None or allocation.initialised is True
        constant = space == "const" or not any(h.flags.writeable for h in hosts)
        yield Stretch(space, granule, high - low, placed, low, constant, defined, allocation)


def granule_of(dtype: np.dtype) -> int:
    """The greatest number of bytes that divides an element and each of its fields."""
    parts = [(offset, granule_of(field)) for field, offset, *_ in (dtype.fields or {}).values()]
    return math.gcd(dtype.itemsize, *(number for part in parts for number in part))
