"""Shapes, strides and indices of arrays, checked by the rules of numba's device arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.hostcuda.errors import DeviceArrayError, DeviceArrayTypeError, UnsupportedArrayError


def normalized(shape: Any, strides: Any, dtype: Any, order: str) -> tuple[tuple[int, ...], tuple[int, ...], np.dtype]:
    """Shape, strides in bytes and dtype as NumPy has them; strides of a contiguous array if none are given."""
    dtype = np.dtype(dtype)
    shape = integers(shape, "shape")
    if any(n < 0 for n in shape):
        raise DeviceArrayError(f"a shape has no negative sizes, got {shape}")
    if strides is not None and strides != ():
        strides = integers(strides, "strides")
        if len(strides) != len(shape):
            raise DeviceArrayError(f"shape {shape} has {len(shape)} dimensions, strides {strides} have {len(strides)}")
        return shape, strides, dtype
    if order not in ("C", "F"):
        raise DeviceArrayError(f"order is 'C' or 'F', got {order!r}")
    strides, step = [], dtype.itemsize
    for n in reversed(shape) if order == "C" else shape:
        strides.append(step)
        step *= max(n, 1)
    return shape, tuple(reversed(strides) if order == "C" else strides), dtype


def integers(values: Any, what: str) -> tuple[int, ...]:
    """An int, or a sequence of them, as a tuple."""
    try:
        return tuple(n.__index__() for n in (values if isinstance(values, tuple | list) else (values,)))
    except AttributeError:
        raise DeviceArrayTypeError(f"{what}: expected an integer or a tuple of integers, got {values!r}") from None


def extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Bytes from the first element to the end of the last; 0 for an empty array."""
    if 0 in shape:
        return 0
    return itemsize + sum((n - 1) * abs(stride) for n, stride in zip(shape, strides, strict=True))


def strides_like(array: Any) -> tuple[tuple[int, ...] | None, str]:
    """Strides (None for contiguous ones) and order of a new array laid out like `array`, without its gaps."""
    flags = array.flags
    if flags["C_CONTIGUOUS"] or flags["F_CONTIGUOUS"] or array.ndim <= 1:
        return None, "F" if flags["F_CONTIGUOUS"] and not flags["C_CONTIGUOUS"] else "C"
    strides, step = [0] * array.ndim, array.dtype.itemsize
    for dim in sorted(range(array.ndim), key=lambda dim: array.strides[dim]):
        strides[dim] = step
        step *= array.shape[dim]
    return tuple(strides), "C"


def check_index(item: Any) -> None:
    """Refuse what the host cannot index a device array with: arrays, masks, lists, field names, None."""
    for part in item if isinstance(item, tuple) else (item,):
        if isinstance(part, slice) or part is Ellipsis or (hasattr(part, "__index__") and not isinstance(part, bool)):
            if not (isinstance(part, np.ndarray) and part.ndim):
                continue
        raise DeviceArrayTypeError(
            f"on the host, a device array is indexed by integers, slices and '...', got {part!r}; "
            "copy_to_host() first, or index inside a kernel"
        )


def index_tuple(item: Any) -> tuple:
    """An index that makes NumPy give an array even for one element: it ends in one more "..." if there is none."""
    index = item if isinstance(item, tuple) else (item,)
    return index if Ellipsis in index else (*index, Ellipsis)


def check_compatible(source: Any, target: Any, operation: str) -> None:
    """Refuse a transfer between arrays of unlike dtype or shape; sizes of 1 do not count."""
    if source.dtype != target.dtype:
        raise DeviceArrayTypeError(
            f"{operation}: incompatible dtype: {source.dtype} on one side, {target.dtype} on the other; "
            "a transfer copies bytes, convert with .astype before it"
        )
    without_ones = [[n for n in array.shape if n != 1] for array in (source, target)]
    if without_ones[0] != without_ones[1]:
        raise DeviceArrayError(
            f"{operation}: incompatible shape: {source.shape} on one side, {target.shape} on the other"
        )


def check_strides(one: Any, other: Any, operation: str) -> None:
    """Refuse a transfer between arrays of unlike strides, as bytes are copied in the order in which they lie."""
    strides = [[step for step, n in zip(array.strides, array.shape, strict=True) if n != 1] for array in (one, other)]
    if one.size and strides[0] != strides[1]:
        raise DeviceArrayError(
            f"{operation}: incompatible strides: {one.strides} on one side, {other.strides} on the other; "
            "both arrays must be laid out alike"
        )


def check_contiguous(array: np.ndarray) -> None:
    """Refuse an array with gaps, leaving aside repeated dimensions (stride 0), as a transfer is one block of bytes."""
    core = array[tuple(0 if stride == 0 else slice(None) for stride in array.strides)] if array.size else array
    flags = np.asarray(core).flags
    if not flags.c_contiguous and not flags.f_contiguous:
        raise DeviceArrayError(
            f"array of shape {array.shape} and strides {array.strides} has gaps and cannot be transferred; "
            "make it contiguous with numpy.ascontiguousarray()"
        )


def without_copy(array: np.ndarray, operation: str, shape: Any, order: str) -> np.ndarray:
    """`array.reshape(shape)`, refused where NumPy would have to copy."""
    try:
        return array.reshape(shape, order=order, copy=False)
    except ValueError:
        array.reshape(shape, order=order)  # raises if the sizes do not fit
        raise UnsupportedArrayError(
            f"{operation} of shape {array.shape}, strides {array.strides} to {shape} requires copying; "
            "device arrays only make views"
        ) from None


def assign(target: np.ndarray, source: np.ndarray) -> None:
    """`target[...] = source` with broadcasting, and the conversions of an assignment in a kernel."""
    if source.ndim > target.ndim:
        raise DeviceArrayError(f"cannot assign a {source.ndim}-D array to {target.ndim} dimensions of a device array")
    for dim, (n, m) in enumerate(zip(reversed(target.shape), reversed(source.shape), strict=False)):
        if m not in (1, n):
            raise DeviceArrayError(
                f"cannot assign shape {source.shape} to shape {target.shape}: size {m} against {n} in dimension "
                f"{target.ndim - 1 - dim}"
            )
    if source.dtype.kind == "c" and target.dtype.kind != "c":
        raise DeviceArrayTypeError(f"cannot assign {source.dtype} values to a device array of {target.dtype}")
    np.copyto(target, source, casting="unsafe")
