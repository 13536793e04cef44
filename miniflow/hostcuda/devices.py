"""Pretend devices: as many as MINIFLOW_DEVICES says, all of them this computer's CPU and memory.

Each has a number, its own count of memory in use, and the limits of a GPU of compute capability 9.0, so that a launch
which no GPU would accept is refused here too. Which device is current is a matter of each thread, as in CUDA.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque, namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

from miniflow.hostcuda.errors import CudaDeviceError

COMPUTE_CAPABILITY = (9, 0)
LIMITS = {  # of compute capability 9.0, from the CUDA C++ programming guide; names as numba.cuda's devices have them
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "MAX_GRID_DIM_Y": 65535,
    "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 * 1024,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 * 1024,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 * 1024,
    "TOTAL_CONSTANT_MEMORY": 64 * 1024,
    "WARP_SIZE": 32,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_THREADS_PER_MULTI_PROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "CAN_MAP_HOST_MEMORY": 1,
    "MANAGED_MEMORY": 1,
    "UNIFIED_ADDRESSING": 1,
    "COOPERATIVE_LAUNCH": 1,
    "CONCURRENT_KERNELS": 0,
    "ASYNC_ENGINE_COUNT": 0,
    "KERNEL_EXEC_TIMEOUT": 0,
    "TCC_DRIVER": 0,
    "INTEGRATED": 1,
    "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 2,
    "PCI_BUS_ID": 0,
    "PCI_DEVICE_ID": 0,
}

MemoryInfo = namedtuple("MemoryInfo", "free total")


class CurrentDevice(threading.local):
    """The number of the device that this thread uses; `stack` holds those outside of `with cuda.gpus[i]:`."""

    index = 0

    def __init__(self) -> None:
        self.stack: list[int] = []


current = CurrentDevice()


@cache
def device_count() -> int:
    """How many pretend devices there are: MINIFLOW_DEVICES, read once; 1 without it.

    Raises:
        CudaDeviceError: if it is not a positive number.
    """
    text = os.environ.get("MINIFLOW_DEVICES", "1")
    if not text.strip().isdecimal() or int(text) < 1:
        raise CudaDeviceError(f"MINIFLOW_DEVICES is {text!r}; expected how many devices to pretend, 1 or more")
    return int(text)


def check_index(index: Any) -> int:
    """A device number as an int.

    Raises:
        CudaDeviceError: if there is no such device.
    """
    try:
        number = index.__index__()
    except AttributeError:
        raise CudaDeviceError(f"a device is chosen by its number, got {index!r}") from None
    if not 0 <= number < device_count():
        raise CudaDeviceError(
            f"device {number} does not exist: there are {device_count()}, numbered from 0; "
            f"set MINIFLOW_DEVICES={max(number, 0) + 1} before starting Python for more"
        )
    return number


class MemoryCount:
    """Bytes in use on one device. Freed sizes wait in a deque, since arrays may die in any thread at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._freed: deque[int] = deque()
        self._used = 0
        self._peak = 0

    def add(self, nbytes: int) -> None:
        with self._lock:
            self._settle()
            self._used += nbytes
            self._peak = max(self._peak, self._used)

    def free(self, nbytes: int) -> None:
        """Safe to call from `__del__`: it takes no lock."""
        self._freed.append(nbytes)

    def _settle(self) -> None:
        while self._freed:
            self._used -= self._freed.popleft()

    @property
    def used(self) -> int:
        with self._lock:
            self._settle()
            return self._used

    @property
    def peak(self) -> int:
        with self._lock:
            return self._peak

    def reset_peak(self) -> None:
        with self._lock:
            self._settle()
            self._peak = self._used


def physical_memory() -> int:
    """Bytes of this computer's memory, which all pretend devices share."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


class Device:
    """A pretend GPU, with the attributes of numba.cuda's `Device` that make sense for one."""

    compute_capability = COMPUTE_CAPABILITY
    supports_float16 = True
    supports_bfloat16 = False
    supports_fp8 = False

    def __init__(self, index: int):
        self.id = index
        self.name = "miniflow host executor (CPU)"
        self.uuid = f"GPU-00000000-0000-0000-0000-{index:012d}"
        self.memory = MemoryCount()
        self.MULTIPROCESSOR_COUNT = os.cpu_count() or 1
        vars(self).update(LIMITS)

    def get_primary_context(self) -> Context:
        return context_of(self.id)

    def reset(self) -> None:
        """Forget the peak of memory in use; arrays stay valid."""
        self.memory.reset_peak()

    def __repr__(self) -> str:
        return f"<CUDA device {self.id} '{self.name}'>"


