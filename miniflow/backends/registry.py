"""Which function computes which op on which kind of device.

A kernel sees arrays and plain Python attributes, never tensors; it is registered under the name of its op class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from miniflow.dtype import HALF

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
    """

    run: Callable
    in_place: tuple[int, ...] | range | Callable[..., Collection[int]] = ()
    bind: Callable[..., Callable[[], None]] | None = None


INTO: dict[str, dict[str, Into]] = {"cpu": {}, "cuda": {}}


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
