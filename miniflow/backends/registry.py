"""Which function computes which op on which kind of device.

A kernel sees arrays and plain Python attributes, never tensors; it is registered under the name of its op class.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniflow.dtype import HALF
from miniflow.scalar import FORMULAS

KERNELS: dict[str, dict[str, Callable]] = {"cpu": {}, "cuda": {}}
EVERY = range(1_000)  # for `in_place`: any input


@dataclass(frozen=True)
class Into:
    """A kernel that writes into memory it is given.

    Attributes:
        run: `run(out, *inputs, **attrs)`; `out` is a C-contiguous array, or a tuple of them for several outputs, and is
            overwritten whole. Inputs may have any strides.
        in_place: the positions of inputs whose memory an output of the same shape and dtype may be. Not for compiled
            loops: where memory overlaps LLVM's vector loops give way to scalar ones, four to ten times slower. If it
            depends on the output or the attributes: `in_place(k, **attrs)` gives the positions for output k.
        bind: `bind(out, *inputs, **attrs)` gives a function without arguments that does what `run` does, for arrays
            that stay where they are; None if that would not be faster.
        ufunc: the NumPy ufunc that is all of the kernel: the fast path of dispatch, which lets it allocate the output.
    """

    run: Callable
    in_place: tuple[int, ...] | range | Callable[..., Collection[int]] = ()
    bind: Callable[..., Callable[[], None]] | None = None
    ufunc: np.ufunc | None = None


INTO: dict[str, dict[str, Into]] = {"cpu": {}, "cuda": {}}


def kernel(
    device: str,
    *,
    half: str = "upcast",
    in_place: tuple[int, ...] | range | Callable[..., Collection[int]] = (),
    bind: Callable[..., Callable[[], None]] | None = None,
    returns: bool = False,
) -> Callable[[Callable], Callable]:
    """Decorate the kernel of the op whose name it bears in snake case: `max_pool2d` computes `MaxPool2d`.

    A kernel writes all elements of outputs that dispatch allocated from the op's `infer`, or that a graph planned:
    `kernel(out, *inputs, **attrs)`. `out` is a C-contiguous array, or a tuple of them for several outputs. Inputs may
    have any strides. The shapes and dtypes were checked by `infer`.

    Args:
        device: "cpu" or "cuda".
        half: "upcast": float16 and bfloat16 inputs arrive as float32, and outputs of these dtypes are float32 arrays
            that are rounded once afterwards; "native": the kernel handles half precision itself.
        in_place, bind: see `Into`.
        returns: the kernel is called without `out`: it returns views, or arrays whose shape depends on values, or it is
            an update that changes its operands.
    """

    def decorate(function: Callable) -> Callable:
        name = "".join(word.capitalize() for word in function.__name__.rstrip("_").split("_"))
        if returns:
            KERNELS[device][name] = function
        else:
            run = function if half == "native" else upcast_to_float32(function)
            KERNELS[device][name] = Into(run, in_place, bind)
        return function

    return decorate


POINTWISE: dict[str, Callable[[str], Into]] = {}  # device -> what makes the kernel of a pointwise operator


def pointwise_kernels(device: str) -> Callable[[Callable], Callable]:
    """Decorate the function that makes the kernel of a pointwise operator on `device`, from its name in snake case."""

    def decorate(make: Callable[[str], Into]) -> Callable:
        POINTWISE[device] = make
        return make

    return decorate


def kernel_of(device: str, op: str) -> Any:
    """The kernel of the op class of that name, None if there is none; those of pointwise operators are made now."""
    found = KERNELS[device].get(op)
    name = snake_case(op)
    if found is None and name in FORMULAS:
        found = KERNELS[device][op] = POINTWISE[device](name)
    return found


def snake_case(name: str) -> str:
    """`MaxPool2d` -> "max_pool2d"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def upcast_to_float32(function: Callable) -> Callable:
    """Run a kernel in float32 where an input is of half precision, and round its outputs once."""

    @functools.wraps(function)
    def wrapped(out, *arrays, **attrs):
        for x in arrays:
            if getattr(x, "itemsize", 0) == 2 and x.dtype in HALF:
                break
        else:
            function(out, *arrays, **attrs)
            return
        outs = out if isinstance(out, tuple) else (out,)
        wide = [x.astype(np.float32) if getattr(x, "dtype", None) in HALF else x for x in arrays]
        results = [empty_like(y, np.float32) if y.dtype in HALF else y for y in outs]
        function(tuple(results) if isinstance(out, tuple) else results[0], *wide, **attrs)
        for y, result in zip(outs, results, strict=True):
            if result is not y:
                copy_into(y, result)

    wrapped.only_for_half = True
    return wrapped


