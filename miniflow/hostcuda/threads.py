"""A thread and its block in the checked executor: what `cuda.*` means to a kernel's rewritten source.

`cuda.threadIdx.x` has become `thread.threadIdx_x`, `cuda.grid(1)` `thread.grid(1)`, `cuda.shared.array(...)`
`thread.shared_array(...)`, `cuda.atomic.add(...)` `thread.atomic_add(...)`; barriers and shuffles are `yield`s.
"""

from __future__ import annotations

import math
import sys
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from miniflow.hostcuda import access
from miniflow.hostcuda.arithmetic import MATH, cast, is_integer, loaded
from miniflow.hostcuda.findings import Site
from miniflow.hostcuda.libdevice import TABLE as LIBDEVICE
from miniflow.hostcuda.shadow import GARBAGE, Era, Memory
from miniflow.hostcuda.watched import Watched, as_dtype, granule

WARP = 32
STATIC_SHARED = 48 * 1024
SPINS = 1_000_000
Dim3 = namedtuple("Dim3", "x y z")


class Block:
    """A block of threads.

    Attributes:
        run: the launch it belongs to.
        index: its (x, y, z) in the grid.
        number: the same as one number.
        epoch: how many barriers it has passed.
        acquired: for other blocks, up to which publication their accesses are ordered before this block's.
    """

    def __init__(self, run: Any, number: int):
        self.run, self.number = run, number
        x, y, _ = run.grid
        self.index = (number % x, number // x % y, number // (x * y))
        self.blockIdx, self.blockDim, self.gridDim = Dim3(*self.index), Dim3(*run.block), Dim3(*run.grid)
        for name in ("blockIdx", "blockDim", "gridDim"):
            for axis, value in zip("xyz", getattr(self, name), strict=True):
                setattr(self, f"{name}_{axis}", value)
        self.epoch = 0
        self.acquired: dict[int, int] = {}
        self.shared: dict[int, Watched] = {}
        self.dynamic: Memory | None = None
        size = math.prod(run.block)
        self.warps = [Warp(first) for first in range(0, size, WARP)]
        self.threads = [Thread(self, number) for number in range(size)]
        for thread in self.threads:
            thread.warp.lanes.append(thread)

    def barrier(self) -> None:
        """All threads have met: what they did is ordered before what they will do."""
        self.epoch += 1
        for array in self.shared.values():
            array.memory.forget()
        if self.dynamic is not None:
            self.dynamic.forget()
        known = [-1] * WARP
        for thread in self.threads:
            thread.known = known
            thread.era = Era(thread, 0)


class Warp:
    """32 neighbouring threads of a block."""

    def __init__(self, first: int):
        self.number = first // WARP
        self.lanes: list[Thread] = []

    def sync(self, lanes: list[Thread]) -> None:
        """Order what these lanes did before what they will do: each learns what all of them know, and their clocks."""
        distinct = {id(lane.known): lane.known for lane in lanes}
        known = [max(clocks) for clocks in zip(*distinct.values(), strict=True)]
        for lane in lanes:
            known[lane.lane] = lane.era.clock
        for lane in lanes:
            lane.known = known
            lane.era = Era(lane, lane.era.clock + 1)


class Thread:
    """One thread, and its meaning of `cuda.*`.

    Attributes:
        known: for each lane of its warp, the clock up to which that lane's accesses are ordered before this thread's.
        fenced: whether it has called `threadfence` since its last atomic.
        spins: how many atomics it has called.
        raced: where it was last found in a race: (site, index).
        waiting: (operation, site, arguments) that it has yielded, or None.
        finished: whether it has ended; `returned`: whether it did so by a `return` before the kernel's end.
    """

    def __init__(self, block: Block, number: int):
        self.block, self.number = block, number
        x, y, _ = block.blockDim
        self.threadIdx_x, self.threadIdx_y, self.threadIdx_z = self.index = (
            number % x,
            number // x % y,
            number // (x * y),
        )
        self.lane = number % WARP
        self.warp = block.warps[number // WARP]
        self.known = [-1] * WARP
        self.era = Era(self, 0)
        self.fenced = self.finished = self.returned = False
        self.waiting: tuple | None = None
        self.answer: Any = None
        self.body: Any = None
        self.profile = block.run.profile
        self.raced: tuple | None = None
        self.spins = 0

    def __str__(self) -> str:
        return f"thread {self.index} of block {self.block.index}"

    def short(self) -> str:
        return f"thread {self.index}"

    # Findings

    def note(self, kind: str, what: str, remedy: str, site: int, **details: Any) -> None:
        """Something is wrong; the thread goes on."""
        run = self.block.run
        where = {"site": run.program.sites[site], "block": self.block.index, "thread": self.index}
        run.findings.add(kind, what, remedy, **where, caller=self._caller(where["site"]), **details)

    def _caller(self, site: Site) -> Site | None:
        """The line of the kernel that is running, if the site is in a function called there."""
        code, frame = self.block.run.program.kernel.call.__code__, sys._getframe()
        while frame is not None and frame.f_code is not code:
            frame = frame.f_back
        first, last = code.co_firstlineno, max(line or 0 for *_, line in code.co_lines())
        if frame is None or (site.filename == code.co_filename and first <= site.line <= last):
            return None
        return Site(code.co_filename, frame.f_lineno)

    def fail(self, kind: str, what: str, remedy: str, site: int, **details: Any) -> NoReturn:
        """Something is wrong and the thread cannot go on."""
        self.note(kind, what, remedy, site, **details)
        raise access.ThreadStop

    # Where the thread is

    @property
    def threadIdx(self) -> Dim3:
        return Dim3(*self.index)

    def grid(self, ndim: int) -> Any:
        block = self.block
        place = tuple(
            b * n + t for b, n, t in zip(block.index[:ndim], block.blockDim[:ndim], self.index[:ndim], strict=True)
        )
        return place[0] if ndim == 1 else place

    def gridsize(self, ndim: int) -> Any:
        sizes = tuple(n * b for n, b in zip(self.block.gridDim[:ndim], self.block.blockDim[:ndim], strict=True))
        return sizes[0] if ndim == 1 else sizes

    def lanemask_lt(self) -> Any:
        return np.uint32((1 << self.lane) - 1)

    # Arrays

    def shared_array(self, site: int, name: str, shape: Any = 0, dtype: Any = None, alignment: Any = None) -> Watched:
        """The block's array of this place in the source; shape 0 is the dynamic shared memory."""
        found = self.block.shared.get(site)
        if found is not None:
            return found
        dtype = as_dtype(dtype)
        if shape in (0, (0,)):
            return self._dynamic(name, dtype)
        memory, host = _allocate("shared", shape, dtype)
        taken = sum(len(array.memory.bytes) for array in self.block.shared.values())
        memory.base = -(-taken // 16) * 16
        if taken <= STATIC_SHARED < taken + len(memory.bytes):
            self._too_much_shared(site, taken + len(memory.bytes))
        array = self.block.shared[site] = Watched(name, host, memory)
        return array

    def _dynamic(self, name: str, dtype: np.dtype) -> Watched:
        block = self.block
        if block.dynamic is None:
            buffer = np.full(block.run.shared_bytes, GARBAGE, np.uint8)
            block.dynamic = Memory("shared", buffer, granule(dtype))
        count = len(block.dynamic.bytes) // dtype.itemsize
        return Watched(name, block.dynamic.bytes[: count * dtype.itemsize].view(dtype), block.dynamic)

    def _too_much_shared(self, site: int, total: int) -> None:
        self.note(
            "limit",
            f"the kernel's static shared arrays take {total} bytes; a block has {STATIC_SHARED}",
            "use a smaller tile or dtype, or dynamic shared memory: cuda.shared.array(0, dtype), sized at the launch",
            site,
        )

    def local_array(self, site: int, name: str, shape: Any = 0, dtype: Any = None, alignment: Any = None) -> Watched:
        memory, host = _allocate("local", shape, as_dtype(dtype))
        return Watched(name, host, memory)

    def const_array_like(self, site: int, name: str, array: Any) -> Any:
        return array  # arrays from outside a kernel are constant in it anyway

    # Atomics; each returns the old value

    def _atomic(self, site: int, array: Any, index: Any, operate: Callable, reads: bool = True) -> Any:
        if type(array) is not Watched:
            self.fail("exception", f"{self} calls an atomic on {array!r}", "pass the array, then the index", site)
        self.spins += 1
        if self.spins > SPINS:
            self._spinning(array, site)
        return access.atomic(self, array, index, operate, site, reads)

    def _spinning(self, array: Watched, site: int) -> NoReturn:
        self.fail(
            "exception",
            f"{self} has called {SPINS:,} atomics, the last on {array.name}: it seems to wait for another thread",
            "the checks run threads and blocks one after another: a thread can wait for a later one at a barrier only",
            site,
            array=array.name,
        )

    def atomic_add(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: old + _like(old, value))

    def atomic_sub(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: old - _like(old, value))

    def atomic_and_(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: old & _like(old, value))

    def atomic_or_(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: old | _like(old, value))

    def atomic_xor(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: old ^ _like(old, value))

    def atomic_exch(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: value, reads=False)

    def atomic_max(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: value if value > old or value != value else old)

    def atomic_min(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: value if value < old or value != value else old)

    def atomic_nanmax(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: value if value > old or old != old else old)

    def atomic_nanmin(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: value if value < old or old != old else old)

    def atomic_inc(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: 0 if old >= value else int(old) + 1)

    def atomic_dec(self, site: int, array: Any, index: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda old: value if old == 0 or old > value else int(old) - 1)

    def atomic_cas(self, site: int, array: Any, index: Any, old: Any, value: Any) -> Any:
        return self._atomic(site, array, index, lambda found: value if found == old else found)

    def atomic_compare_and_swap(self, site: int, array: Any, old: Any, value: Any) -> Any:
        return self.atomic_cas(site, array, (0,) * array.rank, old, value)

    # Fences, bits and scalars

    def threadfence(self) -> None:
        self.fenced = True

    threadfence_system = threadfence

    def threadfence_block(self) -> None:
        """Orders nothing that the checks could see."""

    def nanosleep(self, nanoseconds: Any) -> None:
        """Time does not pass."""

    def popc(self, x: Any) -> Any:
        return _bits(x)[0].bit_count() if is_integer(x) else x

    def clz(self, x: Any) -> int:
        value, width = _bits(x)
        return width - value.bit_length()

    def ffs(self, x: Any) -> int:
        value, _ = _bits(x)
        return (value & -value).bit_length()

    def brev(self, x: Any) -> Any:
        value, width = _bits(x)
        return cast(type(x) if isinstance(x, np.generic) else np.int64)(int(f"{value:0{width}b}"[::-1], 2))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        single = all(isinstance(value, np.float32) for value in (x, y, z))
        exact = np.longdouble(x) * np.longdouble(y) + np.longdouble(z)
        return np.float32(exact) if single else np.float64(exact)

    def cbrt(self, x: Any) -> Any:
        return np.cbrt(x)

    def rsqrt(self, x: Any) -> Any:
        return type(x)(1) / np.sqrt(x) if isinstance(x, np.floating) else 1 / np.sqrt(np.float64(x))

    def selp(self, condition: Any, x: Any, y: Any) -> Any:
        return x if condition else y

    def libdevice(self, name: str, *args: Any) -> Any:
        """A function of CUDA's math library."""
        counterpart = LIBDEVICE[name]
        owner, _, function = counterpart.function.rpartition(".")
        values = [cast(dtype)(arg) for dtype, arg in zip(counterpart.takes, args, strict=True)]
        if owner == "math":
            found = MATH.get(getattr(math, function), getattr(math, function))
        else:
            found = getattr(self, function) if owner else {"max": max, "min": min, "abs": abs}[function]
        return loaded(cast(counterpart.gives)(found(*values)))


def _allocate(space: str, shape: Any, dtype: np.dtype) -> tuple[Memory, np.ndarray]:
    shape = tuple(int(n) for n in shape) if isinstance(shape, tuple | list) else (int(shape),)
    buffer = np.full(math.prod(shape) * dtype.itemsize, GARBAGE, np.uint8)
    return Memory(space, buffer, granule(dtype)), buffer.view(dtype).reshape(shape)


def _like(old: Any, value: Any) -> Any:
    """The operand of an atomic in the array's dtype; integers may grow, `put` wraps them."""
    if isinstance(old, np.integer | int) and is_integer(value):
        return int(value)
    return type(old)(value)


def _bits(x: Any) -> tuple[int, int]:
    """An integer's bits and their number."""
    width = 8 * x.itemsize if isinstance(x, np.generic) else 64
    return int(x) & ((1 << width) - 1), width
