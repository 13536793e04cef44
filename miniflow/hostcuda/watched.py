"""Arrays as a kernel sees them in the checked executor: layouts over a `Memory`. `access` reads and writes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow.hostcuda.arithmetic import truncated, wrapped
from miniflow.hostcuda.shadow import Memory


class Watched:
    """An array or a view of one.

    Attributes:
        name: as the kernel's author knows it.
        host: the elements, as a NumPy array.
        memory: where they lie.
        root: the array of which this is a view, or itself.
        flat: the memory as a 1-D array of the same dtype; None if elements do not lie at multiples of their size.
        first: position of the first element in `flat`.
        steps: strides in elements.
        wide: whether elements are int64, which are Python ints in the kernel.
        plain: 1 or 2 if the array has so many dims and `flat`: elements are then found fast, by `rows`, `row_step` ...
    """

    __slots__ = (
        "name", "host", "memory", "root", "flat", "first", "steps", "shape", "rank", "wide", "itemsize", "fields",
        "plain", "rows", "columns", "row_step", "column_step",
    )  # fmt: skip

    def __init__(self, name: str, host: np.ndarray, memory: Memory, root: Watched | None = None):
        self.name, self.host, self.memory, self.root = name, host, memory, root or self
        self.shape, self.rank, self.itemsize = host.shape, host.ndim, host.itemsize
        self.wide = host.dtype == np.int64
        self.fields = host.dtype.fields
        offset = host.__array_interface__["data"][0] - memory.start if host.size else 0
        if any(number % self.itemsize for number in (offset, *host.strides)):
            self.flat, self.first, self.steps = None, 0, host.strides
        else:
            self.flat, self.first = memory.flat(host.dtype), offset // self.itemsize
            self.steps = tuple(stride // self.itemsize for stride in host.strides)
        self.plain = self.rank if self.flat is not None and self.rank in (1, 2) else 0
        self.rows, self.columns = (*self.shape, 0, 0)[:2]
        self.row_step, self.column_step = (*self.steps, 0, 0)[:2]
        memory.refine(granule(host.dtype))

    # What a kernel may ask of an array

    @property
    def size(self) -> int:
        return self.host.size

    @property
    def ndim(self) -> int:
        return self.rank

    @property
    def dtype(self) -> np.dtype:
        return self.host.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        return self.host.strides

    @property
    def nbytes(self) -> int:
        return self.host.nbytes

    @property
    def T(self) -> Watched:
        return self._view(self.host.T, f"{self.name}.T")

    @property
    def real(self) -> Watched:
        return self._view(self.host.real, f"{self.name}.real")

    @property
    def imag(self) -> Watched:
        return self._view(self.host.imag, f"{self.name}.imag")

    def __len__(self) -> int:
        return self.shape[0]

    def view(self, dtype: Any) -> Watched:
        return self._view(self.host.view(as_dtype(dtype)))

    def reshape(self, *shape: Any) -> Watched:
        flat = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        reshaped = self.host.view()
        reshaped.shape = flat  # raises where numba raises too: a view, never a copy
        return self._view(reshaped)

    def ravel(self) -> Watched:
        return self.reshape(self.size)

    def transpose(self, *axes: Any) -> Watched:
        return self._view(self.host.transpose(*axes), f"{self.name}.T")

    def field(self, name: str) -> Watched:
        """The view of one field of an array of records."""
        return self._view(self.host[name], f"{self.name}.{name}")

    def _view(self, host: np.ndarray, name: str = "") -> Watched:
        return Watched(name or self.name, host, self.memory, self.root)

    def cells_of(self, position: int) -> range:
        """The memory's cells of the element at `position` (in `flat`, or bytes from the start where there is none)."""
        byte = position * self.itemsize if self.flat is not None else position
        return range(byte // self.memory.granule, -(-(byte + self.itemsize) // self.memory.granule))

    def get(self, position: int, index: Any) -> Any:
        value = self.flat[position] if self.flat is not None else self.host[index]
        return int(value) if self.wide else value

    def put(self, position: int, index: Any, value: Any) -> None:
        value = converted(value, self.host.dtype)
        if self.flat is not None:
            self.flat[position] = value
        else:
            self.host[index] = value


class Record:
    """One element of an array of records: its fields are read and written one by one."""

    __slots__ = ("array", "index")

    def __init__(self, array: Watched, index: tuple[int, ...]):
        self.array, self.index = array, index


def as_dtype(dtype: Any) -> np.dtype:
    """A NumPy dtype of what stands for one in a kernel: numba's types too."""
    if isinstance(dtype, np.dtype):
        return dtype
    if any(base.__name__ == "Type" and base.__module__.startswith("numba") for base in type(dtype).__mro__):
        from numba.np.numpy_support import as_dtype as from_numba

        return from_numba(dtype)
    return np.dtype(dtype)


def granule(dtype: np.dtype) -> int:
    """The greatest number of bytes that divides an element and each of its fields."""
    if dtype.fields is None:
        return dtype.itemsize
    parts = [(offset, granule(field)) for field, offset, *_ in dtype.fields.values()]
    return math.gcd(dtype.itemsize, *(number for part in parts for number in part))


def converted(value: Any, dtype: np.dtype) -> Any:
    """A scalar as an assignment converts it: integers wrap, floats are cut off."""
    if dtype.kind == "i":
        return value if type(value) is dtype.type else wrapped(truncated(value, dtype), 8 * dtype.itemsize)
    if dtype.kind == "u":
        return value if type(value) is dtype.type else truncated(value, dtype) & ((1 << 8 * dtype.itemsize) - 1)
    return value
