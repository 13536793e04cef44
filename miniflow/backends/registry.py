"""Which function computes which op on which kind of device.

A kernel sees arrays and plain Python attributes, never tensors. It is found by the name of its op class.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from miniflow.dtype import HALF
from miniflow.formulas.scalar import FORMULAS

EVERY = range(1_000)  # for `in_place`: any input


@dataclass(frozen=True)
class Kernel:
    """What computes an op on a kind of device.

    Attributes:
        run: `run(out, *inputs, **attrs)`; `out` is a C-contiguous array, or a tuple of them for several outputs, and is
            overwritten whole. Inputs may have any strides.
        in_place: the positions of inputs whose memory an output of the same shape and dtype may be. Not for compiled
            loops: where memory overlaps LLVM's vector loops give way to scalar ones, four to ten times slower. If it
            depends on the output or the attributes: `in_place(k, **attrs)` gives the positions for output k.
        bind: `bind(out, *inputs, **attrs)` gives a function without arguments that does what `run` does, for arrays
            that stay where they are; None if that would not be faster.
        ufunc: the NumPy ufunc that is all of the kernel: the fast path of dispatch, which lets it allocate the output.
        allocating: dispatch calls `compute(*inputs, **attrs)`, which infers, allocates and runs; `allocating(compute)`
            gives a function that does so faster.
        returns: `run` is called without `out`: it returns views, or arrays whose shape depends on values, or it is an
            update that changes its operands.
    """

    run: Callable
    in_place: tuple[int, ...] | range | Callable[..., Collection[int]] = ()
    bind: Callable[..., Callable[[], None]] | None = None
    ufunc: np.ufunc | None = None
    allocating: Callable[[Callable], Callable] | None = None
    returns: bool = False


KERNELS: dict[str, dict[str, Kernel]] = {"cpu": {}, "cuda": {}}
POINTWISE: dict[str, Callable[[str], Kernel]] = {}  # device -> what makes the kernel of a pointwise operator


def kernel(
    device: str,
    *,
    half: str = "upcast",
    in_place: tuple[int, ...] | range | Callable[..., Collection[int]] = (),
    bind: Callable[..., Callable[[], None]] | None = None,
    returns: bool = False,
) -> Callable[[Callable], Callable]:
    """Decorate the kernel of the op whose name it bears in snake case: `max_pool2d` computes `MaxPool2d`.

    A kernel writes all elements of outputs that dispatch allocated from the op's `infer`, or that a graph planned. The
    shapes and dtypes were checked by `infer`. An underscore at the end of its name does not count.

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
    """Decorate the function that makes the kernel of a pointwise operator on `device`, from its name in snake case."""

    def decorate(make: Callable[[str], Kernel]) -> Callable:
        POINTWISE[device] = make
        return make

    return decorate


def kernel_of(device: str, op: str) -> Kernel | None:
    """The kernel of the op class of that name, if there is one; those of pointwise operators are made when needed."""
    found = KERNELS[device].get(op)
    if found is None and snake_case(op) in FORMULAS:
        found = KERNELS[device][op] = POINTWISE[device](snake_case(op))
    return found


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
        wide = [x.astype(np.float32) if getattr(x, "dtype", None) in HALF else x for x in arrays]
        results = [y.astype(np.float32) if y.dtype in HALF else y for y in outs]
        function(tuple(results) if isinstance(out, tuple) else results[0], *wide, **attrs)
        for y, result in zip(outs, results, strict=True):
            if result is not y:
                y[...] = result

    wrapped.only_for_half = True
    return wrapped


def without_half(run: Callable) -> Callable:
    """A kernel's function without the test for half precision, for inputs that have none."""
    return run.__wrapped__ if getattr(run, "only_for_half", False) else run
