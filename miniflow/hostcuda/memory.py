"""Arrays on a pretend device.

Its memory is host memory, but a `DeviceNDArray` opens it only where numba's does: `copy_to_host`, single elements,
slices. So a program that forgets a transfer fails here as on a GPU.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np

from miniflow.hostcuda import devices, stream_order
from miniflow.hostcuda.choice import checks_are_on
from miniflow.hostcuda.errors import (
    CudaDeviceError,
    DeviceArrayError,
    DeviceArrayTypeError,
    KernelCheckError,
    UnwrittenWarning,
)

__all__ = """
    as_cuda_array device_array device_array_like is_cuda_array managed_array mapped mapped_array mapped_array_like
    pinned pinned_array pinned_array_like to_device
""".split()
ALIGNMENT = 256  # bytes, as cudaMalloc aligns
GARBAGE = 0xFF  # NaN as a float, -1 as an integer


class Allocation:
    """A piece of one device's memory, shared by an array and its views.

    Attributes:
        buffer: its bytes, a uint8 array.
        device: the number of the device.
        initialised: whether all bytes were written, or a bool array that says so for each byte.
        parameter: the name of the parameter of a checked kernel that did not write all of it; "" without one.
        uses: the latest copies and kernels in streams; see `stream_order`.
    """

    __slots__ = ("buffer", "device", "initialised", "parameter", "uses", "__weakref__")

    def __init__(self, buffer: np.ndarray, device: int, initialised: bool | np.ndarray = True):
        self.buffer, self.device, self.initialised = buffer, device, initialised
        self.parameter, self.uses = "", []

    @classmethod
    def new(cls, nbytes: int) -> Allocation:
        """Memory of the current device, aligned as on a GPU. Under MINIFLOW_CHECK=1 it is filled with NaN."""
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -_address(raw) % ALIGNMENT
        buffer = raw[start : start + nbytes]
        if checks_are_on():
            buffer.fill(GARBAGE)
        return cls(buffer, devices.current.index, False)

    def __reduce__(self) -> NoReturn:
        raise DeviceArrayTypeError("device memory cannot be pickled or deep-copied: copy_to_host() first")

    def mark_written(self, view: np.ndarray) -> None:
        """Note that all elements of `view`, an array over `buffer`, were written."""
        if view.nbytes == self.buffer.nbytes and view.flags.forc:
            self.initialised = True
        if self.initialised is False:
            self.initialised = np.zeros(self.buffer.nbytes, np.bool_)
        if self.initialised is not True and view.size:
            self._of(view)[...] = True

    def _of(self, view: np.ndarray) -> np.ndarray:
        """`initialised` for the elements of a view; one dim more, for the bytes of an element."""
        shape, offset = (*view.shape, view.itemsize), _address(view) - _address(self.buffer)
        return np.ndarray(shape, np.bool_, self.initialised, offset, (*view.strides, 1))

    def check_written(self, view: np.ndarray) -> None:
        """Warn if a checked kernel was given this memory, and left elements of `view` unwritten that go to the host."""
        if self.parameter and self.initialised is not True and view.size:
            missing = view.size - int(self._of(view).all(axis=-1).sum())
            if missing:
                warnings.warn(
                    f"{missing:,} of {view.size:,} elements of `{self.parameter}` were never written: "
                    "what is copied to the host is garbage there",
                    UnwrittenWarning,
                    stacklevel=3,
                )


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


class OnDevice:
    """What device arrays and mapped arrays have in common."""

    __slots__ = ()

    def is_c_contiguous(self) -> bool:
        return self.flags.c_contiguous

    def is_f_contiguous(self) -> bool:
        return self.flags.f_contiguous

    def split(self, section: int, stream: Any = 0) -> Iterator[Any]:
        """Views of `section` elements each of a 1-D array; the last may be shorter."""
        if self.ndim != 1:
            raise DeviceArrayError(f"split takes a 1-D array, got shape {self.shape}; ravel() it")
        return (self.getitem(slice(i, i + section), stream) for i in range(0, len(self), section))


class DeviceNDArray(OnDevice):
    """An array on a device, with the interface of numba.cuda's `DeviceNDArray`.

    Attributes:
        allocation: the memory that it lies in.
        host: the same memory as a NumPy array. For executors only: programs use `copy_to_host`.
        stream: the stream of transfers for which none is given.

    >>> from miniflow.hostcuda.host import to_device
    >>> array = to_device(np.arange(6).reshape(2, 3))
    >>> array
    <DeviceNDArray int64[2, 3] on device 0 (host executor)>
    >>> array[1].copy_to_host()
    array([3, 4, 5])
    """

    __array_ufunc__ = None  # NumPy does not compute with it either
    __slots__ = ("allocation", "host", "stream", "kind", "__weakref__")

    @classmethod
    def over(cls, host: np.ndarray, allocation: Allocation, stream: Any = 0) -> DeviceNDArray:
        """The array over `host`, a NumPy array that lies in `allocation.buffer`."""
        array = cls()
        array.host, array.allocation, array.stream = host, allocation, stream
        array.kind = None  # of an argument, once `arguments` found it
        return array

    shape, strides, dtype = (property(attrgetter(f"host.{name}")) for name in ("shape", "strides", "dtype"))
    ndim, size, nbytes = (property(attrgetter(f"host.{name}")) for name in ("ndim", "size", "nbytes"))
    flags = property(attrgetter("host.flags"))

    def __len__(self) -> int:
        return len(self.host)

    def __repr__(self) -> str:
        return f"<DeviceNDArray {self.dtype}{list(self.shape)} on device {self.allocation.device} (host executor)>"

    # Transfers

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """A NumPy array of the same shape, dtype and layout; or `ary` filled, which must have that shape and dtype."""
        self._use("copy_to_host", stream)
        self.allocation.check_written(self.host)
        if ary is None:
            return self.host.copy(order="K")
        check_alike(ary, self.host, "copy_to_host")
        ary[...] = self.host
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Fill this array from a NumPy array, or from an array on the same device."""
        source = self._readable(ary, stream)
        self._use("copy_to_device", stream, writes=True)
        check_transferable(self.host)
        check_alike(source, self.host, "copy_to_device")
        np.copyto(self.host, source)
        self.allocation.mark_written(self.host)

    def _use(self, operation: str, stream: Any, writes: bool = False) -> None:
        """Under checks, refuse a copy that work in another stream may overtake."""
        problem = stream_order.conflict(self.allocation, stream or self.stream, writes, operation, checks_are_on())
        if problem:
            raise KernelCheckError(f"stream: {problem}\n    {stream_order.REMEDY}")

    def _readable(self, value: Any, stream: Any) -> np.ndarray:
        """The host array from which a copy to this array reads."""
        if not isinstance(value, DeviceNDArray):
            return np.asarray(value)
        if value.allocation.device != self.allocation.device:
            raise CudaDeviceError(
                f"copy of {value!r} to device {self.allocation.device}: copy_to_host() first, "
                "devices do not reach each other's memory"
            )
        value._use("copy_to_device", stream)
        return value.host

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """`numpy.asarray(device_array)` copies to the host, as numba's does."""
        return self.copy_to_host().astype(dtype or self.dtype, copy=False)

    def __getitem__(self, item: Any) -> Any:
        """A view for slices, a host scalar for one element, which is a transfer."""
        part = self.host[checked_index(item)]
        if part.ndim:
            return self._view(part)
        self._use("reading an element", self.stream)
        return part.copy()[()]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Copy a scalar, a NumPy array or an array of the same device into a part of this one."""
        target, source = self.host[checked_index(key)], self._readable(value, self.stream)
        self._use("setting elements", self.stream, writes=True)
        np.copyto(target, source, casting="unsafe")
        self.allocation.mark_written(target)

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        """`self[item]`, in a stream."""
        return self._view(self.host, stream)[item]

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        """`self[key] = value`, in a stream."""
        self._view(self.host, stream)[key] = value

    def __iter__(self) -> Iterator[Any]:
        """Elements or rows in turn. Each element is a transfer, so copy_to_host() first is faster."""
        return (self[i] for i in range(len(self)))

    # Views

    def _view(self, host: np.ndarray, stream: Any = 0) -> DeviceNDArray:
        return DeviceNDArray.over(host, self.allocation, stream or self.stream)

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceNDArray:
        """A view of another shape; a ValueError where that needs a copy."""
        return self._view(self.host.reshape(*newshape, order=order, copy=False))

    def ravel(self, order: str = "C", stream: Any = 0) -> DeviceNDArray:
        """A 1-D view of an array that is contiguous in that order."""
        return self.reshape(-1, order="F" if order == "A" and not self.is_c_contiguous() else order)

    def squeeze(self, axis: Any = None, stream: Any = 0) -> DeviceNDArray:
        """A view without the dimensions of size 1."""
        return self._view(self.host.squeeze(axis), stream)

    def view(self, dtype: Any) -> DeviceNDArray:
        """The same bytes as another dtype."""
        return self._view(self.host.view(dtype))

    def transpose(self, axes: Any = None) -> DeviceNDArray:
        """A transposed *copy* of a 2-D array, as numba's device arrays make it."""
        if self.ndim != 2 or axes not in (None, (1, 0)):
            raise DeviceArrayError(
                f"transpose swaps the dims of a 2-D device array, got shape {self.shape}; do it on the host"
            )
        with devices.gpus[self.allocation.device]:
            return to_device(np.ascontiguousarray(self.copy_to_host().T), stream=self.stream)

    T = property(transpose)


