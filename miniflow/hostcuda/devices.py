"""Pretend devices, as many as MINIFLOW_DEVICES says, with their streams and events.

All of them are this computer's CPU and memory. Each has a number and the limits of a GPU of compute capability 9.0, so
that a launch which no GPU would accept is refused here too. Which device is current is a matter of each thread, as in
CUDA. Every launch and copy is finished when its call returns, so a stream is always empty: that is one of the orders
which CUDA permits. Events read a real clock.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any, NamedTuple
from uuid import UUID

from miniflow.hostcuda.errors import CudaDeviceError
from miniflow.hostcuda.stream_order import ALL, HOST, handle_of, record_work, wait

__all__ = """
    Event MemoryInfo Stream close current_context default_stream defer_cleanup detect event event_elapsed_time
    get_current_device gpus legacy_default_stream list_devices per_thread_default_stream profile_start
    profile_stop profiling require_context select_device stream synchronize
""".split()

LIMITS = {  # of an H100, compute capability 9.0; names as numba.cuda's devices have them
    "MAX_THREADS_PER_BLOCK": 1024, "MAX_BLOCK_DIM_X": 1024, "MAX_BLOCK_DIM_Y": 1024, "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1, "MAX_GRID_DIM_Y": 65535, "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 * 1024, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 * 1024,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 * 1024, "TOTAL_CONSTANT_MEMORY": 64 * 1024, "WARP_SIZE": 32,
    "MULTIPROCESSOR_COUNT": 132, "MAX_THREADS_PER_MULTI_PROCESSOR": 2048, "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
}  # fmt: skip
MAX_THREADS = LIMITS["MAX_THREADS_PER_BLOCK"]
MAX_BLOCK = tuple(LIMITS[f"MAX_BLOCK_DIM_{axis}"] for axis in "XYZ")

MemoryInfo = namedtuple("MemoryInfo", "free total")


def resident_blocks(threads: int, shared: int) -> int:
    """How many blocks an H100 runs at once, as far as threads and shared memory limit it; registers may do so more.

    >>> resident_blocks(1024, 0), resident_blocks(256, 100 * 1024)
    (264, 264)
    """
    warps = -(-threads // LIMITS["WARP_SIZE"])
    by_threads = LIMITS["MAX_THREADS_PER_MULTI_PROCESSOR"] // LIMITS["WARP_SIZE"] // warps
    by_memory = LIMITS["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"] // (shared + 1024)  # CUDA keeps 1 KB of each block's
    return LIMITS["MULTIPROCESSOR_COUNT"] * min(by_threads, by_memory, LIMITS["MAX_BLOCKS_PER_MULTIPROCESSOR"])


class Rank(NamedTuple):
    """The blocks that a kernel is compiled for: how many axes they have, and whether their rows are whole warps.

    With `sizes` for blocks of these sizes only: constants, so that LLVM knows how often the loops over threads run.
    """

    axes: int
    whole_warps: bool
    sizes: tuple[int, int, int] | None = None


def rank_of(block: tuple[int, int, int]) -> Rank:
    """The rank of a block of these sizes.

    >>> rank_of((256, 1, 1)), rank_of((8, 8, 1))
    (Rank(axes=1, whole_warps=True, sizes=None), Rank(axes=2, whole_warps=False, sizes=None))
    """
    axes = 3 if block[2] > 1 else 2 if block[1] > 1 else 1
    return Rank(axes, block[0] % LIMITS["WARP_SIZE"] == 0)


class CurrentDevice(threading.local):
    """The number of the device that this thread uses; `stack` holds those outside of `with cuda.gpus[i]:`."""

    index = 0
    stack: tuple[int, ...] = ()


current = CurrentDevice()


class Deallocations:
    """`context.deallocations`: memory that waits to be freed, of which there never is any here."""

    is_locked = False

    def __len__(self) -> int:
        return 0

    def clear(self) -> None:
        """Return at once: memory is freed as soon as no array uses it."""

    @contextmanager
    def disable(self) -> Iterator[None]:
        """A block in which a GPU frees nothing."""
        yield


class Device:
    """A pretend GPU, which is its own context, and an entry of `cuda.gpus`: `with cuda.gpus[1]:` makes it current."""

    compute_capability = (9, 0)
    supports_float16, supports_bfloat16 = True, False
    deallocations = Deallocations()

    def __init__(self, index: int):
        self.id = index
        self.name = "miniflow host executor (CPU)"
        self.uuid = f"GPU-{UUID(int=index)}"
        vars(self).update(LIMITS)

    device = property(lambda self: self)

    def get_primary_context(self) -> Device:
        """The context of the device: itself."""
        return self

    def push(self) -> None:
        """Make the device current until `pop`."""
        self.__enter__()

    def pop(self) -> None:
        """Make the device current that was so before `push`."""
        self.__exit__()

    def get_memory_info(self) -> MemoryInfo:
        """Free and total bytes: this computer's memory, of which nothing that is in use is subtracted."""
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else sys.maxsize
        return MemoryInfo(total, total)

    def synchronize(self) -> None:
        """Return at once: nothing is under way."""
        synchronize()

    def reset(self) -> None:
        """On a GPU, all of a program's memory on it is freed. Here arrays stay valid."""

    def __enter__(self) -> Device:
        current.stack, current.index = (*current.stack, current.index), self.id
        return self

    def __exit__(self, *raised: Any) -> None:
        *current.stack, current.index = current.stack or (0,)

    def __repr__(self) -> str:
        return f"<CUDA device {self.id} '{self.name}'>"


