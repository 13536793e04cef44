"""Arrays on a pretend device.

Its memory is host memory, but a `DeviceNDArray` opens it only where numba's does: `copy_to_host`, single elements,
slices. So a program that forgets a transfer fails here as on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from miniflow.hostcuda import devices
from miniflow.hostcuda.allocation import Allocation
from miniflow.hostcuda.errors import CudaDeviceError, DeviceArrayError, DeviceArrayTypeError, UnsupportedArrayError
from miniflow.hostcuda.layout import (
    assign,
    check_compatible,
    check_contiguous,
    check_index,
    check_strides,
    extent,
    index_tuple,
    normalized,
    without_copy,
)


class DeviceMemory:
    """What arrays and records on a device have in common.

    Attributes:
        allocation: the memory that it lies in, shared with its views.
        host: the same memory as a NumPy array. For executors only: programs use `copy_to_host`.
        stream: the stream of transfers for which none is given.
    """

    __cuda_memory__ = True
    __cuda_ndarray__ = True
    __slots__ = ("allocation", "host", "stream", "_kind", "__weakref__")

    @classmethod
    def over(cls, host: np.ndarray, allocation: Allocation, stream: Any = 0) -> Any:
        """The object over `host`, a NumPy array that lies in `allocation.buffer`."""
        found = cls.__new__(cls)
        found.allocation = allocation
        found.host = host
        found.stream = stream
        found._kind = None
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return self.host.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self.host.strides

    @property
    def dtype(self) -> np.dtype:
        return self.host.dtype

    @property
    def ndim(self) -> int:
        return self.host.ndim

    @property
    def size(self) -> int:
        return self.host.size

    @property
    def nbytes(self) -> int:
        return self.host.nbytes

    @property
    def alloc_size(self) -> int:
        """Bytes from the first element to the end of the last."""
        return extent(self.host.shape, self.host.strides, self.host.itemsize)

    @property
    def gpu_data(self) -> Allocation:
        return self.allocation

    @property
    def flags(self) -> dict[str, bool]:
        return {"C_CONTIGUOUS": self.host.flags.c_contiguous, "F_CONTIGUOUS": self.host.flags.f_contiguous}

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """A NumPy array of the same shape, dtype and layout; or `ary` filled, which must have the same."""
        if any(stride < 0 for stride in self.host.strides):
            raise UnsupportedArrayError(
                f"copy_to_host of an array with negative strides {self.host.strides}: copy it whole, then slice"
            )
        if ary is None:
            return self.host.copy(order="K")
        check_compatible(ary, self.host, "copy_to_host")
        check_strides(ary, self.host, "copy_to_host")
        ary[...] = self.host.reshape(ary.shape)
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Fill this array from a NumPy array, or from an array on the same device."""
        source = transfer_source(ary, self.allocation.device)
        if not source.size:
            return
        check_contiguous(self.host)
        check_compatible(source, self.host, "copy_to_device")
        if isinstance(ary, DeviceMemory):
            check_strides(source, self.host, "copy_to_device")
        np.copyto(self.host, source.reshape(self.host.shape))
        self.allocation.mark_written(self.host)

    def __repr__(self) -> str:
        name, device = type(self).__name__, self.allocation.device
        return f"<{name} {self.dtype}{list(self.shape)} on device {device} (host executor)>"