def _refused(self: Any, *other: Any) -> NoReturn:
    raise DeviceArrayTypeError("the host does not compute with device arrays; copy_to_host() first, or use a kernel")


for _name in "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow matmul rmatmul neg lt le gt ge".split():
    setattr(DeviceNDArray, f"__{_name}__", _refused)


class MappedNDArray(OnDevice, np.ndarray):
    """A host array that kernels use in place, as `cuda.mapped_array` makes it."""

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        """Results of computations are plain arrays."""
        return np.asarray(array)[()] if return_scalar else np.asarray(array)

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """A NumPy array with the same elements; or `ary` filled, which must have that shape and dtype."""
        if ary is None:
            return np.array(self)
        self._copy(self, ary, "copy_to_host")
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Fill this array from another of its shape and dtype."""
        self._copy(np.asarray(ary), self, "copy_to_device")

    @staticmethod
    def _copy(source: Any, target: Any, operation: str) -> None:
        check_alike(source, target, operation)
        target[...] = source

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        """`self[item]`."""
        return self[item]

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        """`self[key] = value`."""
        self[key] = value


# Making arrays, and recognising them


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: DeviceNDArray | None = None) -> Any:
    """Copy an array or a scalar to the current device.

    Args:
        obj: a NumPy array or what `numpy.asarray` takes; a device array is returned as it is.
        stream: the stream to copy in, and the array's for later transfers.
        copy: False to allocate only.
        to: a device array to fill instead of a new one.

    Raises:
        DeviceArrayError: if `obj` is not contiguous.
        DeviceArrayTypeError: if its dtype holds Python objects.
    """
    if to is None:
        if is_cuda_array(obj):
            return obj
        obj = np.asarray(obj)
        check_transferable(obj)
        to = device_array_like(obj, stream)
    if copy:
        to.copy_to_device(obj, stream=stream)
    return to


def device_array(shape: Any, dtype: Any = np.float64, order: str = "C", stream: Any = 0) -> DeviceNDArray:
    """An array on the current device whose content is not defined, as `numpy.empty`. There are none with strides."""
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    allocation = Allocation.new(np.dtype(dtype).itemsize * math.prod(sizes))
    return DeviceNDArray.over(np.ndarray(sizes, dtype, allocation.buffer, order=order), allocation, stream)


def device_array_like(ary: Any, stream: Any = 0) -> DeviceNDArray:
    """A `device_array` with the shape, dtype and order of `ary`."""
    return device_array(ary.shape, ary.dtype, "F" if ary.flags.fnc else "C", stream)


def pinned_array(shape: Any, dtype: Any = np.float64, order: str = "C") -> np.ndarray:
    """A NumPy array; on a GPU its pages are locked, so that transfers of it are fast."""
    return np.empty(shape, dtype, order)


def mapped_array(
    shape: Any, dtype: Any = np.float64, order: str = "C", stream: Any = 0, **options: bool
) -> MappedNDArray:
    """A NumPy array that kernels read and write in place. `options` (portable, wc ...) have no effect here."""
    return pinned_array(shape, dtype, order).view(MappedNDArray)


managed_array = mapped_array  # memory that host and device share


def pinned_array_like(ary: Any) -> np.ndarray:
    """A `pinned_array` with the shape, dtype and layout of `ary`."""
    return np.empty_like(ary, subok=False)


def mapped_array_like(ary: Any, stream: Any = 0, **options: bool) -> MappedNDArray:
    """A `mapped_array` with the shape, dtype and layout of `ary`."""
    return pinned_array_like(ary).view(MappedNDArray)


@contextmanager
def mapped(*arylist: np.ndarray, **options: Any) -> Iterator[Any]:
    """A block in which kernels use host arrays in place; gives one mapped array, or a list of several."""
    arrays = [array.view(MappedNDArray) for array in arylist]
    yield arrays[0] if len(arrays) == 1 else arrays


def pinned(*arylist: np.ndarray) -> Any:
    """On a GPU, lock the arrays' pages for the block; no effect here."""
    return nullcontext()


