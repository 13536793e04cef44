"""Making arrays on the current device, and recognising them: `cuda.to_device`, `cuda.device_array` and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.hostcuda.errors import CudaDeviceError, DeviceArrayTypeError
from miniflow.hostcuda.layout import check_contiguous, normalized, strides_like
from miniflow.hostcuda.mapped import is_device_memory
from miniflow.hostcuda.memory import DeviceNDArray, DeviceRecord


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: DeviceNDArray | None = None) -> Any:
    """Copy an array, a scalar or a record to the current device.

    Args:
        obj: a NumPy array or what `numpy.asarray` takes; a device array is returned as it is.
        stream: the stream to copy in, and the array's for later transfers.
        copy: False to allocate only.
        to: a device array to fill instead of a new one.

    Raises:
        DeviceArrayError: if `obj` is not contiguous.
        DeviceArrayTypeError: if its dtype holds Python objects.
    """
    if to is not None:
        if copy:
            to.copy_to_device(obj, stream=stream)
        return to
    if is_device_memory(obj):
        return obj
    if isinstance(obj, np.void):
        array: Any = DeviceRecord(obj.dtype, stream)
    else:
        obj = np.asarray(obj)
        if obj.dtype.hasobject:
            raise DeviceArrayTypeError(f"to_device: dtype {obj.dtype} cannot lie on a device; use numbers or records")
        check_contiguous(obj)
        array = DeviceNDArray(obj.shape, obj.strides, obj.dtype, stream)
    if copy:
        array.copy_to_device(obj, stream=stream)
    return array


def device_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0
) -> DeviceNDArray:
    """An array on the current device whose content is not defined, as `numpy.empty`."""
    return DeviceNDArray(*normalized(shape, strides, dtype, order), stream)


def device_array_like(ary: Any, stream: Any = 0) -> DeviceNDArray:
    """A `device_array` with the shape, dtype and layout of `ary`."""
    strides, order = strides_like(ary)
    return device_array(ary.shape, ary.dtype, strides, order, stream)


def is_cuda_array(obj: Any) -> bool:
    """Whether a kernel uses `obj` in place: a device, mapped or managed array, or a foreign array on a real GPU."""
    return is_device_memory(obj) or hasattr(obj, "__cuda_array_interface__")


def as_cuda_array(obj: Any, sync: bool = True) -> Any:
    """A device array for an object that is or has one, which its method `__hostcuda_array__` returns.

    Device arrays of the host executor have no `__cuda_array_interface__`, and that of others is not read: it holds a
    pointer to a GPU's memory. Host code cannot follow it, and a library that took a host pointer for one would crash.

    Raises:
        CudaDeviceError: if `obj` lies on a real GPU.
        DeviceArrayTypeError: if it is not a device array at all.
    """
    if is_device_memory(obj):
        return obj
    if hasattr(obj, "__hostcuda_array__"):
        return obj.__hostcuda_array__()
    name = type(obj).__name__
    if hasattr(obj, "__cuda_array_interface__"):
        raise CudaDeviceError(
            f"as_cuda_array: {name} lies on a real GPU, out of reach of the host executor; copy it to the host"
        )
    raise DeviceArrayTypeError(f"as_cuda_array: {name} is not a device array; to_device copies a NumPy array")


def is_cuda_ndarray(obj: Any) -> bool:
    """Whether `obj` is device memory in the sense of numba's `devicearray` module."""
    return bool(getattr(obj, "__cuda_ndarray__", False))


def auto_device(obj: Any, stream: Any = 0, copy: bool = True, user_explicit: bool = False) -> tuple[Any, bool]:
    """`obj` on the device, and whether a new array was made for it."""
    array = to_device(obj, stream, copy)
    return array, array is not obj