class DeviceNDArray(DeviceMemory):
    """An array on a device, with the interface of numba.cuda's `DeviceNDArray`.

    >>> from miniflow.hostcuda.host import to_device
    >>> array = to_device(np.arange(6).reshape(2, 3))
    >>> array
    <DeviceNDArray int64[2, 3] on device 0 (host executor)>
    >>> array[1].copy_to_host()
    array([3, 4, 5])
    """

    __slots__ = ()

    def __init__(self, shape: Any, strides: Any, dtype: Any, stream: Any = 0, gpu_data: Allocation | None = None):
        shape, strides, dtype = normalized(shape, strides, dtype, "C")
        self.allocation = gpu_data or Allocation.new(extent(shape, strides, dtype.itemsize))
        self.host = np.ndarray(shape, dtype, self.allocation.buffer, strides=strides)
        self.stream = stream
        self._kind = None

    def is_c_contiguous(self) -> bool:
        return self.host.flags.c_contiguous

    def is_f_contiguous(self) -> bool:
        return self.host.flags.f_contiguous

    def __len__(self) -> int:
        if not self.host.ndim:
            raise DeviceArrayTypeError("len() of a 0-dimensional device array")
        return self.host.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """`numpy.asarray(device_array)` copies to the host, as numba's does."""
        if copy is False:
            raise DeviceArrayError("a device array cannot become a NumPy array without a copy; leave copy=False out")
        host = self.copy_to_host()
        return host if dtype is None else host.astype(dtype, copy=False)

    # Views

    def _view(self, host: np.ndarray, stream: Any = 0) -> DeviceNDArray:
        return DeviceNDArray.over(host, self.allocation, stream or self.stream)

    def bind(self, stream: Any = 0) -> DeviceNDArray:
        """The same array with another stream for its transfers."""
        return DeviceNDArray.over(self.host, self.allocation, stream)

    def __getitem__(self, item: Any) -> Any:
        return self.getitem(item)

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        """A view for slices, a host scalar for one element (a transfer), a `DeviceRecord` for one record."""
        check_index(item)
        found = self.host[index_tuple(item)]
        if found.ndim:
            return self._view(found, stream)
        if self.dtype.names is None:
            return found.copy()[()]
        return DeviceRecord.over(found, self.allocation, stream or self.stream)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.setitem(key, value)

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        """Copy a scalar, a NumPy array or an array of the same device into a part of this one."""
        check_index(key)
        target = self.host[index_tuple(key)]
        assign(target, transfer_source(value, self.allocation.device, any_object=True))
        self.allocation.mark_written(target)

    def __iter__(self) -> Iterator[Any]:
        """Elements or rows in turn. Each element is a transfer, so copy_to_host() first is faster."""
        return (self[i] for i in range(len(self)))

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceNDArray:
        """A view of another shape; where NumPy would copy it is refused."""
        shape = newshape[0] if len(newshape) == 1 and isinstance(newshape[0], tuple | list) else newshape
        return self._view(without_copy(self.host, "reshape", shape, order))

    def ravel(self, order: str = "C", stream: Any = 0) -> DeviceNDArray:
        """A 1-D view of an array that is contiguous in that order."""
        flags = self.host.flags
        if not (order in "CA" and flags.c_contiguous or order in "FA" and flags.f_contiguous):
            raise UnsupportedArrayError(f"ravel(order={order!r}) of {self!r}, strides {self.strides} requires copying")
        return self._view(self.host.reshape(-1, order=order), stream)

    def squeeze(self, axis: Any = None, stream: Any = 0) -> DeviceNDArray:
        """A view without the dimensions of size 1."""
        return self._view(self.host.squeeze(axis), stream)

    def view(self, dtype: Any) -> DeviceNDArray:
        """The same bytes as another dtype."""
        dtype = np.dtype(dtype)
        if dtype.itemsize != self.dtype.itemsize and not self.host.flags.c_contiguous:
            raise DeviceArrayError(
                f"view({dtype}) of {self!r}, strides {self.strides}: a dtype of another size needs C-contiguous memory"
            )
        return self._view(self.host.view(dtype))

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceNDArray]:
        """Views of `section` elements each, the last perhaps shorter, of a contiguous 1-D array."""
        if self.ndim != 1 or not self.host.flags.c_contiguous:
            raise DeviceArrayError(
                f"split takes a contiguous 1-D array, got shape {self.shape}, strides {self.strides}"
            )
        for start in range(0, self.size, section):
            yield self._view(self.host[start : start + section], stream)

    def transpose(self, axes: Any = None) -> DeviceNDArray:
        """A transposed *copy* of a 2-D array, as numba's device arrays make it."""
        if axes is not None and tuple(axes) == tuple(range(self.ndim)):
            return self
        if self.ndim != 2:
            raise UnsupportedArrayError(
                f"transpose takes a 2-D device array, got shape {self.shape}; do it on the host"
            )
        if axes is not None and set(axes) != {0, 1}:
            raise DeviceArrayError(f"transpose: axes {tuple(axes)} are not a permutation of (0, 1)")
        with devices.gpus[self.allocation.device]:
            result = DeviceNDArray(self.shape[::-1], None, self.dtype, self.stream)
        np.copyto(result.host, self.host.T)
        result.allocation.mark_written(result.host)
        return result

    @property
    def T(self) -> DeviceNDArray:
        return self.transpose()

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        """Absent: libraries would take the pointer for one to a GPU's memory, and crash."""
        raise AttributeError("arrays of the host executor have no __cuda_array_interface__: their memory is the host's")


