"""A GPU for computers that have none: its driver fails as CUDA's does, and kernels run on the host executor.

    a call of the driver needs a current context, and each thread begins without one
    a stream takes work of the device only whose context is current
    copies take what Python's buffers can have: no bfloat16
    addresses of the device are none of the host: reading through one ends the process
    what is put into a stream is done when someone waits for it, and no earlier

`install(devices)` puts it in the place of `numba.cuda`, before miniflow is imported. `calls` counts the driver's calls.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import types
import warnings
from collections import Counter
from typing import Any

import numpy as np

from miniflow.hostcuda import choice, host, numba_cuda
from miniflow.hostcuda.kernel import Kernel
from miniflow.hostcuda.memory import Allocation
from miniflow.hostcuda.memory import DeviceNDArray as HostArray

AWAY = 1 << 60  # from an address of the host to that of the device, which no host has
calls: Counter = Counter()
memory: list[np.ndarray] = []  # what was allocated
lock = threading.RLock()


class CudaAPIError(RuntimeError):
    """What the driver refuses."""


class Contexts(threading.local):
    """Those of a thread, the current one last."""

    def __init__(self) -> None:
        self.stack: list[Device] = []


contexts = Contexts()


def current() -> Device:
    """The device whose context is current; numba makes that of device 0 current if there is none."""
    if not contexts.stack:
        contexts.stack.append(gpus[0])
    return contexts.stack[-1]


def called(name: str, stream: Stream | None = None) -> None:
    """Count a call of the driver, and refuse it without a context, or in another one than that of the stream."""
    calls[name] += 1
    if not contexts.stack:
        raise CudaAPIError(f"[201] Call to {name} results in CUDA_ERROR_INVALID_CONTEXT")
    if stream is not None and stream.device is not contexts.stack[-1]:
        raise CudaAPIError(f"[400] Call to {name} results in CUDA_ERROR_INVALID_HANDLE")


class Device:
    """A GPU, its context, and what is put into its streams."""

    compute_capability = (9, 0)
    name = b"stand-in"

    def __init__(self, number: int):
        self.id, self.streams = number, []

    def __enter__(self) -> None:
        contexts.stack.append(self)

    def __exit__(self, *_: object) -> None:
        assert contexts.stack.pop() is self

    def memalloc(self, nbytes: int) -> MemoryPointer:
        """New memory."""
        called("cuMemAlloc")
        memory.append(np.full(nbytes, 0xA5, np.uint8))
        return MemoryPointer(self, ctypes.c_void_p(memory[-1].ctypes.data + AWAY), nbytes, owns=True)

    def get_memory_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        called("cuMemGetInfo")
        return 1 << 33, 1 << 34

    def synchronize(self) -> None:
        """Do all that is in the streams."""
        called("cuCtxSynchronize")
        for stream in self.streams:
            stream.advance(len(stream.work))


class MemoryPointer:
    """An address of the device."""

    def __init__(self, context: Device, pointer: ctypes.c_void_p, size: int, owns: bool = False):
        self.context, self.device_ctypes_pointer, self.size, self.owns = context, pointer, size, owns

    def __del__(self) -> None:
        if self.owns and not sys.is_finalizing():
            calls["cuMemFree" if contexts.stack else "cuMemFree without a context"] += 1

    @property
    def place(self) -> int:
        """Where it really is."""
        return self.device_ctypes_pointer.value - AWAY


class Stream:
    """A queue of work."""

    def __init__(self, device: Device):
        self.device, self.work, self.done = device, [], 0
        device.streams.append(self)

    def put(self, work: Any) -> None:
        """Add to the end."""
        self.work.append(work)

    def advance(self, count: int) -> None:
        """Do the first `count` pieces of work."""
        with lock:
            while self.done < count:
                work, self.work[self.done] = self.work[self.done], None
                self.done += 1
                work()

    def synchronize(self) -> None:
        """Do all of it."""
        called("cuStreamSynchronize", self)
        self.advance(len(self.work))


class Event:
    """A place in a stream."""

    def record(self, stream: Stream) -> None:
        """Put it at the end."""
        called("cuEventRecord", stream)
        self.stream, self.count = stream, len(stream.work)

    def query(self) -> bool:
        """Whether the stream is there; a little later it is."""
        called("cuEventQuery")
        reached = self.stream.done >= self.count
        self.stream.advance(min(self.stream.done + 1, self.count))
        return reached

    def synchronize(self) -> None:
        """Wait for it."""
        called("cuEventSynchronize")
        self.stream.advance(self.count)

    def wait(self, stream: Stream) -> None:
        """Let a stream wait for it."""
        called("cuStreamWaitEvent", stream)
        stream.put(lambda source=self.stream, count=self.count: source.advance(count))


def host_to_device(dst: MemoryPointer, src: Any, size: int, stream: Stream) -> None:
    """As of pageable memory: the source may change once this has returned. (Of pinned memory it must not.)"""
    called("cuMemcpyHtoDAsync", stream)
    data = bytes(memoryview(src).cast("B"))
    stream.put(lambda: ctypes.memmove(dst.place, data, size))


def device_to_host(dst: Any, src: MemoryPointer, size: int, stream: Stream) -> None:
    """As into pinned memory: nothing is there before someone has waited."""
    called("cuMemcpyDtoHAsync", stream)
    place = np.asarray(memoryview(dst).cast("B"))
    stream.put(lambda: ctypes.memmove(place.ctypes.data, src.place, size))


def device_to_device(dst: MemoryPointer, src: MemoryPointer, size: int, stream: Stream) -> None:
    """Also between two devices."""
    called("cuMemcpyDtoDAsync", stream)
    stream.put(lambda: ctypes.memmove(dst.place, src.place, size))


def device_array(shape: tuple, strides: tuple, dtype: Any, stream: Any = 0, gpu_data: Any = None) -> HostArray:
    """The argument of a launch, as the host executor takes it."""
    spans = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    low, nbytes = sum(min(0, span) for span in spans), sum(map(abs, spans)) + dtype.itemsize
    empty = 0 in shape
    buffer = (ctypes.c_uint8 * nbytes).from_address(memory[0].ctypes.data if empty else gpu_data.place + low)
    array = np.empty(shape, dtype) if empty else np.ndarray(shape, dtype, buffer, -low, strides)
    return HostArray.over(array, Allocation(np.frombuffer(buffer, np.uint8), 0, False))


class Launchable:
    """A kernel of the host executor that runs when its stream comes to it."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def __getitem__(self, configuration: tuple) -> Any:
        grid, block, stream, shared = configuration
        if config.CUDA_LOW_OCCUPANCY_WARNINGS and np.prod(grid) < 128:
            warnings.warn(f"Grid size {grid} will likely result in GPU under-utilization", stacklevel=2)

        def launch(*arguments: Any) -> None:
            current()  # numba looks for a context itself
            called("cuLaunchKernel", stream)
            stream.put(lambda: self.kernel[grid, block, 0, shared](*arguments))

        return launch