def empty_like(x, dtype):
    """An array of the same shape on the same device."""
    if isinstance(x, np.ndarray):
        return np.empty(x.shape, dtype)
    from miniflow.backends.cuda.array import empty

    return empty(x.shape, np.dtype(dtype), x.device_index)


def copy_into(out, values):
    """Write `values` into an array of the same shape and device."""
    if isinstance(out, np.ndarray):
        np.copyto(out, values, casting="unsafe")
    elif out.size:
        from miniflow.backends.cuda import copy

        copy.copy_into(out, values)


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


def register_into(
    device: str,
    op: str,
    in_place: tuple[int, ...] | range | Callable[..., Collection[int]] = (),
    *,
    half: str = "upcast",
    bind: Callable[..., Callable[[], None]] | None = None,
) -> Callable[[Callable], Callable]:
    """Decorate the kernel of `op` that writes into given memory: `into(out, *inputs, **attrs)`, as `Into` has it.

    Its results are, bit for bit, those of the kernel that `register` got.

    Args:
        device, op: as for `register`.
        in_place: the positions of inputs whose memory an output may be; `EVERY` for all; see `Into`.
        half: "upcast": half-precision inputs go through the op's other kernel; "native": this one handles them.
        bind: see `Into`.
    """

    def decorate(into: Callable) -> Callable:
        run = into if half == "native" else spare_half(device, op, into)
        INTO[device][op] = Into(run, in_place, bind)
        return into

    return decorate


def spare_half(device: str, op: str, into: Callable) -> Callable:
    """`into`, but half-precision inputs go through the kernel of `op`, whose results are copied."""

    @functools.wraps(into)
    def wrapped(out, *arrays, **attrs):
        for x in arrays:
            if type(x) is np.ndarray and x.itemsize == 2 and x.dtype in HALF:
                break
        else:
            into(out, *arrays, **attrs)
            return
        results = KERNELS[device][op](*arrays, **attrs)
        for place, result in zip(out, results, strict=True) if isinstance(out, tuple) else [(out, results)]:
            place[...] = result

    wrapped.only_for_half = True
    return wrapped


def without_half(kernel: Callable) -> Callable:
    """A registered kernel without the test for half precision, for inputs that have none."""
    return kernel.__wrapped__ if getattr(kernel, "only_for_half", False) else kernel


def upcast_half(kernel: Callable) -> Callable:
    """Run `kernel` in float32 on half-precision inputs and round its floating results to the first half type seen."""

    @functools.wraps(kernel)
    def wrapped(*arrays, **attrs):
        for x in arrays:
            if type(x) is np.ndarray and x.itemsize == 2 and x.dtype in HALF:
                return _run_upcast(kernel, arrays, attrs, x.dtype)
        return kernel(*arrays, **attrs)

    wrapped.only_for_half = True
    return wrapped


def upcast_half_on_device(kernel: Callable) -> Callable:
    """As `upcast_half`, for the arrays of a device."""

    @functools.wraps(kernel)
    def wrapped(*arrays, **attrs):
        for x in arrays:
            if getattr(x, "dtype", None) in HALF:
                return _run_upcast(kernel, arrays, attrs, x.dtype)
        return kernel(*arrays, **attrs)

    wrapped.only_for_half = True
    return wrapped


def _run_upcast(kernel: Callable, arrays: tuple, attrs: dict, half: np.dtype):
    wide = [x.astype(np.float32) if getattr(x, "dtype", None) in HALF else x for x in arrays]
    results = kernel(*wide, **attrs)
    if isinstance(results, tuple):
        return tuple(_round(r, half) for r in results)
    return _round(results, half)


def _round(result, half: np.dtype):
    return result.astype(half) if result.dtype == np.float32 else result
