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

from miniflow.hostcuda.errors import CudaDeviceError
from miniflow.hostcuda.stream_order import ALL, HOST, given, handle_of, wait

__all__ = """
    Event Stream close current_context default_stream defer_cleanup detect event event_elapsed_time get_current_device
    gpus legacy_default_stream list_devices per_thread_default_stream profile_start profile_stop profiling
    select_device stream synchronize
""".split()

LIMITS = {  # of an H100, compute capability 9.0; names as numba.cuda's devices have them
    "MAX_THREADS_PER_BLOCK": 1024, "MAX_BLOCK_DIM_X": 1024, "MAX_BLOCK_DIM_Y": 1024, "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1, "MAX_GRID_DIM_Y": 65535, "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 * 1024, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 * 1024,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 * 1024, "TOTAL_CONSTANT_MEMORY": 64 * 1024, "WARP_SIZE": 32,
    "MAX_REGISTERS_PER_BLOCK": 65536, "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536, "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_MULTI_PROCESSOR": 2048, "MAX_BLOCKS_PER_MULTIPROCESSOR": 32, "COOPERATIVE_LAUNCH": 1,
    "CAN_MAP_HOST_MEMORY": 1, "MANAGED_MEMORY": 1, "UNIFIED_ADDRESSING": 1, "CONCURRENT_KERNELS": 0, "INTEGRATED": 1,
    "ASYNC_ENGINE_COUNT": 0, "KERNEL_EXEC_TIMEOUT": 0, "TCC_DRIVER": 0, "PCI_BUS_ID": 0, "PCI_DEVICE_ID": 0,
}  # fmt: skip
MAX_THREADS = LIMITS["MAX_THREADS_PER_BLOCK"]
MAX_BLOCK = tuple(LIMITS[f"MAX_BLOCK_DIM_{axis}"] for axis in "XYZ")
MAX_STATIC_SHARED = LIMITS["MAX_SHARED_MEMORY_PER_BLOCK"]

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
    """What kernels are compiled for: blocks that extend along so many axes, and whether their rows are whole warps."""

    axes: int
    whole_warps: bool


def rank_of(block: tuple[int, int, int]) -> Rank:
    """That of a block's sizes.

    >>> rank_of((256, 1, 1)), rank_of((8, 8, 1))
    (Rank(axes=1, whole_warps=True), Rank(axes=2, whole_warps=False))
    """
    axes = 3 if block[2] > 1 else 2 if block[1] > 1 else 1
    return Rank(axes, block[0] % LIMITS["WARP_SIZE"] == 0)


class CurrentDevice(threading.local):
    """The number of the device that this thread uses; `stack` holds those outside of `with cuda.gpus[i]:`."""

    index = 0

    def __init__(self) -> None:
        self.stack: list[int] = []


current = CurrentDevice()


class Device:
    """A pretend GPU, which is also its own context, and an entry of `cuda.gpus`: `with cuda.gpus[1]:` makes it current.

    Attributes:
        sizes: the bytes of each allocation that is in use, by its id.
    """

    compute_capability = (9, 0)
    supports_float16 = True
    supports_bfloat16 = False

    def __init__(self, index: int):
        self.id = index
        self.name = "miniflow host executor (CPU)"
        self.uuid = f"GPU-00000000-0000-0000-0000-{index:012d}"
        self.sizes: dict[int, int] = {}
        vars(self).update(LIMITS)

    @property
    def device(self) -> Device:
        """The device of this context."""
        return self

    def get_primary_context(self) -> Device:
        return self

    def get_memory_info(self) -> MemoryInfo:
        """Free and total bytes. The total is this computer's memory; what other programs use is not subtracted."""
        total = sys.maxsize
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return MemoryInfo(max(total - sum(list(self.sizes.values())), 0), total)

    def synchronize(self) -> None:
        """Return at once: nothing is under way."""
        synchronize()

    def reset(self) -> None:
        """On a GPU, all of a program's memory on it is freed. Here arrays stay valid."""

    def __enter__(self) -> Device:
        current.stack.append(current.index)
        current.index = self.id
        return self

    def __exit__(self, *raised: Any) -> None:
        current.index = current.stack.pop() if current.stack else 0

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

    lst = property(lambda self: devices())
    current = property(lambda self: get_current_device())

    def __len__(self) -> int:
        return len(devices())

    def __getitem__(self, index: int | slice) -> Any:
        try:
            return devices()[index]
        except IndexError:
            raise IndexError(f"device {index} of cuda.gpus, which has {len(self)}; see MINIFLOW_DEVICES") from None

    def __repr__(self) -> str:
        return repr(devices())


