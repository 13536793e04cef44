"""Streams and events, and which stream and device are current in a thread.

A stream is a queue of work that a device does in order. Every device has a default stream; `with stream(s):` makes
another one current. The emulated device does all work at once, in order, so that waiting is over when it is asked for.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from miniflow.hostcuda import cuda
from miniflow.hostcuda.choice import current_device


class Stream:
    """A queue of work on one device, which is done in order. As `torch.cuda.Stream`.

    Attributes:
        device_index: the device.
        raw: the stream of numba.cuda, or of its stand-in.
    """

    def __init__(self, device_index: int | None = None, *, raw: Any = None):
        self.device_index = current_device() if device_index is None else device_index
        with selected(self.device_index):
            self.raw = cuda.stream() if raw is None else raw

    def synchronize(self) -> None:
        """Wait until all work put into the stream is done."""
        with selected(self.device_index):
            self.raw.synchronize()

    def query(self) -> bool:
        """Whether all work put into the stream is done."""
        return self.record_event().query()

    def record_event(self, event: Event | None = None) -> Event:
        """Put a mark behind the work so far, and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let work that is put into the stream from now on wait for the event."""
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        """Let work that is put into the stream from now on wait for what `other` has to do now."""
        self.wait_event(other.record_event())

    def __repr__(self) -> str:
        return f"Stream(device='cuda:{self.device_index}')"


class Event:
    """A mark in a stream. As `torch.cuda.Event`.

    Args:
        enable_timing: whether the time between two events will be asked for.
    """

    def __init__(self, enable_timing: bool = False):
        self.enable_timing = enable_timing
        self.raw: Any = None
        self.device_index = 0  # of the stream in which it stands

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind the work that the stream (the current one) has now."""
        stream = current(current_device()) if stream is None else stream
        self.device_index = stream.device_index
        with selected(self.device_index):
            if self.raw is None:
                self.raw = cuda.event(timing=self.enable_timing)
            self.raw.record(stream.raw)

    def query(self) -> bool:
        """Whether all work before the mark is done; True if it was never recorded."""
        with selected(self.device_index):
            return self.raw is None or self.raw.query()

    def synchronize(self) -> None:
        """Wait until all work before the mark is done."""
        if self.raw is not None:
            with selected(self.device_index):
                self.raw.synchronize()

    def wait(self, stream: Stream | None = None) -> None:
        """Let the stream (the current one) wait for the mark."""
        if self.raw is not None:
            stream = current(current_device()) if stream is None else stream
            with selected(stream.device_index):
                self.raw.wait(stream.raw)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds between this mark and `end`."""
        with selected(self.device_index):
            return cuda.event_elapsed_time(self.raw, end.raw)


class _Current(threading.local):
    def __init__(self):
        self.streams: dict[int, Stream] = {}


_current = _Current()
_defaults: dict[int, Stream] = {}
_lock = threading.Lock()


def default(device_index: int) -> Stream:
    """The default stream of a device."""
    with _lock:
        if device_index not in _defaults:
            with selected(device_index):
                new_stream = getattr(cuda, "default_stream", cuda.stream)  # numba's own simulator has but one kind
                _defaults[device_index] = Stream(device_index, raw=new_stream())
        return _defaults[device_index]


@functools.cache
def copying(device_index: int) -> Stream:
    """The stream of a device that copies to the host while others compute."""
    return Stream(device_index)


def current(device_index: int) -> Stream:
    """The stream into which this thread puts its work on a device."""
    current_stream = _current.streams.get(device_index)
    if current_stream is None:
        current_stream = _current.streams[device_index] = default(device_index)
    return current_stream


@contextmanager
def stream(stream: Stream) -> Iterator[None]:
    """Make a stream, and its device, current for a `with` block. As `torch.cuda.stream`."""
    previous = current(stream.device_index)
    _current.streams[stream.device_index] = stream
    try:
        with selected(stream.device_index):
            yield
    finally:
        _current.streams[stream.device_index] = previous


def device_count() -> int:
    """How many devices there are."""
    return len(cuda.gpus)


@functools.cache
def only_one() -> bool:
    """Whether there is a single device, so that it need not be selected."""
    return device_count() == 1


def select(device_index: int) -> None:
    """Let this thread work on another device."""
    cuda.select_device(device_index)


def selected(device_index: int) -> Any:
    """A context manager that makes a device current for a `with` block. Every call of the driver stands in one: a
    thread begins without a current device."""
    return cuda.gpus[device_index]
