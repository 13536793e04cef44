"""`cuda.vectorize`, `cuda.guvectorize` and `cuda.reduce`: functions of numbers, or of small arrays, for large arrays.

The first two are numba's universal functions for the CPU, which also take device arrays. What they are made of calls
functions of math and NumPy, and device functions made of these; the names of `cuda` mean something in kernels only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import zip_longest
from typing import Any

import numpy as np

from miniflow.hostcuda.errors import DeviceArrayTypeError
from miniflow.hostcuda.kernel import Kernel, jit
from miniflow.hostcuda.memory import DeviceNDArray, device_array, to_device


def vectorize(signatures: Any, target: str = "cuda", **options: Any) -> Callable:
    """Make a universal function of a function of numbers, as numba's `vectorize(target="cuda")`.

    The function may call functions of math and NumPy, and device functions that do so; no other names of `cuda`.

    Args:
        signatures: as "float32(float32, float32)", or a list of them.

    Example:
        >>> from miniflow.hostcuda import host as cuda
        >>> @cuda.vectorize("float32(float32, float32)")
        ... def distance(a, b):
        ...     return abs(a - b)
        >>> distance(np.float32([3, 5]), np.float32([[4], [12]]))
        array([[1., 1.],
               [9., 7.]], dtype=float32)
    """
    return lambda function: UniversalFunction(numba_with_kernels().vectorize(signatures)(function))


def guvectorize(signatures: Any, layout: str, target: str = "cuda", **options: Any) -> Callable:
    """Make a universal function of a function that reads small arrays and fills others, as numba's `guvectorize`.

    Args:
        signatures: as "void(float32[:], float32[:], float32[:])", or a list of them.
        layout: the dims that the function sees, as "(n),(n)->()". An output without dims is an array of one element.
    """
    decorate = numba_with_kernels().guvectorize(signatures, layout, boundscheck=True)
    return lambda function: UniversalFunction(decorate(function))


@cache
def numba_with_kernels() -> Any:
    """numba, after it was told how its own functions call device functions."""
    import numba
    from numba.extending import typeof_impl

    compiled = cache(numba.njit)  # which keeps it: numba's types have weak references

    @typeof_impl.register(Kernel)
    def of_device_function(kernel: Kernel, context: Any) -> Any:
        return numba.typeof(compiled(kernel.py_func)) if kernel.device else None

    return numba


class CUDAVectorize:
    """What `numba.vectorize(signatures, target="cuda")` makes universal functions with."""

    decorate = staticmethod(vectorize)

    def __init__(self, function: Callable, *layout: str, **options: Any):
        self.function, self.layout, self.signatures = function, layout, []

    def add(self, signature: Any) -> None:
        """Accept arguments of these types as well."""
        self.signatures.append(signature)

    def disable_compile(self) -> None:
        """Accept no others, as always."""

    def build_ufunc(self) -> UniversalFunction:
        """The universal function for all signatures."""
        return self.decorate(self.signatures, *self.layout)(self.function)


class CUDAGUFuncVectorize(CUDAVectorize):
    """The same for `numba.guvectorize`."""

    decorate = staticmethod(guvectorize)


class UniversalFunction:
    """A universal function. Results are on the device if an argument is, else on the host."""

    def __init__(self, ufunc: Any):
        self.ufunc, self.__name__ = ufunc, ufunc.__name__

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = 0) -> Any:
        """Apply it; arguments after the inputs, or `out`, are filled instead of new arrays."""
        inputs, targets = arguments[: self.ufunc.nin], arguments[self.ufunc.nin :]
        outputs = self.ufunc(*(np.asarray(a) if isinstance(a, DeviceNDArray) else a for a in inputs))
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        targets = targets or (out if isinstance(out, tuple) else (out,))
        on_device = any(isinstance(a, DeviceNDArray) for a in arguments)
        delivered = [deliver(*pair, on_device) for pair in zip_longest(results, targets)]
        return delivered[0] if len(delivered) == 1 else tuple(delivered)

    def reduce(self, array: Any, stream: Any = 0) -> Any:
        """Combine the elements of a 1-D array by a function of two numbers."""
        return self.ufunc.reduce(np.asarray(array))


def deliver(result: Any, target: Any, on_device: bool) -> Any:
    """The result in its target, on the device, or as it is."""
    if target is None:
        return to_device(result) if on_device else result
    target[...] = result
    return target


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