def jit(*args: Any, **options: Any) -> Any:
    """The host executor's, whose kernels are launched here."""
    made = host.jit(*args, **options)
    if isinstance(made, Kernel):
        return made if made.device else Launchable(made)
    return made if options.get("device") else lambda function: Launchable(made(function))


def made_in_context(kind: Any) -> Any:
    """A function that makes one of these, of the current device."""
    return lambda *_, **__: kind(current()) if kind is Stream else kind()


def elapsed_time(start: Event, end: Event) -> float:
    """Milliseconds."""
    called("cuEventElapsedTime")
    return 1.0


def pinned_array(shape: tuple, dtype: Any) -> np.ndarray:
    """Memory of the host, with what lies there."""
    called("cuMemHostAlloc")
    return np.full(shape, 77, dtype)


def select_device(number: int) -> Device:
    """Make a device current, for good."""
    contexts.stack.append(gpus[number])
    return gpus[number]


gpus: list[Device] = []
config = types.ModuleType("gpu_stand_in.core.config")
config.CUDA_LOW_OCCUPANCY_WARNINGS = 1
cuda = types.ModuleType("gpu_stand_in.cuda")
cuda.__getattr__ = lambda name: getattr(host, name)  # the language of kernels
vars(cuda).update(
    jit=jit, gpus=gpus, stream=made_in_context(Stream), default_stream=made_in_context(Stream),
    event=made_in_context(Event), event_elapsed_time=elapsed_time, select_device=select_device,
    current_context=current, get_current_device=current, synchronize=lambda: current().synchronize(),
    is_available=lambda: True, cuda_error=lambda: None, pinned_array=pinned_array,
)  # fmt: skip


def install(devices: int = 1) -> None:
    """Let this process have so many GPUs."""
    gpus.extend(map(Device, range(devices)))
    memory.append(np.zeros(1, np.uint8))
    package = numba_cuda.Package("stand-in", "gpu_stand_in", "gpu_stand_in.cuda", "gpu_stand_in")
    driver, arrays = types.ModuleType("driver"), types.ModuleType("devicearray")
    vars(driver).update(
        MemoryPointer=MemoryPointer, CudaAPIError=CudaAPIError, host_to_device=host_to_device,
        device_to_host=device_to_host, device_to_device=device_to_device,
    )  # fmt: skip
    arrays.DeviceNDArray = device_array
    modules = {"cuda": cuda, "random": host.random, "core.config": config}
    modules |= {"cudadrv.driver": driver, "cudadrv.devicearray": arrays}
    sys.modules.update({f"gpu_stand_in.{name}": module for name, module in modules.items()})
    choice.gpu_count = lambda: devices
    choice.package = numba_cuda.package = lambda: package
