"""Host arrays that a GPU reads and writes too, or transfers fast: mapped, managed and pinned memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from miniflow.hostcuda import devices
from miniflow.hostcuda.allocation import Allocation
from miniflow.hostcuda.layout import check_contiguous, extent, normalized, strides_like
from miniflow.hostcuda.memory import DeviceMemory, DeviceNDArray


class MappedNDArray(np.ndarray):
    """A host array that kernels use in place. Its views are such arrays too; results of computations are plain arrays.

    Attributes:
        allocation: the memory that it lies in; None for a copy, which is a plain host array.
    """

    __cuda_memory__ = True
    __cuda_ndarray__ = True
    allocation: Allocation | None = None
    stream: Any = 0

    def __array_finalize__(self, source: Any) -> None:
        allocation = getattr(source, "allocation", None)
        if allocation is not None and np.may_share_memory(self.view(np.ndarray), allocation.buffer):
            self.allocation = allocation

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        plain = array.view(np.ndarray)
        return plain[()] if return_scalar else plain

    @property
    def host(self) -> np.ndarray:
        """The same memory as a plain array."""
        return self.view(np.ndarray)

    def as_device_array(self) -> DeviceNDArray:
        """The same memory as a device array."""
        return DeviceNDArray.over(self.host, self.allocation, self.stream)

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """A plain NumPy array of the same values, or `ary` filled."""
        return self.as_device_array().copy_to_host(ary)

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Fill this array."""
        self.as_device_array().copy_to_device(ary)


def is_device_memory(value: Any) -> bool:
    """Whether a kernel uses `value` in place: a device array or record, or a mapped array."""
    return isinstance(value, DeviceMemory) or (isinstance(value, MappedNDArray) and value.allocation is not None)


def mapped_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    portable: bool = False,
    wc: bool = False,
) -> MappedNDArray:
    """A NumPy array that kernels read and write in place."""
    shape, strides, dtype = normalized(shape, strides, dtype, order)
    allocation = Allocation.new(extent(shape, strides, dtype.itemsize), initialised=True)
    array = np.ndarray(shape, dtype, allocation.buffer, strides=strides).view(MappedNDArray)
    array.allocation, array.stream = allocation, stream
    return array


def mapped_array_like(ary: Any, stream: Any = 0, portable: bool = False, wc: bool = False) -> MappedNDArray:
    """A `mapped_array` with the shape, dtype and layout of `ary`."""
    strides, order = strides_like(ary)
    return mapped_array(ary.shape, ary.dtype, strides, order, stream)


def managed_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    attach_global: bool = True,
) -> MappedNDArray:
    """A NumPy array in memory that host and device share; here the same as a mapped one."""
    return mapped_array(shape, dtype, strides, order, stream)


def pinned_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C") -> np.ndarray:
    """A NumPy array; on a GPU its pages are locked, so that transfers of it are fast."""
    shape, strides, dtype = normalized(shape, strides, dtype, order)
    return np.ndarray(shape, dtype, np.empty(extent(shape, strides, dtype.itemsize), np.uint8), strides=strides)


def pinned_array_like(ary: Any) -> np.ndarray:
    """A `pinned_array` with the shape, dtype and layout of `ary`."""
    strides, order = strides_like(ary)
    return pinned_array(ary.shape, ary.dtype, strides, order)


@contextmanager
def pinned(*arylist: np.ndarray) -> Iterator[None]:
    """On a GPU, lock the arrays' pages for the block; no effect here."""
    yield


@contextmanager
def mapped(*arylist: np.ndarray, stream: Any = 0) -> Iterator[Any]:
    """Device arrays over the memory of host arrays: kernels then work in place. One array, or a list of several."""
    arrays = []
    for host in arylist:
        check_contiguous(host)
        allocation = Allocation(host.reshape(-1, order="A").view(np.uint8), devices.current.index)
        arrays.append(DeviceNDArray.over(host, allocation, stream))
    yield arrays[0] if len(arrays) == 1 else arrays
