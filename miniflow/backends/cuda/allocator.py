"""The caching allocator keeps freed memory for later requests, since allocating memory on a GPU is slow.

As in CUB's `CachingDeviceAllocator`, sizes are rounded up to one of eight between a power of two and the next, so that
requests of similar size can use the same memory. Freed memory is kept in a list for each size and stream. The work of a
stream runs in order, so memory that Python drops can be written by the next kernel without waiting for the last one.
When the device is full, the lists are emptied and the request is repeated.

PyTorch's allocator also splits free memory for smaller requests, and merges the parts again: it caches less if sizes
vary, but can only release segments that are entirely free. Here all cached memory can be released.

A `Block` is what an array holds. When the last array on it dies, `Block.__del__` only queues its chunk (it may run in
any thread at any time, also within `allocate`); the next call of the allocator takes the queue up.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from miniflow.backends.cuda import streams
from miniflow.backends.cuda.driver import driver
from miniflow.errors import ArgumentError, OutOfMemoryError
from miniflow.hostcuda.choice import checks_are_on
from miniflow.hostcuda.memory import GARBAGE

MIB = 1 << 20
SMALLEST = 512  # bytes; all sizes are multiples of it
QUANTITIES = ("allocation", "segment", "allocated_bytes", "reserved_bytes", "requested_bytes")


@dataclass(slots=True, eq=False)
class Chunk:
    """A piece of device memory, in use by a block or cached.

    Attributes:
        memory: all its bytes.
        stream: on which it is allocated.
        requested: how many bytes its block asked for.
        used_on: other streams that work on it.
    """

    memory: np.ndarray
    stream: streams.Stream
    requested: int = 0
    used_on: list[streams.Stream] = field(default_factory=list)


class Block:
    """The memory of one array and of its views. It is free again when the last of them is gone.

    Attributes:
        memory: the bytes asked for, a 1-D uint8 array (a ghost on a GPU).
        address: of the first byte.
        device_index: the device.
        allocation: what the host executor knows about this memory; None before a kernel saw it.
    """

    __slots__ = ("memory", "address", "device_index", "allocation", "chunk", "freed")

    def __init__(self, memory: np.ndarray, device_index: int, chunk: Chunk | None, freed: deque):
        self.memory = memory
        self.address = memory.__array_interface__["data"][0]
        self.device_index = device_index
        self.allocation: Any = None
        self.chunk = chunk
        self.freed = freed

    def record_stream(self, stream: streams.Stream) -> None:
        """Do not reuse the memory before `stream` has finished the work it has when the block is freed."""
        if self.chunk is not None and stream is not self.chunk.stream:
            self.chunk.used_on.append(stream)

    def __del__(self):
        if self.chunk is not None:
            self.freed.append(self.chunk)


@dataclass(slots=True)
class Counter:
    """A quantity that goes up and down: its current value, its peak, and the totals allocated and freed."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        """Count `amount` more."""
        self.current += amount
        self.allocated += amount
        self.peak = max(self.peak, self.current)

    def take(self, amount: int) -> None:
        """Count `amount` less."""
        self.current -= amount
        self.freed += amount


def rounded(nbytes: int) -> int:
    """The size of the chunk for a request: a multiple of 512 bytes with at most four significant bits.

    >>> [rounded(n) for n in (1, 513, 8192, 8193, 9000)]
    [512, 1024, 8192, 9216, 9216]
    """
    step = max(SMALLEST, (1 << (nbytes - 1).bit_length()) // 16)
    return -(-nbytes // step) * step


class Allocator:
    """Allocates the memory of one device. Its methods may be called from any thread."""

    def __init__(self, device_index: int, limit: int | None = None):
        self.device_index = device_index
        self.limit = limit
        self.lock = threading.Lock()
        self.freed: deque[Chunk] = deque()
        self.pending: list[tuple[Chunk, list[streams.Event]]] = []  # freed, but other streams still work on them
        self.cached: dict[tuple[streams.Stream, int], list[Chunk]] = defaultdict(list)
        self.counters = {name: Counter() for name in QUANTITIES}
        self.blocks, self.segments, self.allocated, self.reserved, self.requested = self.counters.values()
        self.retries = self.failures = 0
        self.poison = driver().emulated and checks_are_on()  # fill new memory with NaN, so that no one relies on it

    def allocate(self, nbytes: int) -> Block:
        """Memory for `nbytes`, for work on the current stream.

        Raises:
            OutOfMemoryError: if the device has no room, even after all cached memory was released.
        """
        if nbytes == 0:
            return Block(np.empty(0, np.uint8), self.device_index, None, self.freed)
        size, stream = rounded(nbytes), streams.current(self.device_index)
        with self.lock:
            self._take_up_freed()
            cached = self.cached[stream, size]
            chunk = cached.pop() if cached else Chunk(self._reserve(size, nbytes), stream)
            chunk.requested = nbytes
            self.blocks.add(1)
            self.allocated.add(size)
            self.requested.add(nbytes)
        memory = chunk.memory[:nbytes]
        if self.poison:
            memory.fill(GARBAGE)
        return Block(memory, self.device_index, chunk, self.freed)

    def _reserve(self, size: int, nbytes: int) -> np.ndarray:
        """New memory from the device; if it is full, cached memory is released first."""
        memory = self._ask_for(size)
        if memory is None:
            self.retries += 1
            self._give_back()
            memory = self._ask_for(size)
        if memory is None:
            self.failures += 1
            raise OutOfMemoryError(self._explanation(nbytes))
        self.segments.add(1)
        self.reserved.add(size)
        return memory

    def _ask_for(self, size: int) -> np.ndarray | None:
        if self.limit is not None and self.reserved.current + size > self.limit:
            return None
        try:
            return driver().reserve(size, self.device_index)
        except MemoryError:
            return None

    def _explanation(self, nbytes: int) -> str:
        in_use, reserved = self.allocated.current, self.reserved.current
        limit = "" if self.limit is None else f" of {readable(self.limit)} in all (MINIFLOW_DEVICE_MEMORY)"
        return (
            f"cuda:{self.device_index} is out of memory: got a request for {readable(nbytes)}; tensors hold "
            f"{readable(in_use)} and {readable(reserved - in_use)} are cached{limit}; use a smaller batch, drop "
            "tensors that are not needed, or compute under flow.no_grad()"
        )

    def _take_up_freed(self) -> None:
        """Cache the chunks whose last array died, unless another stream still works on them."""
        while self.freed:
            chunk = self.freed.popleft()
            if chunk.used_on:
                self.pending.append((chunk, [stream.record_event() for stream in chunk.used_on]))
                chunk.used_on = []
            else:
                self._cache(chunk)
        if self.pending:
            pending, self.pending = self.pending, []
            for chunk, events in pending:
                if all([event.query() for event in events]):
                    self._cache(chunk)
                else:
                    self.pending.append((chunk, events))

    def _cache(self, chunk: Chunk) -> None:
        size = chunk.memory.size
        self.blocks.take(1)
        self.allocated.take(size)
        self.requested.take(chunk.requested)
        self.cached[chunk.stream, size].append(chunk)

    def _release(self, keys: list[tuple[streams.Stream, int]]) -> list[Chunk]:
        """Take cached chunks out of the lists; the device gets them back when the result is dropped."""
        released = [chunk for key in keys for chunk in self.cached.pop(key)]
        self.segments.take(len(released))
        self.reserved.take(sum([chunk.memory.size for chunk in released]))
        return released

    def _give_back(self) -> None:
        """Let the device have all cached memory."""
        with streams.selected(self.device_index):
            self._release(list(self.cached))

    def withdraw(self, stream: streams.Stream) -> list[Chunk]:
        """Take the cached memory of a stream out of use, as long as the list lives: a CUDA graph has its addresses."""
        with self.lock:
            self._take_up_freed()
            return self._release([key for key in self.cached if key[0] is stream])

    def empty_cache(self) -> None:
        """Give all cached memory back."""
        with self.lock:
            self._take_up_freed()
            self._give_back()

    def stats(self) -> dict[str, int]:
        """What is in use and was in use, under PyTorch's names."""
        with self.lock:
            self._take_up_freed()
            stats = {"num_alloc_retries": self.retries, "num_ooms": self.failures}
            for name, counter in self.counters.items():
                stats |= {f"{name}.all.{quantity}": getattr(counter, quantity) for quantity in Counter.__slots__}
            return stats

    def reset_peak(self) -> None:
        """Let the peaks start from what is in use now."""
        with self.lock:
            self._take_up_freed()
            for counter in self.counters.values():
                counter.peak = counter.current


def readable(nbytes: int) -> str:
    """A number of bytes for people: "1.50 MiB"."""
    for unit, size in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} bytes"


_allocators: dict[int, Allocator] = {}
_lock = threading.Lock()


def allocator(device_index: int) -> Allocator:
    """The allocator of a device."""
    with _lock:
        if device_index not in _allocators:
            _allocators[device_index] = Allocator(device_index, memory_limit())
        return _allocators[device_index]


def memory_limit() -> int | None:
    """The memory of an emulated device in bytes, by MINIFLOW_DEVICE_MEMORY; None for no limit."""
    value = os.environ.get("MINIFLOW_DEVICE_MEMORY", "")
    if value and not value.isdigit():
        raise ArgumentError(f"MINIFLOW_DEVICE_MEMORY: got {value!r}; expected a number of bytes")
    return int(value) if value and driver().emulated else None


def allocate(nbytes: int, device_index: int) -> Block:
    """Memory for `nbytes` on a device; see `Allocator.allocate`."""
    existing = _allocators.get(device_index)
    return (allocator(device_index) if existing is None else existing).allocate(nbytes)
