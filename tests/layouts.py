"""The same values in memory layouts that ops meet: transposed, strided, reversed, expanded."""

from __future__ import annotations

import numpy as np

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
