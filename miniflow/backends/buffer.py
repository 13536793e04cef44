"""What a tensor of dtype `flow.tensor_buffer` holds: an array whose elements are arrays of different shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.dtype import tensor_buffer
from miniflow.errors import DTypeError


class BufferArray(np.ndarray):
    """A read-only NumPy array whose elements are records with one field, an array. Made by `of`."""

    device_index = None  # all array classes but NumPy's own have it

    @classmethod
    def of(cls, arrays: Sequence[np.ndarray], shape: Sequence[int] | None = None) -> BufferArray:
        """A buffer of these arrays, in row-major order; its shape is (len(arrays),) by default."""
        buffer = np.empty(len(arrays), tensor_buffer.numpy)
        for i, array in enumerate(arrays):
            buffer[i] = (array,)
        buffer.flags.writeable = False
        return buffer.reshape(len(arrays) if shape is None else shape).view(cls)

    def __reduce__(self) -> tuple:
        return BufferArray.of, (self.elements(), self.shape)

    def elements(self) -> list[np.ndarray]:
        """The arrays in row-major order, without a copy."""
        return [array for (array,) in np.ndarray.tolist(self.reshape(-1))]

    def are_in_one_memory(self) -> bool:
        """Whether the arrays have one dtype and lie one after the other in memory, without gaps."""
        arrays = [array for array in self.elements() if array.size]
        starts = [array.__array_interface__["data"][0] for array in arrays]
        ends = [start + array.nbytes for start, array in zip(starts, arrays, strict=True)]
        are_contiguous = all(array.flags.c_contiguous and array.dtype == arrays[0].dtype for array in arrays)
        return are_contiguous and starts[1:] == ends[:-1]

    def copy(self, order: str = "C") -> BufferArray:
        """A copy of all arrays."""
        return BufferArray.of([array.copy() for array in self.elements()], self.shape)

    def tolist(self) -> Any:
        """Nested lists of the numbers in all of the arrays."""
        if self.ndim == 0:
            return self.elements()[0].tolist()
        return [self[i, ...].tolist() for i in range(len(self))]

    def item(self) -> Any:
        """Raise DTypeError: an element is not a number."""
        raise DTypeError("got a tensor of tensor_buffer, whose elements are arrays; expected numbers: use x.numpy()")
