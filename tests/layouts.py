"""The same values in memory layouts that ops meet: transposed, strided, reversed, expanded."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.memory import move
from miniflow.device import device

LAYOUTS = ("fortran", "strided", "reversed", "expanded")


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same values in another memory layout ("expanded": those of the first row, repeated by a stride of zero)."""
    if array.ndim == 0 or layout == "contiguous":
        return array.copy()
    if layout == "fortran":
        return array.T.copy().T
    if layout == "strided":
        room = np.full([2 * n + 1 for n in array.shape], 77, array.dtype)
        view = room[tuple(slice(1, 2 * n + 1, 2) for n in array.shape)]
        view[...] = array
        return view
    if layout == "reversed":
        back = (slice(None, None, -1),) * array.ndim
        return array[back].copy()[back]
    if layout == "expanded":
        return np.lib.stride_tricks.as_strided(array[:1].copy(), array.shape, (0, *array[:1].copy().strides[1:]))
    raise ValueError(f"laid_out: got layout {layout!r}; expected one of {LAYOUTS}")


def placed(array: np.ndarray, where: device) -> Any:
    """The values of `array` on a device, in the same memory layout; on the CPU the array itself."""
    if where.type == "cpu" or array.flags.c_contiguous or array.size == 0:
        return move(array, where)
    low, high = np.lib.array_utils.byte_bounds(array)
    first = array.__array_interface__["data"][0] - low

    def view(memory: np.ndarray) -> np.ndarray:
        start = memory[first : first + array.itemsize].view(array.dtype)
        return np.lib.stride_tricks.as_strided(start, array.shape, array.strides)

    storage = np.full(high - low, 77, np.uint8)
    view(storage)[...] = array
    return move(storage, where).view(view)
