"""NumPy arguments of one launch: copied in and back on a GPU; used in place here wherever nobody can tell."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np

from miniflow.hostcuda import devices
from miniflow.hostcuda.allocation import Allocation
from miniflow.hostcuda.arguments import Kind, Transfer, array_kind, kind_of
from miniflow.hostcuda.errors import CudaDeviceError, ImplicitCopyWarning, KernelArgumentError
from miniflow.hostcuda.layout import check_contiguous
from miniflow.hostcuda.mapped import MappedNDArray, is_device_memory
from miniflow.hostcuda.memory import DeviceMemory, DeviceNDArray

PACKAGE = __name__.rpartition(".")[0]


class HostArrays:
    """The arguments of one launch that need care: NumPy arrays, and device memory other than a DeviceNDArray.

    numba.cuda copies every NumPy argument to the device before the launch and back after it, in the order of the
    arguments. Here the kernel works on the array itself, except where that could be told apart: of arrays that may
    overlap, all but the first are copied and written back in order; a read-only array and that of `cuda.In` are copied
    and not written back.

    Args:
        checked: whether the checked executor runs the kernel: it gets device arrays as such, not their memory.
    """

    def __init__(self, checked: bool):
        self.checked = checked
        self._seen: list[np.ndarray] = []
        self._back: list[tuple[np.ndarray, np.ndarray]] = []
        self._back_fields: list[tuple[np.void, np.ndarray]] = []

    def on_device(self, value: Any) -> tuple[Kind, Any]:
        """A device array, a record on the device, or a mapped array."""
        allocation = value.allocation
        if allocation.device != devices.current.index:
            raise other_device(value)
        if isinstance(value, MappedNDArray):
            value = value.as_device_array()
        if self.checked:
            return kind_in_memory(value), value
        allocation.initialised = True
        return kind_in_memory(value), value.host if isinstance(value, DeviceNDArray) else value.host[()]

    def host_array(self, host: np.ndarray, position: int, hint: Transfer | None = None) -> tuple[Kind, Any]:
        """A NumPy array, perhaps from inside of In, Out or InOut."""
        if hint is None:
            warn_of_copy(position)
        if host.dtype.hasobject:
            raise KernelArgumentError(f"argument {position + 1}: kernels cannot use arrays of dtype {host.dtype}")
        check_contiguous(host)
        host = passed = np.asarray(host)
        back = host.flags.writeable and (hint is None or hint.copies_out)
        if not back or any(np.may_share_memory(host, other) for other in self._seen):
            passed = host.copy(order="K")
            if back:
                self._back.append((host, passed))
        self._seen.append(host)
        if self.checked and hint and not hint.copies_in:
            return array_kind(passed), self._uninitialised(passed)
        return array_kind(passed), passed

    def hinted(self, hint: Transfer, position: int) -> tuple[Kind, Any]:
        """What In, Out or InOut holds."""
        if is_device_memory(hint.value):
            return self.on_device(hint.value)
        if isinstance(hint.value, np.ndarray):
            return self.host_array(hint.value, position, hint)
        raise KernelArgumentError(
            f"argument {position + 1}: cuda.In, cuda.Out and cuda.InOut take a NumPy array, got {hint.value!r}"
        )

    def record(self, value: np.void) -> tuple[Kind, Any]:
        """A NumPy record, whose fields the kernel may write."""
        kind = kind_of("record", value.dtype)
        if not self.checked:
            return kind, value
        passed = np.array(value)
        self._back_fields.append((value, passed))
        return kind, passed

    def _uninitialised(self, passed: np.ndarray) -> DeviceNDArray:
        """The array of `cuda.Out` for the checked executor, which reports reads of it before it is written."""
        allocation = Allocation(passed.reshape(-1, order="A").view(np.uint8), devices.current.index, initialised=False)
        return DeviceNDArray.over(passed, allocation)

    def write_back(self) -> None:
        """After the launch, copy what was copied in back to its array, in the order of the arguments."""
        for host, passed in self._back:
            np.copyto(host, passed)
        for record, passed in self._back_fields:
            for name in record.dtype.names:
                record[name] = passed[name]


def kind_in_memory(value: DeviceMemory) -> Kind:
    """The kind of a device array or record."""
    return array_kind(value.host) if isinstance(value, DeviceNDArray) else kind_of("record", value.dtype)


def other_device(value: Any) -> CudaDeviceError:
    """The error for an argument that lies on a device other than the current one."""
    here, there = devices.current.index, value.allocation.device
    return CudaDeviceError(
        f"an array of {value.dtype}{list(value.shape)} on device {there} was passed to a kernel on device {here}; "
        f"copy it there (through copy_to_host), or launch within `with cuda.gpus[{there}]:`"
    )


def warn_of_copy(position: int) -> None:
    """As numba.cuda does, unless NUMBA_CUDA_WARN_ON_IMPLICIT_COPY=0."""
    if os.environ.get("NUMBA_CUDA_WARN_ON_IMPLICIT_COPY", "1") != "0":
        warnings.warn(
            f"argument {position + 1} is a NumPy array: on a GPU it is copied there and back at every launch; "
            "cuda.to_device() copies it once",
            ImplicitCopyWarning,
            stacklevel=_levels_to_user(),
        )


def _levels_to_user() -> int:
    """How many frames up this package was called, so that a warning shows the user's line."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(PACKAGE):
        frame, levels = frame.f_back, levels + 1
    return levels
