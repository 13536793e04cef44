"""Streams and events. Every launch and copy is finished when its call returns, so a stream is always empty.

That is one of the orders that CUDA permits: what a stream was given before is done before. Events read a real clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from miniflow.hostcuda import devices
from miniflow.hostcuda.errors import CudaDeviceError

LEGACY_DEFAULT, PER_THREAD_DEFAULT = 1, 2  # the handles that CUDA gives to its two default streams


class Stream:
    """A queue of work for one device, in which nothing ever waits."""

    def __init__(self, handle: int | None = None, name: str = "Stream"):
        self.device = devices.current.index
        self.handle = id(self) if handle is None else handle
        self.external = False
        self._name = name

    def __int__(self) -> int:
        return self.handle

    def __repr__(self) -> str:
        return f"<{self._name} of device {self.device} (host executor)>"

    def synchronize(self) -> None:
        """Return at once: nothing is under way."""

    @contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        """A block at whose end all work of the stream is finished."""
        yield self

    def add_callback(self, callback: Callable[[Stream, int, Any], Any], arg: Any = None) -> None:
        """Call `callback(stream, status, arg)` when the work given so far is finished, which is now. `status` is 0."""
        callback(self, 0, arg)

    def async_done(self) -> asyncio.Future:
        """A future that is done: `await stream.async_done()` inside a coroutine."""
        future = asyncio.get_running_loop().create_future()
        future.set_result(self)
        return future


def stream() -> Stream:
    """A new stream of the current device."""
    return Stream()


def default_stream() -> Stream:
    """The stream that a launch without one uses."""
    return Stream(0, "Default stream")


def legacy_default_stream() -> Stream:
    return Stream(LEGACY_DEFAULT, "Legacy default stream")


def per_thread_default_stream() -> Stream:
    return Stream(PER_THREAD_DEFAULT, "Per-thread default stream")


def external_stream(ptr: int) -> NoReturn:
    """Refused: a stream of the CUDA driver means nothing to the host executor."""
    raise CudaDeviceError(f"external_stream({ptr:#x}): the host executor cannot use a stream of the CUDA driver")


class Event:
    """A point in a stream. `record` notes the time."""

    def __init__(self, timing: bool = True):
        self.timing = timing
        self.device = devices.current.index
        self._time: float | None = None

    def record(self, stream: Stream | int = 0) -> None:
        """Note that the stream has come so far, now."""
        self._time = time.perf_counter()

    def query(self) -> bool:
        """Whether the work before the event is finished: always."""
        return True

    def synchronize(self) -> None:
        """Return at once: the work before the event is finished."""

    def wait(self, stream: Stream | int = 0) -> None:
        """Make a stream wait for the event, which has happened."""

    def elapsed_time(self, event_end: Event) -> float:
        """Milliseconds from this event to `event_end`.

        Raises:
            CudaDeviceError: if one of them was not recorded, or was created with timing=False.
        """
        for which, event in (("the first", self), ("the second", event_end)):
            if not event.timing:
                raise CudaDeviceError(f"elapsed_time: {which} event was created with timing=False")
            if event._time is None:
                raise CudaDeviceError(f"elapsed_time: {which} event was not recorded; call its record() first")
        return (event_end._time - self._time) * 1e3


def event(timing: bool = True) -> Event:
    """A new event."""
    return Event(timing)


def event_elapsed_time(evtstart: Event, evtend: Event) -> float:
    """Milliseconds between two recorded events."""
    return evtstart.elapsed_time(evtend)


def synchronize() -> None:
    """Wait for the current device, which has nothing under way."""


@contextmanager
def defer_cleanup() -> Iterator[None]:
    """On a GPU, memory freed in the block is given back after it. Freeing host memory stalls nothing: no effect."""
    yield


def profile_start() -> None:
    """For NVIDIA's profilers; no effect here. `@cuda.jit(profile=True)` counts memory accesses."""


def profile_stop() -> None:
    """For NVIDIA's profilers; no effect here."""


@contextmanager
def profiling() -> Iterator[None]:
    """For NVIDIA's profilers; no effect here."""
    yield
