"""A launch's arguments as the checked executor hands them to a kernel: global memory, shared by arrays that overlap."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from miniflow.hostcuda.arithmetic import loaded
from miniflow.hostcuda.shadow import Memory
from miniflow.hostcuda.watched import Record, Watched, granule


class GlobalMemory:
    """The memory of all arrays of a launch; views of one array, or of one device allocation, share it."""

    def __init__(self) -> None:
        self.memories: dict[int, Memory] = {}
        self.allocations: dict[int, tuple[Any, Memory]] = {}

    def argument(self, name: str, value: Any) -> Any:
        """What the kernel receives."""
        if isinstance(value, tuple):
            parts = [self.argument(f"{name}[{i}]", part) for i, part in enumerate(value)]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        host = getattr(value, "host", value)
        if isinstance(host, np.void):
            host = np.array(host)
        if not isinstance(host, np.ndarray):
            return loaded(value)
        memory = self._memory(host, getattr(value, "allocation", None))
        array = Watched(name, host, memory)
        return Record(array, ()) if host.ndim == 0 and host.dtype.fields else array

    def _memory(self, host: np.ndarray, allocation: Any) -> Memory:
        root = host if allocation is None else allocation.buffer
        while allocation is None and isinstance(root.base, np.ndarray):
            root = root.base
        if id(root) not in self.memories:
            low, high = np.lib.array_utils.byte_bounds(root)
            memory = Memory("global", _bytes_at(low, high - low), granule(host.dtype), initialised=True)
            self.memories[id(root)] = memory
            memory.owner = root  # kept alive
        memory = self.memories[id(root)]
        if allocation is not None and allocation.initialised is not True and id(allocation) not in self.allocations:
            self._uninitialised(memory, allocation)
        return memory

    def _uninitialised(self, memory: Memory, allocation: Any) -> None:
        """Take over which bytes of a device allocation were written."""
        self.allocations[id(allocation)] = (allocation, memory)
        known = np.ones(memory.cells * memory.granule, np.bool_)
        offset = allocation.buffer.__array_interface__["data"][0] - memory.start
        known[offset : offset + len(allocation.buffer)] = allocation.initialised
        memory.written = bytearray(known.reshape(-1, memory.granule).all(axis=1).tobytes())

    def forget(self) -> None:
        """The grid has met."""
        for memory in self.memories.values():
            memory.forget()

    def commit(self) -> None:
        """Tell the device allocations which bytes are written now."""
        for allocation, memory in self.allocations.values():
            written = np.frombuffer(memory.written, np.bool_)
            offset = allocation.buffer.__array_interface__["data"][0] - memory.start
            mask = np.repeat(written, memory.granule)[offset : offset + len(allocation.buffer)]
            allocation.initialised = True if mask.all() else mask


def _bytes_at(address: int, count: int) -> np.ndarray:
    """Memory as a uint8 array; an array's owner may have any strides, which `view` could not undo."""
    if count == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer((ctypes.c_uint8 * count).from_address(address), np.uint8)