def is_cuda_array(obj: Any) -> bool:
    """Whether a kernel uses `obj` in place: a device, mapped or managed array. One of a real GPU is out of reach."""
    return isinstance(obj, DeviceNDArray | MappedNDArray)


is_cuda_ndarray = is_cuda_array
DeviceNDArrayBase = DeviceRecord = DeviceNDArray


def as_cuda_array(obj: Any, sync: bool = True) -> Any:
    """A device array for an object that is or has one, which its method `__hostcuda_array__` returns.

    Device arrays of the host executor have no `__cuda_array_interface__`, and that of others is not read: it holds a
    pointer to a GPU's memory. Host code cannot follow it, and a library that took a host pointer for one would crash.

    Raises:
        DeviceArrayTypeError: if it is not such an array.
    """
    if is_cuda_array(obj):
        return obj
    if hasattr(obj, "__hostcuda_array__"):
        return obj.__hostcuda_array__()
    raise DeviceArrayTypeError(
        f"as_cuda_array: {type(obj).__name__} is not an array of the host executor; to_device copies a NumPy array"
    )


# Layouts and indices, checked by the rules of numba's device arrays


def checked_index(item: Any) -> tuple:
    """An index of integers, slices and "..."; it ends in a "..." at least, so that NumPy gives an array even for one
    element."""
    index = item if isinstance(item, tuple) else (item,)
    for part in index:
        if isinstance(part, bool) or not (part is Ellipsis or isinstance(part, int | np.integer | slice)):
            raise DeviceArrayTypeError(
                f"on the host, a device array is indexed by integers, slices and '...', got {part!r}; "
                "copy_to_host() first, or index inside a kernel"
            )
    return index if Ellipsis in index else (*index, Ellipsis)


def check_alike(source: Any, target: Any, operation: str) -> None:
    """Refuse a transfer between arrays of different shapes or dtypes: it copies bytes."""
    for attribute, error in (("dtype", DeviceArrayTypeError), ("shape", DeviceArrayError)):
        mine, theirs = getattr(source, attribute), getattr(target, attribute)
        if mine != theirs:
            raise error(
                f"{operation}: incompatible {attribute}: {mine} on one side, {theirs} on the other; "
                "reshape or .astype first"
            )


def check_transferable(array: np.ndarray) -> None:
    """Refuse an array of Python objects, or with gaps or repeated elements: a transfer is one block of bytes."""
    if array.dtype.hasobject:
        raise DeviceArrayTypeError(f"an array of dtype {array.dtype} cannot lie on a device; use numbers or records")
    if not array.flags.forc:
        raise DeviceArrayError(
            f"array of shape {array.shape} and strides {array.strides} has gaps or repeats elements: it cannot be "
            "transferred; make it contiguous with numpy.ascontiguousarray()"
        )
