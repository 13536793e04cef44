"""A piece of a pretend device's memory: bytes of the host, counted, and a record of which of them were written."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from miniflow.hostcuda import devices
from miniflow.hostcuda.choice import checks_are_on
from miniflow.hostcuda.errors import DeviceArrayTypeError

ALIGNMENT = 256  # bytes, as cudaMalloc aligns
GARBAGE = 0xFF  # NaN as a float, -1 as an integer


class Allocation:
    """A piece of one device's memory.

    Attributes:
        buffer: its bytes, a uint8 array.
        device: the number of the device.
        initialised: whether all bytes were written, or a bool array that says so for each byte.
    """

    __slots__ = ("buffer", "device", "initialised", "_count", "_counted", "__weakref__")

    def __init__(self, buffer: np.ndarray, device: int, initialised: bool | np.ndarray = True, counted: int = 0):
        self.buffer = buffer
        self.device = device
        self.initialised = initialised
        self._counted = counted
        if counted:
            self._count = devices.device_of(device).memory
            self._count.add(counted)

    def __del__(self) -> None:
        if self._counted:
            self._count.free(self._counted)

    def __reduce__(self) -> NoReturn:
        raise DeviceArrayTypeError("device memory cannot be pickled or deep-copied: copy_to_host() first")

    @classmethod
    def new(cls, nbytes: int, initialised: bool = False) -> Allocation:
        """Memory of the current device, aligned as on a GPU. Under MINIFLOW_CHECK=1 it is filled with NaN."""
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -_address(raw) % ALIGNMENT
        buffer = raw[start : start + nbytes]
        if not initialised and checks_are_on():
            buffer.fill(GARBAGE)
        return cls(buffer, devices.current.index, initialised, counted=nbytes)

    def mark_written(self, view: np.ndarray) -> None:
        """Note that all elements of `view`, an array over `buffer`, were written."""
        if self.initialised is True or view.size == 0:
            return
        if view.nbytes == self.buffer.nbytes and (view.flags.c_contiguous or view.flags.f_contiguous):
            self.initialised = True
            return
        if self.initialised is False:
            self.initialised = np.zeros(self.buffer.nbytes, np.bool_)
        bytes_of(view, self.buffer, self.initialised)[...] = True


def bytes_of(view: np.ndarray, buffer: np.ndarray, flags: np.ndarray) -> Any:
    """The part of `flags`, one for each byte of `buffer`, that belongs to `view`, an array over `buffer`.

    Its shape is the view's, with one dimension more for the bytes of an element.
    """
    offset = _address(view) - _address(buffer)
    return np.ndarray((*view.shape, view.itemsize), flags.dtype, flags, offset, (*view.strides, 1))


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
