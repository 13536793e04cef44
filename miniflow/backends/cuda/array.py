"""`DeviceArray`: an n-dimensional array in device memory, as kernels of the cuda backend take and return it.

Its geometry is that of a NumPy array, the `layout`, so that NumPy's own view rules serve both devices: a view of a
`DeviceArray` is made by taking the view of its layout. Where a GPU is emulated the layout is a real array over the
emulated memory. On a GPU it is a ghost: its address is that of the device memory, and nothing ever reads through it.
Only `numpy()` and `from_host` move elements between host and device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends.cuda import streams
from miniflow.backends.cuda.allocator import Block, allocate
from miniflow.backends.cuda.driver import driver
from miniflow.backends.geometry import LaidOut
from miniflow.errors import DeviceError

BITS = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}

at_next_copy: dict[int, Callable[[int], None]] = {}
"""Device number -> what to call after the next copy from it to the host, which waits for it anyway: see `faults`."""


class DeviceArray(LaidOut):
    """Elements of one dtype in the memory of one device.

    Attributes:
        layout: a NumPy array with the shape, the strides, the dtype and the address; see the head of this file.
        block: the memory, which is free again when the last array on it is gone.
    """

    __slots__ = ("layout", "block", "_handle", "__weakref__")

    write: Callable[[DeviceArray, DeviceArray], None]  # `copy` adds this and `fill` to the class
    fill: Callable[[DeviceArray, Any], None]

    def __init__(self, layout: np.ndarray, block: Block):
        self.layout = layout
        self.block = block
        self._handle = None

    @property
    def address(self) -> int:
        """Where the first element lies."""
        return self.layout.__array_interface__["data"][0]

    @property
    def device_index(self) -> int:
        """The number of the device whose memory this is."""
        return self.block.device_index

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Steps between neighbours along each dimension, in elements."""
        layout = self.layout
        return tuple([step // layout.itemsize for step in layout.strides])

    @property
    def offset(self) -> int:
        """Elements from the start of `storage` to the first element."""
        layout = self.layout
        return (layout.__array_interface__["data"][0] - self.block.address) // layout.itemsize

    @property
    def storage(self) -> DeviceArray:
        """All of the memory that this array is a view of, as a 1-D array: element `index` is
        `storage[offset + sum(index * element_strides)]`."""
        layout = self.layout
        memory = self.block.memory
        elements = memory[: memory.size // layout.itemsize * layout.itemsize].view(layout.dtype)
        return DeviceArray(elements, self.block)

    def view(self, take: Callable[[np.ndarray], np.ndarray]) -> DeviceArray:
        """An array on the same memory with the geometry that `take` gives to the layout.

        Args:
            take: a NumPy function that returns a view, e.g. `lambda a: a.transpose(1, 0)`.

        Raises:
            ValueError: what NumPy raises where the strides do not allow the view.
        """
        return DeviceArray(take(self.layout), self.block)

    def reshape(self, *shape: Any, copy: bool | None = None) -> DeviceArray:
        """The same elements in row-major order under another shape: a view where the strides allow it, else a copy.

        Raises:
            ValueError: if `copy` is False and the strides do not allow a view, or for another number of elements.
        """
        if copy is not False and not self.layout.flags.c_contiguous:
            try:
                return DeviceArray(self.layout.reshape(*shape, copy=False), self.block)
            except ValueError:
                return contiguous(self).reshape(*shape, copy=False)
        return DeviceArray(self.layout.reshape(*shape, copy=False), self.block)

    def is_whole(self) -> bool:
        """Whether it fills its memory in row-major order, and may be written to."""
        flags = self.layout.flags
        return flags.c_contiguous and flags.writeable and self.layout.nbytes == self.block.memory.nbytes

    # elements

    @property
    def handle(self) -> Any:
        """The argument of a kernel launch for this array."""
        if self._handle is None:
            self._handle = driver().handle(self.layout, self.block)
        return self._handle

    def numpy(self) -> np.ndarray:
        """A copy on the host, after the pending work of the current stream."""
        source = self if driver().emulated else contiguous(self)
        target = np.empty(source.shape, source.dtype)
        if source.size:
            driver().copy_to_host(target, source.layout, source.block, streams.current(source.device_index).raw)
        if source.device_index in at_next_copy:
            at_next_copy.pop(source.device_index)(source.device_index)
        return target

    def copy(self) -> DeviceArray:
        """A row-major copy in new memory of the same device."""
        return self.astype(self.dtype)

    def astype(self, dtype: Any) -> DeviceArray:
        """A row-major copy in another dtype."""
        result = empty(self.shape, dtype, self.device_index)
        result.write(self)
        return result

    def __getitem__(self, key: Any) -> DeviceArray:
        """The view for a key of integers, slices and `...`, with NumPy's meaning."""
        key = key if type(key) is tuple else (key,)
        return DeviceArray(self.layout[key if Ellipsis in key else (*key, ...)], self.block)

    def __setitem__(self, key: Any, values: Any) -> None:
        """Write an array, broadcast and converted, or a number to all elements of the view `x[key]`."""
        target = self if key is Ellipsis else self[key]
        if type(values) is DeviceArray:
            target.write(values)
        else:
            target.fill(values)

    def peek(self) -> np.ndarray | None:
        """The elements, for reading only, if that needs no waiting; None on a GPU."""
        return self.layout if driver().emulated else None

    def item(self) -> Any:
        """The only element, as NumPy's `item()` gives it."""
        return self.numpy().item()

    def tolist(self) -> Any:
        """Nested lists of the elements."""
        return self.numpy().tolist()

    @property
    def __cuda_array_interface__(self) -> dict:
        """For numba.cuda, CuPy and torch: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html

        Raises:
            AttributeError: where the GPU is emulated, since others would take the address for one of a real GPU.
        """
        if driver().emulated:
            raise AttributeError("__cuda_array_interface__: the memory is that of an emulated device")
        layout = self.layout
        return {
            "shape": layout.shape,
            "strides": None if layout.flags.c_contiguous else layout.strides,
            "typestr": layout.dtype.str,
            "data": (self.address if layout.size else 0, not layout.flags.writeable),
            "version": 3,
        }

    __array_ufunc__ = None  # NumPy's arithmetic refuses it

    @property
    def __hostcuda_array__(self) -> Callable[[], Any]:
        """Gives an emulated device's memory to kernels that users launch themselves.

        Raises:
            AttributeError: on a GPU, where `__cuda_array_interface__` does it.
        """
        if not driver().emulated:
            raise AttributeError("__hostcuda_array__: the memory is that of a GPU")
        return lambda: driver().export(self.layout, self.block)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise DeviceError("an array on a cuda device has no NumPy array: copy it to the host with numpy()")

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device_index={self.device_index})"


def empty(shape: tuple[int, ...], dtype: Any, device_index: int) -> DeviceArray:
    """A row-major array whose values are whatever lies in memory."""
    dtype = np.dtype(dtype)
    size = 1
    for n in shape:
        size *= n
    block = allocate(size * dtype.itemsize, device_index)
    return DeviceArray(block.memory.view(dtype).reshape(shape), block)


def full(shape: tuple[int, ...], value: Any, dtype: Any, device_index: int) -> DeviceArray:
    """A row-major array with `value` in every place."""
    result = empty(shape, dtype, device_index)
    result.fill(value)
    return result


def from_host(array: np.ndarray, device_index: int) -> DeviceArray:
    """A row-major copy of a NumPy array in device memory."""
    result = empty(array.shape, array.dtype, device_index)
    if result.size:
        source = np.ascontiguousarray(array)
        driver().copy_to_device(result.layout, source, result.block, streams.current(device_index).raw)
    return result


def pinned_like(x: DeviceArray) -> np.ndarray:
    """An array of the host with the shape and dtype of `x`, for `start_copy_to` and `start_copy_from`."""
    return driver().pinned(x.shape, x.dtype, x.device_index)


def start_copy_to(target: np.ndarray, x: DeviceArray) -> streams.Event:
    """Start to copy a row-major array into a pinned one; the work of the current stream goes on meanwhile.

    Returns:
        What says when the values are there.
    """
    stream = streams.copying(x.device_index)
    stream.wait_stream(streams.current(x.device_index))
    driver().start_copy_to_host(target, x.layout, x.block, stream.raw)
    x.block.record_stream(stream)
    return stream.record_event()


def start_copy_from(source: np.ndarray, x: DeviceArray) -> None:
    """Fill a row-major array with the values of a pinned one, which later work of the current stream sees."""
    driver().copy_to_device(x.layout, source, x.block, streams.current(x.device_index).raw)


def on_device(x: DeviceArray, device_index: int) -> DeviceArray:
    """A row-major copy of an array on another device, which does not pass through the host."""
    source, target = contiguous(x), empty(x.shape, x.dtype, device_index)
    if source.size:
        stream = streams.current(device_index)
        stream.wait_stream(streams.current(x.device_index))
        driver().copy_between(target.layout, target.block, source.layout, source.block, stream.raw)
        source.block.record_stream(stream)
    return target


def contiguous(x: DeviceArray, dtype: Any = None) -> DeviceArray:
    """`x` itself if its elements have that dtype (or any) and lie in row-major order without gaps, else such a copy."""
    layout = x.layout
    dtype = layout.dtype if dtype is None else dtype
    return x if layout.flags.c_contiguous and layout.dtype == dtype else x.astype(dtype)


def bits(x: DeviceArray) -> DeviceArray:
    """The same memory seen as unsigned integers of the same width: for kernels that only move elements."""
    return DeviceArray(x.layout.view(BITS[x.layout.itemsize]), x.block)
