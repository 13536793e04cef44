"""Who touched which cell: the memory behind the arrays of the checked executor, and which accesses are ordered.

A cell remembers the last thread that wrote it and up to two threads that read it since (likewise for atomics), each
as an `Era`: a thread between two of its synchronisations. Two accesses of one cell, one of which writes, are a race
unless they are ordered:

    two threads of a block   by a barrier of the block between them, or, in one warp, by `syncwarp` (shuffles and votes
                             do not order memory)
    two blocks               by a synchronisation of the grid, or by publication: a block that calls `threadfence` and
                             then an atomic on a cell publishes what it did to every block whose atomic on that cell
                             comes later. (CUDA's "last block done"; taken for whole blocks, which is lenient.)
    atomics                  do not race with each other, but with plain accesses

Where many threads read one cell, two are enough: of two warps if possible, so that any writer races with one of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

GARBAGE = 0xFF  # NaN as a float, -1 as an integer


class Era:
    """A thread from one synchronisation to the next.

    Attributes:
        thread: the thread.
        block, warp, lane: where it is.
        epoch: how many barriers of its block it has passed.
        clock: how many synchronisations of its warp, since the last barrier.
        time: how many publications the launch had seen when the era began.
    """

    __slots__ = ("thread", "block", "warp", "lane", "epoch", "clock", "time")

    def __init__(self, thread: Any, clock: int):
        self.thread, self.block, self.warp, self.lane = thread, thread.block, thread.warp, thread.lane
        self.epoch, self.clock, self.time = thread.block.epoch, clock, thread.block.run.time


def unordered(before: Era, now: Era) -> bool:
    """Whether nothing puts an earlier access before one that happens now."""
    if before.thread is now.thread:
        return False
    if before.block is now.block:
        if before.epoch != now.epoch:
            return False
        return before.warp is not now.warp or before.clock > now.thread.known[before.lane]
    return now.block.acquired.get(before.block.number, -1) < before.time


class Memory:
    """A stretch of memory, cut into cells of `granule` bytes.

    Attributes:
        space: "global", "shared", "local" or "const".
        bytes: the memory as a uint8 array.
        start: its address.
        granule: bytes of a cell; the greatest size that divides all elements of the arrays in it.
        written: for each cell whether it was written; None if all of it was from the start.
        tracked: whether threads can race here.
        base: where a shared array begins in the block's shared memory.
    """

    def __init__(self, space: str, buffer: np.ndarray, granule: int, initialised: bool = False):
        self.space, self.bytes, self.granule = space, buffer, granule
        self.start = buffer.__array_interface__["data"][0]
        self.tracked = space in ("global", "shared")
        self.written: bytearray | None = None if initialised else bytearray(self.cells)
        self.base = 0
        self.releases: dict[int, dict[int, int]] = {}
        self.flats: dict[np.dtype, np.ndarray] = {}
        self.forget()

    @property
    def cells(self) -> int:
        return -(-len(self.bytes) // self.granule)

    def forget(self) -> None:
        """All that happened so far is ordered before all that follows."""
        if self.tracked:
            n = self.cells
            self.writers: list = [None] * n
            self.readers: list = [None] * n
            self.others: list = [None] * n
            self.atomics: list | None = None
            self.writer_sites = [0] * n
            self.reader_sites = [0] * n
            self.other_sites = [0] * n

    def refine(self, size: int) -> None:
        """Make cells small enough for elements of `size` bytes too."""
        granule = math.gcd(self.granule, size)
        factor = self.granule // granule
        if factor == 1:
            return
        self.granule = granule
        if self.written is not None:
            self.written = bytearray(np.repeat(np.frombuffer(self.written, np.uint8), factor).tobytes()[: self.cells])
        if self.tracked:
            for name in ("writers", "readers", "others", "writer_sites", "reader_sites", "other_sites"):
                cells = getattr(self, name)
                setattr(self, name, [cell for cell in cells for _ in range(factor)][: self.cells])
            if self.atomics is not None:
                self.atomics, *_ = [[cell for cell in self.atomics for _ in range(factor)][: self.cells]]

    def flat(self, dtype: np.dtype) -> np.ndarray:
        """The memory as a 1-D array of that dtype."""
        found = self.flats.get(dtype)
        if found is None:
            whole = len(self.bytes) // dtype.itemsize * dtype.itemsize
            found = self.flats[dtype] = self.bytes[:whole].view(dtype)
        return found

    # What an access does. Each returns (era, site, verb) of an earlier access that it races with, or None.

    def note_read(self, cell: int, now: Era, site: int) -> tuple[Era, int, str] | None:
        conflict = None
        writer = self.writers[cell]
        if writer is not None and writer is not now and unordered(writer, now):
            conflict = (writer, self.writer_sites[cell], "writes")
        if self.atomics is not None and conflict is None:
            conflict = self._atomic_conflict(cell, now)
        reader = self.readers[cell]
        if reader is None or (reader.block is now.block and reader.epoch != now.epoch):
            self.readers[cell] = now
            self.reader_sites[cell] = site
            self.others[cell] = None
        elif reader is not now:
            # If possible of another warp than the first reader, so that any writer races with one of the two.
            other = self.others[cell]
            if other is None or other.warp is reader.warp or (other.block is now.block and other.epoch != now.epoch):
                self.others[cell] = now
                self.other_sites[cell] = site
        return conflict

    def note_write(self, cell: int, now: Era, site: int) -> tuple[Era, int, str] | None:
        conflict = self._plain_conflict(cell, now)
        if self.atomics is not None:
            conflict = conflict or self._atomic_conflict(cell, now)
            self.atomics[cell] = None
        self.writers[cell] = now
        self.writer_sites[cell] = site
        if self.readers[cell] is not None:
            self.readers[cell] = self.others[cell] = None
        return conflict

    def note_atomic(self, cell: int, now: Era, site: int) -> tuple[Era, int, str] | None:
        conflict = self._plain_conflict(cell, now)
        if self.atomics is None:
            self.atomics = [None] * self.cells
        first, second = self.atomics[cell] or (None, None)
        if first is None or not unordered(first[0], now):
            first = (now, site)
        elif second is None or second[0].warp is first[0].warp or not unordered(second[0], now):
            second = (now, site)
        self.atomics[cell] = (first, second)
        return conflict

    def _plain_conflict(self, cell: int, now: Era) -> tuple[Era, int, str] | None:
        writer = self.writers[cell]
        if writer is not None and writer is not now and unordered(writer, now):
            return writer, self.writer_sites[cell], "writes"
        reader = self.readers[cell]
        if reader is not None:
            if reader is not now and unordered(reader, now):
                return reader, self.reader_sites[cell], "reads"
            other = self.others[cell]
            if other is not None and other is not now and unordered(other, now):
                return other, self.other_sites[cell], "reads"
        return None

    def _atomic_conflict(self, cell: int, now: Era) -> tuple[Era, int, str] | None:
        for noted in self.atomics[cell] or ():
            if noted is not None and unordered(noted[0], now):
                return noted[0], noted[1], "atomically updates"
        return None

    # Publication between blocks

    def publish(self, cell: int, thread: Any) -> None:
        """An atomic on a cell: take over what others published there; publish, if a fence came before."""
        block = thread.block
        released = self.releases.get(cell)
        if released:
            for number, time in released.items():
                block.acquired[number] = max(time, block.acquired.get(number, -1))
        if thread.fenced:
            run = block.run
            self.releases.setdefault(cell, {}).update({**block.acquired, block.number: run.time})
            run.time += 1
            thread.fenced = False
            thread.era = Era(thread, thread.era.clock)