class DeviceRecord(DeviceMemory):
    """One record on a device: `record["field"]` reads a field (a transfer), `record["field"] = value` writes one."""

    __slots__ = ()

    def __init__(self, dtype: Any, stream: Any = 0, gpu_data: Allocation | None = None):
        dtype = np.dtype(dtype)
        self.allocation = gpu_data or Allocation.new(dtype.itemsize)
        self.host = np.ndarray((), dtype, self.allocation.buffer)
        self.stream = stream
        self._kind = None

    def __getitem__(self, item: str) -> Any:
        return self.getitem(item)

    def getitem(self, item: str, stream: Any = 0) -> Any:
        """A host scalar, a `DeviceRecord` for a nested record, or a `DeviceNDArray` for a field that is an array."""
        self._check_field(item)
        found = self.host[item]
        if found.ndim:
            return DeviceNDArray.over(found, self.allocation, stream or self.stream)
        if found.dtype.names is not None:
            return DeviceRecord.over(found, self.allocation, stream or self.stream)
        return found.copy()[()]

    def __setitem__(self, key: str, value: Any) -> None:
        self.setitem(key, value)

    def setitem(self, key: str, value: Any, stream: Any = 0) -> None:
        """Write a field."""
        self._check_field(key)
        target = self.host[key]
        target[...] = value
        self.allocation.mark_written(target)

    def _check_field(self, item: Any) -> None:
        names = self.dtype.names or ()
        if item not in names:
            raise DeviceArrayError(f"the record has no field {item!r}; its fields are {', '.join(names)}")


def wrap(host: np.ndarray, allocation: Allocation, stream: Any = 0) -> DeviceNDArray:
    """A device array over `host`, a NumPy array that lies in `allocation.buffer`."""
    return DeviceNDArray.over(host, allocation, stream)


def transfer_source(value: Any, device: int, any_object: bool = False) -> np.ndarray:
    """What a copy reads: the memory of an array on the same device, or a host array.

    Raises:
        CudaDeviceError: if `value` lies on another device.
        DeviceArrayTypeError: if it is neither, unless `any_object` allows all that `numpy.asarray` takes.
    """
    if isinstance(value, DeviceMemory):
        if value.allocation.device != device:
            raise CudaDeviceError(
                f"copy of {value!r} to device {device}: copy_to_host() first, devices do not reach each other's memory"
            )
        return value.host
    if not any_object and not isinstance(value, np.ndarray | np.generic):
        raise DeviceArrayTypeError(
            f"copy_to_device takes a NumPy array or a device array, got {type(value).__name__}; numpy.asarray makes one"
        )
    return np.asarray(value)


def _refused(symbol: str) -> Any:
    def operator(self: Any, *other: Any) -> NoReturn:
        raise DeviceArrayTypeError(
            f"{symbol}: the host does not compute with device arrays; copy_to_host() first, or compute in a kernel"
        )

    return operator


BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
}
OTHER = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neg": "-", "abs": "abs", "invert": "~"}
for _name, _symbol in {
    f"{prefix}{name}": symbol for prefix in ("", "r", "i") for name, symbol in BINARY.items()
}.items():
    setattr(DeviceNDArray, f"__{_name}__", _refused(_symbol))
for _name, _symbol in OTHER.items():
    setattr(DeviceNDArray, f"__{_name}__", _refused(_symbol))
