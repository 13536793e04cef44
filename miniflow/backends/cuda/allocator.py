"""The caching allocator: memory that is freed is kept and handed out again, since asking a GPU for memory is slow.

As PyTorch's: sizes are rounded up to 512 bytes. Requests of up to 1 MiB are cut from *segments* of 2 MiB, larger ones
from segments of 20 MiB or of their own size; the smallest free chunk that fits is taken, and what remains of it is a
chunk again. A chunk that becomes free joins with free neighbours. Each stream has its own chunks: its work is done in
order, so memory that Python drops can be written by the next kernel without waiting for the last one.

A `Block` is what an array holds. When the last array on it dies, `Block.__del__` only queues its chunk (it may run in
any thread at any time, also within `allocate`); the next call of the allocator takes the queue up.

Source: PyTorch, "CUDA semantics: memory management", and its description of CUDACachingAllocator.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from miniflow.backends.cuda import streams
from miniflow.backends.cuda.driver import driver
from miniflow.errors import ArgumentError, OutOfMemoryError
from miniflow.hostcuda.allocation import GARBAGE, checks_are_on

MIB = 1 << 20
ROUND = 512
SMALL = MIB  # requests up to here are cut from small segments
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB  # for requests below MIN_OWN; from there on a segment is of the size of the request
MIN_OWN = 10 * MIB
ROUND_OWN = 2 * MIB


@dataclass(slots=True, eq=False)
class Chunk:
    """A piece of a segment, free or in use, in a list with its neighbours."""

    segment: np.ndarray
    start: int
    size: int
    pool: Pool
    requested: int = 0
    free: bool = True
    before: Chunk | None = None
    after: Chunk | None = None
    used_on: list[streams.Stream] = field(default_factory=list)  # other streams that work on it

    def split(self, size: int) -> Chunk:
        """Cut the chunk down to `size`, and return the rest."""
        rest = Chunk(self.segment, self.start + size, self.size - size, self.pool)
        self.size = size
        rest.before, rest.after, self.after = self, self.after, rest
        if rest.after is not None:
            rest.after.before = rest
        return rest

    def join(self, other: Chunk) -> None:
        """Take in `other`, the neighbour behind."""
        self.size += other.size
        self.after = other.after
        if self.after is not None:
            self.after.before = self


class Pool:
    """The free chunks of one stream, small or large, by size and age."""

    def __init__(self, stream: streams.Stream, small: bool):
        self.stream = stream
        self.small = small
        self.free: list[tuple[int, int, Chunk]] = []

    def take(self, size: int) -> Chunk | None:
        """The smallest free chunk that holds `size`, taken out of the pool and cut down."""
        position = bisect_left(self.free, (size,))
        if position == len(self.free):
            return None
        chunk = self.free.pop(position)[2]
        if chunk.size - size >= (ROUND if self.small else SMALL + 1):
            self.put(chunk.split(size))
        return chunk

    def put(self, chunk: Chunk) -> None:
        """Add a free chunk."""
        insort(self.free, (chunk.size, id(chunk), chunk))

    def discard(self, chunk: Chunk) -> None:
        """Take a free chunk out."""
        del self.free[bisect_left(self.free, (chunk.size, id(chunk)))]


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
        """Do not hand the memory out again before `stream` is done with the work it has when the block dies."""
        if self.chunk is not None and stream is not self.chunk.pool.stream:
            self.chunk.used_on.append(stream)

    def __del__(self):
        if self.chunk is not None:
            self.freed.append(self.chunk)


@dataclass(slots=True)
class Counter:
    """A quantity that goes up and down: now, at most, and what was added and taken away in all."""

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


class Allocator:
    """Allocates the memory of one device. Its methods may be called from any thread."""

    def __init__(self, device_index: int, limit: int | None = None):
        self.device_index = device_index
        self.limit = limit
        self.lock = threading.Lock()
        self.freed: deque[Chunk] = deque()
        self.pending: list[tuple[list[streams.Event], Chunk]] = []  # freed, but other streams still work on them
        self.pools: dict[tuple[streams.Stream, bool], Pool] = {}
        self.blocks, self.segments = Counter(), Counter()
        self.allocated, self.reserved, self.requested = Counter(), Counter(), Counter()
        self.retries = self.failures = 0
        self.poison = driver().emulated and checks_are_on()  # fill new memory with NaN, so that no one relies on it

    def allocate(self, nbytes: int) -> Block:
        """Memory for `nbytes`, for work on the current stream.

        Raises:
            OutOfMemoryError: if the device has no room, even after all cached memory was released.
        """
        if nbytes == 0:
            return Block(np.empty(0, np.uint8), self.device_index, None, self.freed)
        size = -(-nbytes // ROUND) * ROUND
        key = streams.current(self.device_index), size <= SMALL
        with self.lock:
            self._take_up_freed()
            pool = self.pools.get(key)
            if pool is None:
                pool = self.pools[key] = Pool(*key)
            chunk = pool.take(size)
            if chunk is None:
                pool.put(self._new_segment(nbytes, size, pool))
                chunk = pool.take(size)
            chunk.free = False
            chunk.requested = nbytes
            self.blocks.add(1)
            self.allocated.add(chunk.size)
            self.requested.add(nbytes)
        memory = chunk.segment[chunk.start : chunk.start + nbytes]
        if self.poison:
            memory.fill(GARBAGE)
        return Block(memory, self.device_index, chunk, self.freed)

    def _new_segment(self, nbytes: int, size: int, pool: Pool) -> Chunk:
        """A free chunk that is a whole segment, of the usual size or, where there is no room for it, of `size`."""
        if pool.small:
            usual = SMALL_SEGMENT
        else:
            usual = LARGE_SEGMENT if size < MIN_OWN else -(-size // ROUND_OWN) * ROUND_OWN
        memory = self._reserve(usual)
        if memory is None:
            self.retries += 1
            self._release_cached()
            memory = self._reserve(usual)
        if memory is None:
            memory = self._reserve(size)
        if memory is None:
            self.failures += 1
            raise OutOfMemoryError(self._explanation(nbytes))
        self.segments.add(1)
        self.reserved.add(memory.size)
        return Chunk(memory, 0, memory.size, pool)

    def _reserve(self, nbytes: int) -> np.ndarray | None:
        if self.limit is not None and self.reserved.current + nbytes > self.limit:
            return None
        try:
            return driver().reserve(nbytes, self.device_index)
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
        """Make chunks free whose last array died, unless another stream still works on them."""
        while self.freed:
            chunk = self.freed.popleft()
            if chunk.used_on:
                self.pending.append(([stream.record_event() for stream in chunk.used_on], chunk))
                chunk.used_on = []
            else:
                self._make_free(chunk)
        if self.pending:
            done = [all(event.query() for event in events) for events, _ in self.pending]
            for is_done, (_, chunk) in zip(done, self.pending, strict=True):
                if is_done:
                    self._make_free(chunk)
            self.pending = [entry for is_done, entry in zip(done, self.pending, strict=True) if not is_done]

    def _make_free(self, chunk: Chunk) -> None:
        self.blocks.take(1)
        self.allocated.take(chunk.size)
        self.requested.take(chunk.requested)
        chunk.free = True
        pool = chunk.pool
        if chunk.after is not None and chunk.after.free:
            pool.discard(chunk.after)
            chunk.join(chunk.after)
        if chunk.before is not None and chunk.before.free:
            pool.discard(chunk.before)
            chunk.before.join(chunk)
            chunk = chunk.before
        pool.put(chunk)

    def _release_cached(self) -> None:
        """Release the segments in which nothing is in use."""
        for pool in self.pools.values():
            whole = [entry for entry in pool.free if entry[2].before is None and entry[2].after is None]
            pool.free = [entry for entry in pool.free if entry not in whole]
            self.segments.take(len(whole))
            self.reserved.take(sum(entry[0] for entry in whole))

    def withdraw(self, stream: streams.Stream) -> list[Pool]:
        """Take the cached memory of a stream out of use, as long as the list lives: a CUDA graph has its addresses."""
        with self.lock:
            self._take_up_freed()
            return [self.pools.pop(key) for key in list(self.pools) if key[0] is stream]

    def empty_cache(self) -> None:
        """Give cached memory back, as far as it is whole segments."""
        with self.lock:
            self._take_up_freed()
            self._release_cached()

    def stats(self) -> dict[str, int]:
        """What is in use and was in use, under PyTorch's names."""
        with self.lock:
            self._take_up_freed()
            named = {
                "allocation": self.blocks,
                "segment": self.segments,
                "allocated_bytes": self.allocated,
                "reserved_bytes": self.reserved,
                "requested_bytes": self.requested,
            }
            found = {f"{name}.all.{kind}": getattr(c, kind) for name, c in named.items() for kind in Counter.__slots__}
            return {**found, "num_alloc_retries": self.retries, "num_ooms": self.failures}

    def reset_peak(self) -> None:
        """Let the peaks start from what is in use now."""
        with self.lock:
            self._take_up_freed()
            for counter in (self.blocks, self.segments, self.allocated, self.reserved, self.requested):
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
    """The bytes that an emulated device has, by MINIFLOW_DEVICE_MEMORY; None for as many as the computer gives."""
    given = os.environ.get("MINIFLOW_DEVICE_MEMORY", "")
    if given and not given.isdigit():
        raise ArgumentError(f"MINIFLOW_DEVICE_MEMORY: got {given!r}; expected a number of bytes")
    return int(given) if given and driver().emulated else None


def allocate(nbytes: int, device_index: int) -> Block:
    """Memory for `nbytes` on a device; see `Allocator.allocate`."""
    found = _allocators.get(device_index)
    return (allocator(device_index) if found is None else found).allocate(nbytes)
