"""`cuda.vectorize`, `cuda.guvectorize` and `cuda.reduce`: functions of numbers, or of small arrays, for large arrays.

Dims in front of those that the function sees are looped over, and broadcast as NumPy's universal functions do. Each
thread calls the function once:

    def kernel(a0, a1, o0):          # (loops, *dims the function sees)
        i = cuda.grid(1)
        if i < o0.shape[0]:
            o0[i] = f(a0[i], a1[i])  # guvectorize: f(a0[i], a1[i], o0[i])
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Callable, Sequence
from inspect import isfunction
from itertools import count, zip_longest
from typing import Any

import numpy as np

from miniflow.hostcuda.arguments import normalized
from miniflow.hostcuda.errors import DeviceArrayTypeError, KernelArgumentError
from miniflow.hostcuda.intrinsic import INTRINSICS
from miniflow.hostcuda.kernel import Kernel, jit
from miniflow.hostcuda.memory import DeviceNDArray, MappedNDArray, device_array, to_device

NUMBERS = count()


def vectorize(signatures: Any = (), target: str = "cuda", **options: Any) -> Callable:
    """Make a universal function of a function of numbers, as numba's `vectorize(target="cuda")`.

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
    parsed = [normalized(one) for one in _listed(signatures, "vectorize")]
    types = [(*arguments, result) for arguments, result in parsed]
    return lambda function: UniversalFunction(function, types, [()] * (len(types[0]) - 1), [()], returns=True)


def guvectorize(signatures: Any, layout: str, target: str = "cuda", **options: Any) -> Callable:
    """Make a universal function of a function that reads small arrays and fills others, as numba's `guvectorize`.

    Args:
        signatures: as "void(float32[:], float32[:], float32[:])", or a list of them.
        layout: the dims that the function sees, as "(n),(n)->()". An output without dims is an array of one element.
    """
    types = [normalized(one)[0] for one in _listed(signatures, "guvectorize")]
    inputs, outputs = (
        [tuple(re.findall(r"\w+", dims)) for dims in re.findall(r"\(([^)]*)\)", side)] for side in layout.split("->")
    )
    return lambda function: UniversalFunction(function, types, inputs, outputs, returns=False)


def _listed(signatures: Any, name: str) -> Sequence[Any]:
    found = list(signatures) if isinstance(signatures, list | tuple) else [signatures]
    if not found or isfunction(found[0]):
        raise KernelArgumentError(f"@cuda.{name} takes signatures, as @cuda.{name}(['float32(float32)'])")
    return found


class UniversalFunction:
    """What `vectorize` and `guvectorize` make. Host arrays give host arrays; with a device array, the result is one."""

    def __init__(self, function: Callable, types: list[tuple], inputs: list, outputs: list, returns: bool):
        self.__name__ = function.__name__
        self.dtypes = [[dtype_of(one) for one in signature] for signature in types]
        self.inputs, self.outputs = inputs, outputs
        self.number = () if returns else (1,)  # the shape that the kernel sees of an output without dims
        self.kernel = kernel_over(function, len(inputs), len(outputs), returns)

    def __call__(self, *arguments: Any, out: Any = None, stream: Any = 0) -> Any:
        """Apply it; arguments after the inputs, or `out`, are filled instead of new arrays."""
        first = len(self.inputs)
        if not first <= len(arguments) <= first + len(self.outputs):
            raise KernelArgumentError(f"{self.__name__} takes {first} arrays, got {len(arguments)}")
        given = list(map(np.asarray, arguments[:first]))
        dtypes = self._dtypes_for([a.dtype if a.ndim else None for a in given])
        loop, sizes = self._shapes(given)
        shapes = [tuple(sizes[dim] for dim in dims) for dims in (*self.inputs, *self.outputs)]
        arrays = [
            np.ascontiguousarray(np.broadcast_to(array, loop + shape), dtype)
            for array, shape, dtype in zip(given, shapes, dtypes, strict=False)
        ]
        results = [np.empty(loop + shape, dtype) for shape, dtype in zip(shapes[first:], dtypes[first:], strict=True)]
        seen = shapes[:first] + [shape or self.number for shape in shapes[first:]]
        rows = [a.reshape(-1, *shape).view(MappedNDArray) for a, shape in zip(arrays + results, seen, strict=True)]
        self.kernel.forall(math.prod(loop), stream=stream)(*rows)
        targets = arguments[first:] or (out if isinstance(out, tuple) else (out,))
        on_device = any(isinstance(a, DeviceNDArray) for a in arguments)
        delivered = [delivery(*pair, on_device) for pair in zip_longest(results, targets)]
        return delivered[0] if len(delivered) == 1 else tuple(delivered)

    def _dtypes_for(self, given: list) -> list[np.dtype]:
        """The signature of these dtypes; None for a number, which any takes."""
        for dtypes in self.dtypes:
            if all(own is None or own == wanted for own, wanted in zip(given, dtypes, strict=False)):
                return dtypes
        accepted = "; ".join(f"({', '.join(map(str, dtypes))})" for dtypes in self.dtypes)
        raise KernelArgumentError(
            f"{self.__name__}: no signature for arrays of {', '.join(map(str, given))}, which are not converted; "
            f"it has {accepted}"
        )

    def _shapes(self, given: list[np.ndarray]) -> tuple[tuple[int, ...], dict[str, int]]:
        """The shape to loop over, and the size of each dim that the function sees."""
        sizes: dict[str, int] = {}
        for array, dims in zip(given, self.inputs, strict=True):
            for dim, size in zip(dims, array.shape[array.ndim - len(dims) :], strict=True):
                if sizes.setdefault(dim, size) != size:
                    raise KernelArgumentError(f"{self.__name__}: dim {dim} has sizes {sizes[dim]} and {size}")
        loops = [array.shape[: array.ndim - len(dims)] for array, dims in zip(given, self.inputs, strict=True)]
        return np.broadcast_shapes(*loops), sizes


def dtype_of(numba_type: Any) -> np.dtype:
    """The dtype of a number's type, or of an array's elements."""
    from numba.np.numpy_support import as_dtype

    return as_dtype(getattr(numba_type, "dtype", numba_type))


def kernel_over(function: Callable, inputs: int, outputs: int, returns: bool) -> Kernel:
    """The kernel that the head of this file shows."""
    read, written = [f"a{k}" for k in range(inputs)], [f"o{k}" for k in range(outputs)]
    call = f"core({', '.join(f'{name}[i]' for name in read + ([] if returns else written))})"
    lines = [
        f"def {function.__name__}({', '.join(read + written)}):",
        "    i = grid(1)",
        "    if i < o0.shape[0]:",
        f"        {'o0[i] = ' if returns else ''}{call}",
    ]
    text, path = "\n".join(lines) + "\n", f"<{function.__name__} over arrays, {next(NUMBERS)}>"
    linecache.cache[path] = len(text), None, text.splitlines(True), path  # where kernels are read from
    names = {"grid": INTRINSICS["grid"], "core": jit(function, device=True)}
    exec(compile(text, path, "exec"), names)
    return jit(names[function.__name__])


def delivery(result: np.ndarray, target: Any, on_device: bool) -> Any:
    """The result in its target, on the device, or as it is."""
    if target is None:
        return to_device(result) if on_device else result[()]
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
