"""Creating, copying and reading arrays on any device. A device is any `Place`.

An array on the CPU is a NumPy array, one on a CUDA device a `DeviceArray` of `backends.cuda`, which is only imported
when the first of them is created: it takes time to load, and most programs on the CPU never need it. Placements, and
the arrays on their ranks, implement these operations as methods.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from miniflow.backends.registry import KERNELS, POINTWISE, kernel

CPU = "cpu"


def _cuda(module: str = "array") -> Any:
    """A module of the CUDA backend, imported on first use."""
    return import_module(f"miniflow.backends.cuda.{module}")  # the package registers the kernels


def load_kernels(device: Any) -> None:
    """Register the kernels of a device; otherwise this happens when the first array is created there."""
    if device.type != CPU:
        _cuda()


def is_host(array: Any) -> bool:
    """Whether an array is in the memory of the CPU."""
    return isinstance(array, np.ndarray)


def is_global(array: Any) -> bool:
    """Whether the elements of an array lie on the ranks of a placement."""
    return not isinstance(array, np.ndarray) and array.is_global


def is_on(array: Any, device: Any) -> bool:
    """Whether an array is on that device."""
    if device.is_global or is_global(array):
        return device.is_global and is_global(array) and array.placement == device
    if isinstance(array, np.ndarray):
        return device.type == CPU
    return device.type != CPU and array.device_index == device.index


def empty(shape: tuple[int, ...], dtype: np.dtype, device: Any) -> Any:
    """An uninitialized array."""
    if device.is_global:
        return device._empty(shape, dtype)
    if device.type == CPU:
        return np.empty(shape, dtype)
    return _cuda().empty(shape, dtype, device.index)


def empty_like(array: Any, shape: tuple[int, ...], dtype: Any = None) -> Any:
    """An uninitialized array of another shape on the same device, in row-major order."""
    dtype = array.dtype if dtype is None else dtype
    return np.empty(shape, dtype) if is_host(array) else _cuda().empty(shape, dtype, array.device_index)


def full(shape: tuple[int, ...], value: Any, dtype: np.dtype, device: Any) -> Any:
    """An array filled with `value`.

    Raises:
        OverflowError, ValueError: if the dtype cannot hold the value, as NumPy has it.
    """
    if device.is_global:
        return device._full(shape, value, dtype)
    if device.type == CPU:
        return np.full(shape, value, dtype)
    return _cuda().full(shape, np.full((), value, dtype)[()], dtype, device.index)


def move(array: Any, device: Any) -> Any:
    """The array on another device: a copy, or the array itself if it is there."""
    if is_on(array, device):
        return array
    if device.is_global:
        return device._move(array)
    if device.type == CPU:
        return to_host(array)
    if is_global(array) or is_host(array):
        return _cuda().from_host(to_host(array), device.index)
    return _cuda().on_device(array, device.index)


def pinned_like(array: Any) -> np.ndarray:
    """An array on the CPU with the shape and dtype of one on a CUDA device, for the next two functions."""
    return _cuda().pinned_like(array)


def start_copy_to(target: np.ndarray, array: Any) -> Any:
    """Start to copy an array of a CUDA device to the CPU. The result has `query()`, whether the values are there, and
    `synchronize()`, which waits for them."""
    return _cuda().start_copy_to(target, array)


def start_copy_from(source: np.ndarray, array: Any) -> None:
    """Fill an array of a CUDA device with values of the CPU, without waiting."""
    _cuda().start_copy_from(source, array)


def to_host(array: Any) -> np.ndarray:
    """The values as a NumPy array: the array itself on the CPU, else a copy, which waits for the device."""
    return array if isinstance(array, np.ndarray) else array.numpy()


def from_host(array: Any, values: np.ndarray) -> Any:
    """The values of a NumPy array on the device of `array`."""
    return values if is_host(array) else _cuda().from_host(values, array.device_index)


def synchronize(array: Any) -> None:
    """Wait until the device of an array has finished the work that this thread submitted."""
    if not is_host(array):
        _cuda("streams").current(array.device_index).synchronize()


def peek(array: Any) -> np.ndarray | None:
    """The values if they can be read without waiting for a device, for checks of indices; None on a GPU."""
    return array if isinstance(array, np.ndarray) else array.peek()


def copy_into(out: Any, values: Any) -> None:
    """Write `values`, broadcast and cast, into `out`, an array of any strides on the same device."""
    if isinstance(out, np.ndarray):
        np.copyto(out, values, casting="unsafe")
    elif out.size:
        out.write(values)


def write_through(x: Any, values: Any, steps: tuple) -> None:
    """Write `values` into a view of `x`; `steps`, pairs of a view op and its attributes, lead to it."""
    if not steps:
        copy_into(x, values)
        return
    if is_global(x):
        x.write_through(values, steps)
        return
    op, attrs = steps[0]
    if op.__name__ != "View" or x.flags.c_contiguous:
        view = KERNELS[CPU if is_host(x) else "cuda"][op.__name__].run(x, **attrs)
        write_through(view, values, steps[1:])
    else:  # with these strides the reshape may copy
        view = x.reshape(attrs["shape"])
        write_through(view, values, steps[1:])
        copy_into(x, view.reshape(x.shape))


def add_into(out: Any, values: Any) -> None:
    """Add `values` to `out`, an array of the same shape, dtype and device."""
    if isinstance(out, np.ndarray):
        np.add(out, values, out=out)
    elif out.is_global:
        out.add(values)
    elif out.size:
        POINTWISE["cuda"]("add").run(out, out, values)


def fill(out: Any, value: Any) -> None:
    """Write one number into every element of `out`."""
    if isinstance(out, np.ndarray):
        out[...] = value
    elif out.size:
        out.fill(value)


def row_major(array: Any) -> Any:
    """An array in row-major order without gaps: the array itself, or a copy."""
    if is_global(array):
        return array.each(row_major)
    return array if layout(array).flags.c_contiguous else array.copy()


def is_whole(array: Any) -> bool:
    """Whether an array is writeable, row-major, and occupies all of its memory."""
    if isinstance(array, np.ndarray):
        base = array.base
        return array.flags.carray and (base is None or is_host(base) and base.base is None and base.size == array.size)
    return not array.is_global and array.is_whole()


def layout(array: Any) -> np.ndarray:
    """A NumPy array with the same shape and strides; for an array on a GPU its elements cannot be read."""
    return array if isinstance(array, np.ndarray) else array.layout


def address(array: Any) -> int:
    """The address of the first element."""
    return array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.address


@kernel("cpu", returns=True)
@kernel("cuda", returns=True)
def to_device(x: Any, *, source: Any, target: Any) -> Any:
    return move(x, target)
