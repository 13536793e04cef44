"""The stretches of memory that a checked launch works in, their shadow cells, and which array an address belongs to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from miniflow.hostcuda.shadow import CELL, CONST, GLOBAL, LOCAL, REGION, SHARED
from miniflow.hostcuda.syntax import Unit

SPACES = {GLOBAL: "global", SHARED: "shared", LOCAL: "local", CONST: "const"}
UNKNOWN = 16
"""Bytes of an element whose dtype is that of an argument, at most."""


@dataclass
class Placed:
    """An array of a launch.

    Attributes:
        name: as the kernel's author knows it.
        shape, strides: strides in bytes.
        itemsize: of an element, in bytes.
        start: its first element, in bytes from the start of the region.
        whole: after so many bytes the next copy follows, of arrays that each thread or block has; 0 for one copy.
        allocation: of the device, if it has one.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    start: int = 0
    whole: int = 0
    allocation: Any = None

    def index(self, offset: int) -> tuple[int, ...] | None:
        """The index of the element at a byte of the region; None if it has none, or several."""
        offset, index = (offset % self.whole if self.whole else offset) - self.start, [0] * len(self.shape)
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
class Region:
    """A stretch of memory; `row` is its row in the table that `shadow` reads."""

    row: dict[str, int]
    size: int
    placed: list[Placed] = field(default_factory=list)

    @property
    def space(self) -> str:
        """The kind of memory."""
        return SPACES[self.row["space"]]

    def array(self, offset: int, what: str) -> tuple[Placed, tuple[int, ...]] | None:
        """The array, and the index in it, at a byte of the region; preferably the array that is called `what`."""
        for array in sorted(self.placed, key=lambda array: array.name != what):
            index = array.index(offset)
            if index is not None:
                return array, index
        return None


class Memory:
    """Regions number 0 (dynamic shared memory), then one for each array that the kernel makes, then those of arguments.

    Attributes:
        table, cells: the tables of `shadow`.
    """

    def __init__(self, unit: Unit, threads: int, blocks: int, shared_bytes: int):
        self.regions: list[Region] = []
        dynamic = [a.itemsize or 1 for a in unit.arrays.values() if a.kind == "dynamic"]
        self._add(SHARED, math.gcd(*dynamic) or 1, shared_bytes * blocks if dynamic else 0, [])
        for array in unit.arrays.values():
            itemsize, dtype = array.itemsize or UNKNOWN, unit.injected.get(array.dtype)
            copies = blocks * (threads if array.kind == "local" else 1) * (array.kind != "dynamic")
            strides = tuple(itemsize * math.prod(array.shape[k + 1 :]) for k in range(len(array.shape)))
            own = [Placed(array.called, array.shape, strides, itemsize, whole=array.nbytes)] if array.itemsize else []
            granule = array.itemsize or 1 if dtype is None else granule_of(dtype)
            space, size = LOCAL if array.kind == "local" else SHARED, math.prod(array.shape) * itemsize * copies
            self._add(space, granule, size, own)

    def _add(self, space: int, granule: int, size: int, placed: list[Placed], **more: int) -> None:
        last = self.regions[-1] if self.regions else None
        first = last.row["first"] + -(-last.size // last.row["granule"]) + 1 if last else 0
        row = dict.fromkeys(REGION.names, 0) | {"granule": granule, "first": first, "space": space} | more
        self.regions.append(Region(row, size, placed))

    def arguments(self, arrays: Iterable[tuple[str, np.ndarray, Any]], space: int = GLOBAL) -> None:
        """Regions for (name, array, device allocation or None): one for each allocation, of which arrays are views."""
        groups: dict[tuple[int, int], list] = {}
        for name, host, allocation in arrays:
            span = np.lib.array_utils.byte_bounds(host if allocation is None else allocation.buffer)
            if host.size:
                groups.setdefault(span, []).append((name, host, allocation))
        for (low, high), members in groups.items():
            hosts = [host for _, host, _ in members]
            granule = math.gcd(*(granule_of(h.dtype) for h in hosts), *(address_of(h) - low for h in hosts))
            placed = [Placed(n, h.shape, h.strides, h.itemsize, address_of(h) - low, 0, a) for n, h, a in members]
            known = all(a is None or a.initialised is True for _, _, a in members)
            constant = space == CONST or not any(h.flags.writeable for h in hosts)
            self._add(
                space, granule, high - low, placed, start=low, end=high, constant=int(constant), defined=int(known)
            )

    def tables(self) -> None:
        """Make the tables; the shadow of device arrays says which of their bytes were written before."""
        last = self.regions[-1]
        self.table = np.array([tuple(region.row[name] for name in REGION.names) for region in self.regions], REGION)
        self.cells = np.zeros(last.row["first"] + last.size // last.row["granule"] + 2, CELL)
        for allocation, written, granule, _ in self._shadows():
            bytes_written = np.zeros(len(allocation.buffer), np.bool_) | allocation.initialised
            written[...] = np.minimum.reduceat(bytes_written, np.arange(0, len(bytes_written), granule))

    def commit(self) -> None:
        """Tell the device allocations which bytes are written now."""
        for allocation, written, granule, name in self._shadows():
            mask = np.repeat(written > 0, granule)[: len(allocation.buffer)]
            allocation.initialised, allocation.called = True if mask.all() else mask, name

    def _shadows(self) -> Iterable[tuple[Any, np.ndarray, int, str]]:
        """(allocation, stamps when its granules were written, bytes of one, name) of what is not written as yet."""
        for region in self.regions:
            allocation = region.placed[0].allocation if region.placed else None
            if allocation is not None and allocation.initialised is not True:
                first, granule = region.row["first"], region.row["granule"]
                written = self.cells["written"][first : first - (-len(allocation.buffer) // granule)]
                yield allocation, written, granule, region.placed[0].name


def granule_of(dtype: np.dtype) -> int:
    """The greatest number of bytes that divides an element and each of its fields."""
    parts = [(offset, granule_of(field)) for field, offset, *_ in (dtype.fields or {}).values()]
    return math.gcd(dtype.itemsize, *(number for part in parts for number in part))


def address_of(array: np.ndarray) -> int:
    """Where the first element lies."""
    return array.__array_interface__["data"][0]