@cache
def devices() -> list[Device]:
    """All of them, made once.

    Raises:
        CudaDeviceError: if MINIFLOW_DEVICES is not a positive number.
    """
    text = os.environ.get("MINIFLOW_DEVICES", "1")
    if not text.strip().isdecimal() or int(text) < 1:
        raise CudaDeviceError(f"MINIFLOW_DEVICES is {text!r}; expected how many devices to pretend, 1 or more")
    return [Device(index) for index in range(int(text))]


class DeviceList(Sequence):
    """`cuda.gpus`: the pretend devices in order."""

    current = property(lambda self: get_current_device())

    def __len__(self) -> int:
        return len(devices())

    def __getitem__(self, index: int | slice) -> Any:
        try:
            return devices()[index]
        except IndexError:
            raise IndexError(f"device {index} of cuda.gpus, which has {len(self)}; see MINIFLOW_DEVICES") from None


gpus = DeviceList()


def select_device(device_id: int) -> Device:
    """Make a device the current one of this thread.

    Raises:
        CudaDeviceError: if it does not exist.
    """
    if device_id not in range(len(gpus)):
        raise CudaDeviceError(
            f"device {device_id!r} does not exist: there are {len(gpus)}, numbered from 0; "
            "set MINIFLOW_DEVICES before starting Python for more"
        )
    current.index = int(device_id)
    return get_current_device()


def get_current_device() -> Device:
    """The device that this thread uses."""
    return devices()[current.index]


def current_context(devnum: int | None = None) -> Device:
    """The context of the current device, or of device `devnum`, which becomes current."""
    return get_current_device() if devnum is None else select_device(devnum)


def require_context(function: Callable) -> Callable:
    """The function itself: on a GPU, it would first make a context."""
    return function


def list_devices() -> DeviceList:
    """All pretend devices."""
    return gpus


def close() -> None:
    """Make device 0 current again in this thread. Arrays stay valid."""
    current.stack, current.index = (), 0


def detect() -> bool:
    """Print the pretend devices; True."""
    print(f"Found {len(gpus)} CUDA devices, pretended by miniflow's host executor, which runs kernels on the CPU")
    for device in gpus:
        print(f"id {device.id}    {device.name!r}")
    return True


class Stream:
    """A queue of work for one device, in which nothing ever waits. The handles 0 to 2 are CUDA's default streams."""

    def __init__(self, handle: int | None = None):
        self.device = current.index
        self.handle = id(self) if handle is None else handle

    def __int__(self) -> int:
        return self.handle

    def __repr__(self) -> str:
        return f"<{'Stream' if self.handle > 2 else 'Default stream'} of device {self.device} (host executor)>"

    def synchronize(self) -> None:
        """Return at once: nothing is under way. Checks take note."""
        wait(HOST, record_work(self))

    def add_callback(self, callback: Callable[[Stream, int, Any], Any], arg: Any = None) -> None:
        """Call `callback(stream, status, arg)` when the work given so far is finished: now."""
        callback(self, 0, arg)

    async def async_done(self) -> Stream:
        """The stream, when the work given so far is finished: at once."""
        self.synchronize()
        return self

    @contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        """A block at whose end all work of the stream is finished."""
        yield self
        self.synchronize()


class Event:
    """A point in a stream. `record` notes the time, whatever `timing` says."""

    def __init__(self, timing: bool = True):
        self.time: float | None = None
        self.work: dict = {}  # that comes before the event, for the checks

    def record(self, stream: Stream | int = 0) -> None:
        """Note that the stream has come so far, now."""
        self.time, self.work = time.perf_counter(), record_work(stream)

    def query(self) -> bool:
        """Whether the work before the event is finished: always."""
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """Return at once: the work before the event is finished."""
        wait(HOST, self.work)

    def wait(self, stream: Stream | int = 0) -> None:
        """Make a stream wait for the event, which has happened."""
        wait(HOST if handle_of(stream) == ALL else handle_of(stream), self.work)

    def elapsed_time(self, event_end: Event) -> float:
        """Milliseconds from this event to `event_end`.

        Raises:
            CudaDeviceError: if one of them was not recorded.
        """
        if None in (self.time, event_end.time):
            raise CudaDeviceError("elapsed_time: an event was not recorded; call its record() first")
        return (event_end.time - self.time) * 1e3


def synchronize() -> None:
    """Wait for the current device, which has nothing under way."""
    wait(HOST, record_work(0))


stream, event, event_elapsed_time = Stream, Event, Event.elapsed_time
default_stream, legacy_default_stream, per_thread_default_stream = (partial(Stream, handle) for handle in range(3))


profile_start = profile_stop = profiling = nullcontext  # for NVIDIA's profilers, which see nothing of this
defer_cleanup = nullcontext  # freeing host memory stalls nothing