class Context:
    """What `cuda.current_context()` returns: memory information, and streams and events of one device."""

    def __init__(self, device: Device):
        self.device = device
        self.deallocations = SimpleNamespace(clear=lambda: None)  # memory is given back at once

    @property
    def id(self) -> int:
        return self.device.id

    def get_memory_info(self) -> MemoryInfo:
        """Free and total bytes. The total is this computer's memory; what other programs use is not subtracted."""
        total = physical_memory()
        return MemoryInfo(max(total - self.device.memory.used, 0), total)

    def synchronize(self) -> None:
        """Nothing to wait for: every launch and copy is finished when its call returns."""

    def reset(self) -> None:
        self.device.reset()

    @contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """As `cuda.defer_cleanup`."""
        yield

    def push(self) -> None:
        enter(self.id)

    def pop(self) -> None:
        leave()

    def __repr__(self) -> str:
        return f"<CUDA context of device {self.id} (host executor)>"


class ManagedDevice:
    """An entry of `cuda.gpus`: a device, and `with cuda.gpus[1]:` makes it current for the block."""

    def __init__(self, device: Device):
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def __enter__(self) -> None:
        enter(self._device.id)

    def __exit__(self, *raised: Any) -> None:
        leave()

    def __repr__(self) -> str:
        return f"<Managed Device {self._device.id}>"


class DeviceList:
    """`cuda.gpus`: the pretend devices in order."""

    @property
    def lst(self) -> list[ManagedDevice]:
        return [managed(index) for index in range(device_count())]

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self.lst[index]
        number = index.__index__()
        if not -device_count() <= number < device_count():
            raise IndexError(f"device {number} of cuda.gpus, which has {device_count()}; see MINIFLOW_DEVICES")
        return managed(number % device_count())

    def __len__(self) -> int:
        return device_count()

    def __iter__(self) -> Iterator[ManagedDevice]:
        return iter(self.lst)

    def __repr__(self) -> str:
        return ", ".join(map(repr, self.lst))

    @property
    def current(self) -> ManagedDevice:
        return managed(current.index)


gpus = DeviceList()


@cache
def device_of(index: int) -> Device:
    """The pretend device of that number."""
    return Device(check_index(index))


@cache
def context_of(index: int) -> Context:
    return Context(device_of(index))


@cache
def managed(index: int) -> ManagedDevice:
    return ManagedDevice(device_of(index))


def enter(index: int) -> None:
    """Make a device current until `leave`."""
    current.stack.append(current.index)
    current.index = index


def leave() -> None:
    """Return to the device that was current before `enter`."""
    current.index = current.stack.pop() if current.stack else 0


def current_context(devnum: int | None = None) -> Context:
    """The context of the current device, or of device `devnum`, which becomes current."""
    if devnum is not None:
        select_device(devnum)
    return context_of(current.index)


def select_device(device_id: int) -> Device:
    """Make a device the current one of this thread.

    Raises:
        CudaDeviceError: if it does not exist.
    """
    current.index = check_index(device_id)
    return device_of(current.index)


def get_current_device() -> Device:
    """The device that this thread uses."""
    return device_of(current.index)


def list_devices() -> DeviceList:
    """All pretend devices."""
    return gpus


def close() -> None:
    """Make device 0 current again in this thread. Arrays stay valid, as nothing needs to be given back."""
    current.stack.clear()
    current.index = 0


def detect() -> bool:
    """Print the pretend devices; True."""
    print(f"Found {device_count()} CUDA devices, pretended by miniflow's host executor")
    for device in gpus:
        print(f"id {device.id}    {device.name!r:>40} [RUNS ON THE CPU]")
        print(
            f"{'Compute Capability':>40}: {device.compute_capability[0]}.{device.compute_capability[1]} (limits only)"
        )
        print(f"{'Cores':>40}: {device.MULTIPROCESSOR_COUNT}")
    return True
