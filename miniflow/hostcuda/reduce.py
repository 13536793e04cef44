"""`@cuda.reduce`: a reduction of a 1-D array by a binary function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from miniflow.hostcuda.allocate import device_array, to_device
from miniflow.hostcuda.errors import DeviceArrayTypeError
from miniflow.hostcuda.kernel import jit


class Reduce:
    """Reduces arrays by an associative function of two elements, as `numba.cuda.reduce` does.

    On a GPU the elements are combined in the order of a tree; here one after the other, so that sums of floats may
    differ in the last bits. The array keeps its values, which numba's reduction overwrites.

    >>> import numpy as np
    >>> from miniflow.hostcuda import host as cuda
    >>> @cuda.reduce
    ... def total(a, b):
    ...     return a + b
    >>> total(np.arange(5, dtype=np.float32), init=100)
    np.float32(110.0)
    """

    def __init__(self, functor: Callable[[Any, Any], Any]):
        combine = jit(functor, device=True)

        @jit
        def kernel(result, array, size):
            value = result[0]
            for i in range(size):
                value = combine(value, array[i])
            result[0] = value

        self._kernel = kernel

    def __call__(self, arr: Any, size: int | None = None, res: Any = None, init: Any = 0, stream: Any = 0) -> Any:
        """Combine the first `size` elements, all by default.

        Args:
            arr: 1-D, on the host or on the device.
            size: how many elements count.
            res: a device array whose first element becomes the result; without it the result is returned.
            init: what the reduction starts with, and the result for no elements.

        Raises:
            DeviceArrayTypeError: if `arr` is not 1-D.
        """
        array = to_device(arr)
        if array.ndim != 1:
            raise DeviceArrayTypeError(f"reduce takes a 1-D array, got shape {array.shape}; ravel() it")
        size = array.size if size is None else min(size, array.size)
        result = device_array(1, array.dtype) if res is None else res
        result[0] = init
        if size:
            self._kernel[1, 1, stream](result, array, size)
        return result[0] if res is None else None
