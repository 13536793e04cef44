"""Which function computes which op on which kind of device.

A kernel sees arrays and plain Python attributes, never tensors; it is registered under the name of its op class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from miniflow.dtype import HALF

KERNELS: dict[str, dict[str, Callable]] = {"cpu": {}, "cuda": {}}


def register(device: str, op: str, *, half: str = "upcast") -> Callable[[Callable], Callable]:
    """Decorate the kernel of `op` on `device`.

    Args:
        device: the device type, "cpu" or "cuda".
        op: the name of the op class.
        half: "upcast": float16 and bfloat16 inputs arrive as float32 and floating results are rounded back once;
            "native": the kernel handles them itself (it only moves data, or NumPy's own loop is right).
    """

    def decorate(kernel: Callable) -> Callable:
        wrap = upcast_half if device == "cpu" else upcast_half_on_device
        KERNELS[device][op] = kernel if half == "native" else wrap(kernel)
        return kernel

    return decorate


def upcast_half(kernel: Callable) -> Callable:
    """Run `kernel` in float32 on half-precision inputs and round its floating results to the first half type seen."""

    @functools.wraps(kernel)
    def wrapped(*arrays, **attrs):
        for x in arrays:
            if type(x) is np.ndarray and x.itemsize == 2 and x.dtype in HALF:
                return _run_upcast(kernel, arrays, attrs, x.dtype)
        return kernel(*arrays, **attrs)

    return wrapped


def upcast_half_on_device(kernel: Callable) -> Callable:
    """As `upcast_half`, for the arrays of a device."""

    @functools.wraps(kernel)
    def wrapped(*arrays, **attrs):
        for x in arrays:
            if getattr(x, "dtype", None) in HALF:
                return _run_upcast(kernel, arrays, attrs, x.dtype)
        return kernel(*arrays, **attrs)

    return wrapped


def _run_upcast(kernel: Callable, arrays: tuple, attrs: dict, half: np.dtype):
    wide = [x.astype(np.float32) if getattr(x, "dtype", None) in HALF else x for x in arrays]
    results = kernel(*wide, **attrs)
    if isinstance(results, tuple):
        return tuple(_round(r, half) for r in results)
    return _round(results, half)


def _round(result, half: np.dtype):
    return result.astype(half) if result.dtype == np.float32 else result
