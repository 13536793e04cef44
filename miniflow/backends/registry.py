"""The registry of kernels, by device type and op.

A kernel takes arrays and plain Python attributes, never tensors. It is looked up by the name of the op class.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from miniflow.dtype import HALF
from miniflow.formulas.scalar import FORMULAS

InPlace = str | tuple[int, ...] | Callable[..., Collection[int]]


@dataclass(frozen=True)
class Kernel:
    """The kernel of an op on one type of device.

    Attributes:
        run: `run(out, *inputs, **attrs)`; `out` is a C-contiguous array, or a tuple of them for several outputs, and is
            overwritten whole. Inputs may have any strides.
        in_place: the positions of inputs whose memory an output of the same shape and dtype may take over, or "all".
            Empty for compiled loops: where memory overlaps, LLVM's vector loops give way to scalar ones, which are four
            to ten times slower. Where it depends on the output or the attributes, a function: `in_place(k, **attrs)`
            returns the positions for output k.
        bind: `bind(out, *inputs, **attrs)` returns a function without arguments that does what `run` does, for arrays
            whose memory does not change; None if that would not be faster.
        ufunc: the NumPy ufunc that the kernel consists of. Dispatch calls it directly, and it allocates the output.
        allocating: dispatch calls `compute(*inputs, **attrs)`, which infers, allocates and runs; `allocating(compute)`
            returns a faster function for this.
        returns: `run` is called without `out`: it returns views, or arrays whose shape depends on values, or it is an
            update that changes its operands.
    """

    run: Callable
    in_place: InPlace = ()
    bind: Callable[..., Callable[[], None]] | None = None
    ufunc: np.ufunc | None = None
    allocating: Callable[[Callable], Callable] | None = None
    returns: bool = False


KERNELS: dict[str, dict[str, Kernel]] = {"cpu": {}, "cuda": {}}
POINTWISE: dict[str, Callable[[str], Kernel]] = {}  # device -> creates the kernel of a pointwise operator


def kernel(
    device: str,
    *,
    half: str = "upcast",
    in_place: InPlace = (),
    bind: Callable[..., Callable[[], None]] | None = None,
    returns: bool = False,
) -> Callable[[Callable], Callable]:
    """Decorate the kernel of an op, which has the name of the op in snake case: `max_pool2d` computes `MaxPool2d`.

    A kernel writes all elements of its outputs, which dispatch or the memory plan of a graph allocated according to
    `infer`. The shapes and dtypes were checked by `infer`. A trailing underscore of the name is ignored.

    Args:
        device: "cpu" or "cuda".
        half: "upcast": float16 and bfloat16 inputs arrive as float32, and outputs of these dtypes are float32 arrays
            that are rounded once afterwards; "native": the kernel handles half precision itself.
        in_place, bind, returns: see `Kernel`.
    """

    def decorate(function: Callable) -> Callable:
        run = function if half == "native" or returns else upcast_to_float32(function)
        KERNELS[device][camel_case(function.__name__)] = Kernel(run, in_place, bind, returns=returns)
        return function

    return decorate


def pointwise_kernels(device: str) -> Callable[[Callable], Callable]:
    """Decorate the function that creates the kernels of pointwise operators on `device`, by name in snake case."""

    def decorate(make: Callable[[str], Kernel]) -> Callable:
        POINTWISE[device] = make
        return make

    return decorate


def kernel_of(device: str, op: str) -> Kernel | None:
    """The kernel of an op class, by name, or None. Kernels of pointwise operators are created on first use."""
    kernel = KERNELS[device].get(op)
    if kernel is None and snake_case(op) in FORMULAS:
        kernel = KERNELS[device][op] = POINTWISE[device](snake_case(op))
    return kernel


def snake_case(name: str) -> str:
    """`MaxPool2d` -> "max_pool2d"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def camel_case(name: str) -> str:
    """`max_pool2d` -> "MaxPool2d", `sum_` -> "Sum"."""
    return "".join(word.capitalize() for word in name.rstrip("_").split("_"))


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
        upcast = [x.astype(np.float32) if getattr(x, "dtype", None) in HALF else x for x in arrays]
        results = [y.astype(np.float32) if y.dtype in HALF else y for y in outs]
        function(tuple(results) if isinstance(out, tuple) else results[0], *upcast, **attrs)
        for y, result in zip(outs, results, strict=True):
            if result is not y:
                y[...] = result

    wrapped.only_for_half = True
    return wrapped


def without_half(run: Callable) -> Callable:
    """The function of a kernel without its check for half precision, for inputs known to have none."""
    return run.__wrapped__ if getattr(run, "only_for_half", False) else run