gpus = DeviceList()


def select_device(device_id: int) -> Device:
    """Make a device the current one of this thread.

    Raises:
        CudaDeviceError: if it does not exist.
    """
    if not hasattr(device_id, "__index__"):
        raise CudaDeviceError(f"a device is chosen by its number, got {device_id!r}")
    number, count = device_id.__index__(), len(gpus)
    if not 0 <= number < count:
        raise CudaDeviceError(
            f"device {number} does not exist: there are {count}, numbered from 0; "
            f"set MINIFLOW_DEVICES={max(number, 0) + 1} before starting Python for more"
        )
    current.index = number
    return devices()[number]


def get_current_device() -> Device:
    """The device that this thread uses."""
    return devices()[current.index]


def current_context(devnum: int | None = None) -> Device:
    """The context of the current device, or of device `devnum`, which becomes current."""
    return get_current_device() if devnum is None else select_device(devnum)


def list_devices() -> DeviceList:
    """All pretend devices."""
    return gpus


def close() -> None:
    """Make device 0 current again in this thread. Arrays stay valid."""
    current.stack.clear()
    current.index = 0


def detect() -> bool:
    """Print the pretend devices; True."""
    print(f"Found {len(gpus)} CUDA devices, pretended by miniflow's host executor")
    for device in gpus:
        print(f"id {device.id}    {device.name!r:>40} [RUNS ON THE CPU]")
        print(f"{'Compute Capability':>40}: {'.'.join(map(str, device.compute_capability))} (limits only)")
    return True


class Stream:
    """A queue of work for one device, in which nothing ever waits. The handles 0 to 2 are CUDA's default streams."""

    def __init__(self, handle: int | None = None):
        self.device = current.index
        self.handle = id(self) if handle is None else handle

    def __int__(self) -> int:
        return self.handle

    def __repr__(self) -> str:
        name = {0: "Default stream", 1: "Legacy default stream", 2: "Per-thread default stream"}
        return f"<{name.get(self.handle, 'Stream')} of device {self.device} (host executor)>"

    def synchronize(self) -> None:
        """Return at once: nothing is under way. Checks take note."""
        wait(HOST, given(self))

    @contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        """A block at whose end all work of the stream is finished."""
        yield self
        self.synchronize()

    def add_callback(self, callback: Callable[[Stream, int, Any], Any], arg: Any = None) -> None:
        """Call `callback(stream, status, arg)` when the work given so far is finished, which is now. `status` is 0."""
        callback(self, 0, arg)


class Event:
    """A point in a stream. `record` notes the time."""

    def __init__(self, timing: bool = True):
        self.timing = timing
        self.time: float | None = None
        self.work: dict = {}  # that comes before the event, for the checks

    def record(self, stream: Stream | int = 0) -> None:
        """Note that the stream has come so far, now."""
        self.time, self.work = time.perf_counter(), given(stream)

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
            CudaDeviceError: if one of them was not recorded, or was created with timing=False.
        """
        for which, event in (("the first", self), ("the second", event_end)):
            if not event.timing:
                raise CudaDeviceError(f"elapsed_time: {which} event was created with timing=False")
            if event.time is None:
                raise CudaDeviceError(f"elapsed_time: {which} event was not recorded; call its record() first")
        return (event_end.time - self.time) * 1e3


def synchronize() -> None:
    """Wait for the current device, which has nothing under way."""
    wait(HOST, given(0))


stream, event, event_elapsed_time = Stream, Event, Event.elapsed_time
default_stream, legacy_default_stream, per_thread_default_stream = (partial(Stream, handle) for handle in range(3))


def profile_start() -> None:
    """For NVIDIA's profilers, which see nothing of this."""


profile_stop = profile_start
profiling = defer_cleanup = nullcontext  # the same; and freeing host memory stalls nothing
