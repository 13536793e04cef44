"""The three ways in which device memory exists: emulated by hostcuda, on a GPU, and in numba's simulator.

Each driver hands out memory as a 1-D uint8 ndarray and moves elements between host and device. On a GPU that ndarray
is a ghost: it has the address of device memory, NumPy computes shapes and strides with it, and nobody reads it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from miniflow.backends.cuda.streams import selected
from miniflow.hostcuda import choice, cuda, numba_cuda

if TYPE_CHECKING:
    from miniflow.backends.cuda.allocator import Block

ALIGNMENT = 512


class Holder:
    """An array's elements by NumPy's protocol, with a reference to the block that they lie in."""

    def __init__(self, layout: np.ndarray, block: Block):
        self.block = block
        self.__array_interface__ = {**layout.__array_interface__, "strides": layout.strides}


class HostDriver:
    """Device memory is memory of the process; the host executor runs kernels on it."""

    emulated = True

    def reserve(self, nbytes: int, device_index: int) -> np.ndarray:
        """New memory; MemoryError if there is none."""
        room = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -room.__array_interface__["data"][0] % ALIGNMENT
        return room[start : start + nbytes]

    def handle(self, layout: np.ndarray, block: Block) -> Any:
        """The argument of a launch for an array in `block`."""
        from miniflow.hostcuda.memory import DeviceNDArray

        return DeviceNDArray.over(layout, self._allocation(block))

    def export(self, layout: np.ndarray, block: Block) -> Any:
        """As `handle`, for an array that may outlive all others in the block: it keeps the block in use."""
        return self.handle(np.asarray(Holder(layout, block)).view(layout.dtype), block)

    def _allocation(self, block: Block) -> Any:
        """What the host executor knows about the block's memory; it lives as long as the block."""
        from miniflow.hostcuda.memory import Allocation

        if block.allocation is None:
            block.allocation = Allocation(block.memory, block.device_index, False)
        return block.allocation

    def launch(self, kernel: Any, configuration: tuple, arguments: Sequence[Any]) -> None:
        """`kernel[configuration](*arguments)`."""
        kernel[configuration](*arguments)

    def copy_to_host(self, target: np.ndarray, layout: np.ndarray, block: Block, stream: Any) -> None:
        """Copy an array of the device into a row-major array of the host."""
        np.copyto(target, layout)

    def start_copy_to_host(self, target: np.ndarray, layout: np.ndarray, block: Block, stream: Any) -> None:
        """As `copy_to_host`, but the values are there when the stream is done."""
        self.copy_to_host(target, layout, block, stream)

    def pinned(self, shape: tuple[int, ...], dtype: Any, device_index: int) -> np.ndarray:
        """Memory of the host that the device copies from and to while the CPU goes on."""
        return np.empty(shape, dtype)

    def copy_to_device(self, layout: np.ndarray, source: np.ndarray, block: Block, stream: Any) -> None:
        """Copy a row-major array of the host into a row-major array of the device."""
        np.copyto(layout, source)
        self._allocation(block).mark_written(layout)

    def copy_between(self, layout: np.ndarray, block: Block, source: np.ndarray, origin: Block, stream: Any) -> None:
        """Copy a row-major array of the device of `origin` into one of the device of `block`, in a stream of that."""
        self.copy_to_device(layout, source, block, stream)


class SimulatorDriver(HostDriver):
    """As the host driver, with the arrays that numba's simulator takes."""

    def handle(self, layout: np.ndarray, block: Block) -> Any:
        """The argument of a launch for an array in `block`."""
        return numba_cuda.simulated(layout)


class GhostMemory:
    """Exports the address of device memory as if it were an array, and keeps the memory alive."""

    def __init__(self, pointer: Any, address: int, nbytes: int):
        self.pointer = pointer
        interface = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
        self.__array_interface__ = interface


class GpuDriver:
    """Device memory of a GPU, by way of numba-cuda."""

    emulated = False

    def reserve(self, nbytes: int, device_index: int) -> np.ndarray:
        """New memory; MemoryError if there is none."""
        with selected(device_index):
            return np.asarray(GhostMemory(*numba_cuda.allocate(nbytes, device_index), nbytes))

    def handle(self, layout: np.ndarray, block: Block) -> Any:
        """The argument of a launch for an array in `block`, which outlives it."""
        return numba_cuda.argument(layout, block.device_index)

    def launch(self, kernel: Any, configuration: tuple, arguments: Sequence[Any]) -> None:
        """`kernel[configuration](*arguments)`; numba itself finds the current device."""
        numba_cuda.launch(kernel, configuration, arguments)

    def copy_to_host(self, target: np.ndarray, layout: np.ndarray, block: Block, stream: Any) -> None:
        """Copy a row-major array of the device into a row-major array of the host, and wait for it."""
        with selected(block.device_index):
            numba_cuda.copy_to_host(target, layout, block.device_index, stream)
            stream.synchronize()

    def start_copy_to_host(self, target: np.ndarray, layout: np.ndarray, block: Block, stream: Any) -> None:
        """As `copy_to_host`, but the values are there when the stream is done, if `target` is pinned."""
        with selected(block.device_index):
            numba_cuda.copy_to_host(target, layout, block.device_index, stream)

    def pinned(self, shape: tuple[int, ...], dtype: Any, device_index: int) -> np.ndarray:
        """Memory of the host that the device copies from and to while the CPU goes on."""
        with selected(device_index):
            return cuda.pinned_array(shape, dtype)

    def copy_to_device(self, layout: np.ndarray, source: np.ndarray, block: Block, stream: Any) -> None:
        """Copy a row-major array of the host into a row-major array of the device."""
        with selected(block.device_index):
            numba_cuda.copy_to_device(layout, source, block.device_index, stream)

    def copy_between(self, layout: np.ndarray, block: Block, source: np.ndarray, origin: Block, stream: Any) -> None:
        """Copy a row-major array of the device of `origin` into one of the device of `block`, in a stream of that."""
        with selected(block.device_index):
            numba_cuda.copy_between(layout, block.device_index, source, origin.device_index, stream)


@functools.cache
def driver() -> HostDriver | GpuDriver:
    """The driver of this process, by what `miniflow.hostcuda.cuda` is."""
    if cuda.__name__ == "miniflow.hostcuda.host":
        return HostDriver()
    return SimulatorDriver() if choice.simulator_asked_for() else GpuDriver()
