"""A launch's arguments: the kind of each, what the kernel receives for it, and which explicit signature takes them.

A kind is a tuple that stands for a numba type: ("array", dtype, ndim, layout), ("scalar", dtype), ("record", dtype),
("none",), ("tuple", class, kinds) or ("enum", class). It is found without asking numba, so that a launch looks up its
compiled kernel in about a microsecond; numba itself is loaded when a kind's type is first needed.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from miniflow.hostcuda import devices
from miniflow.hostcuda.errors import CudaDeviceError, ImplicitCopyWarning, KernelArgumentError, KernelReturnError
from miniflow.hostcuda.memory import Allocation, DeviceNDArray, MappedNDArray, check_contiguous

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1
INT64, UINT64 = ("scalar", np.dtype(np.int64)), ("scalar", np.dtype(np.uint64))
PACKAGE = __name__.rpartition(".")[0]


SCALARS = {
    scalar: ("scalar", np.dtype(scalar))
    for scalar in {bool, float, complex, *np.sctypeDict.values()} - {np.longdouble, np.clongdouble}
    if np.dtype(scalar).kind in "biufc"
}
SCALARS[type(None)] = ("none",)
"""Class of a number -> its kind."""


def array_kind(host: np.ndarray) -> tuple:
    """The kind of an array: 'C' if it is contiguous, else 'F', else 'A', where strides are read at run time.

    Whether the array is read-only makes no variant, as a launch copies it then.
    """
    flags = host.flags
    return ("array", host.dtype, host.ndim, "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A")


@cache
def numba_type(kind: tuple) -> Any:
    """The numba type that a kind stands for."""
    from numba import typeof, types

    what, *rest = kind
    if what == "none":
        return types.none
    if what == "enum":
        return typeof(next(iter(rest[0])))
    if what == "tuple":
        cls, kinds = rest
        return types.BaseTuple.from_types(tuple(map(numba_type, kinds)), cls if hasattr(cls, "_fields") else None)
    from numba.core.errors import NumbaError
    from numba.np.numpy_support import from_dtype

    try:
        dtype = from_dtype(rest[0])
    except NumbaError:
        remedy = "; pass array.view(numpy.uint16)" if rest[0].itemsize == 2 else ""
        raise KernelArgumentError(f"kernels cannot use {what}s of dtype {rest[0]}{remedy}") from None
    return types.Array(dtype, *rest[1:]) if what == "array" else dtype


class InOut:
    """A NumPy argument that is copied to the device and back, as one without a hint is."""

    copies_in = copies_out = True

    def __init__(self, value: Any):
        self.value = value


class In(InOut):
    """A NumPy argument that is copied to the device and not back."""

    copies_out = False


class Out(InOut):
    """A NumPy argument that is not copied to the device, only back."""

    copies_in = False


class Arguments:
    """The arguments of one launch.

    numba.cuda copies every NumPy argument to the device before the launch and back after it, in the order of the
    arguments. Here the kernel works on the array itself, except where that could be told apart: of arrays that may
    overlap, all but the first are copied and written back in order; a read-only array and that of `cuda.In` are copied
    and not written back.

    Args:
        given: by the program.
        checked: whether the checked executor runs the kernel: it gets device arrays as such, not their memory.

    Attributes:
        kinds: of each.
        values: what the kernel receives.
        back: what is copied after the launch, in this order: an array or record, and its copy.
    """

    __slots__ = ("checked", "here", "kinds", "values", "seen", "back")

    def __init__(self, given: tuple, checked: bool = False):
        self.checked, self.here = checked, devices.current.index
        self.seen: Any = None  # the NumPy arrays so far
        self.back: Any = ()
        kinds, self.values = [], []
        for position, value in enumerate(given):
            kind = SCALARS.get(value.__class__)
            if kind is None:
                kind, value = self.converted(value, position)
            kinds.append(kind)
            self.values.append(value)
        self.kinds = tuple(kinds)

    def converted(self, value: Any, position: int) -> tuple[tuple, Any]:
        """Kind and value of an argument.

        Raises:
            KernelArgumentError: if kernels do not take such a value.
        """
        if isinstance(value, DeviceNDArray):
            return self._device_array(value)
        if value.__class__ in SCALARS:
            return SCALARS[value.__class__], value
        if isinstance(value, int) and not isinstance(value, Enum) and INT64_MIN <= value <= UINT64_MAX:
            return INT64 if value <= INT64_MAX else UINT64, int(value)
        hint = value if isinstance(value, InOut) else None
        value = value.__hostcuda_array__() if hasattr(value, "__hostcuda_array__") else hint.value if hint else value
        if isinstance(value, DeviceNDArray):
            return self._device_array(value)
        if isinstance(value, np.ndarray):
            return self._host_array(value, position, hint)
        if hint:
            raise KernelArgumentError(
                f"argument {position + 1}: cuda.In, cuda.Out and cuda.InOut take a NumPy array, got {value!r}"
            )
        if isinstance(value, tuple):
            members = [self.converted(item, position) for item in value]
            kinds, values = tuple(kind for kind, _ in members), [item for _, item in members]
            cls = type(value) if hasattr(value, "_fields") else tuple
            return ("tuple", cls, kinds), cls(values) if cls is tuple else cls(*values)
        if isinstance(value, np.void) and value.dtype.names is not None:
            return ("record", value.dtype), self._record(value)
        if isinstance(value, Enum):
            return ("enum", type(value)), value
        raise KernelArgumentError(refusal(value, position))

    def _device_array(self, value: DeviceNDArray) -> tuple[tuple, Any]:
        allocation = value.allocation
        if allocation.device != self.here:
            raise CudaDeviceError(
                f"an array of {value.dtype}{list(value.shape)} on device {allocation.device} was passed to a kernel on "
                f"device {self.here}; copy it there (through copy_to_host), or launch within "
                f"`with cuda.gpus[{allocation.device}]:`"
            )
        kind = value.kind
        if kind is None:
            kind = value.kind = array_kind(value.host)
        if self.checked:
            return kind, value
        allocation.initialised = True  # the kernel may write it all; only the checked executor knows
        return kind, value.host

    def _host_array(self, host: np.ndarray, position: int, hint: InOut | None) -> tuple[tuple, Any]:
        if isinstance(host, MappedNDArray):
            return array_kind(host), host.view(np.ndarray)
        if hint is None:
            warn_of_copy(position)
        if host.dtype.hasobject:
            raise KernelArgumentError(f"argument {position + 1}: kernels cannot use arrays of dtype {host.dtype}")
        check_contiguous(host)
        host = passed = np.asarray(host)
        back = host.flags.writeable and (hint is None or hint.copies_out)
        self.seen = self.seen or []
        if not back or any(np.may_share_memory(host, other) for other in self.seen):
            passed = host.copy(order="K")
            if back:
                self.back = [*self.back, (host, passed)]
            elif self.checked:  # what is written to it is lost, which is reported
                passed.flags.writeable = False
        self.seen.append(host)
        if self.checked and hint and not hint.copies_in:  # reads of it before it is written are reported
            bytes_of_it = passed.reshape(-1, order="A").view(np.uint8)
            made = DeviceNDArray.over(passed, Allocation(bytes_of_it, self.here, initialised=False))
            self.back = [*(pair for pair in self.back if pair[0] is not host), (host, made)]
            return array_kind(passed), made
        return array_kind(passed), passed

    def _record(self, value: np.void) -> Any:
        """A NumPy record, whose fields the kernel may write."""
        if not self.checked:
            return value
        passed = np.array(value)
        self.back = [*self.back, (value, passed)]
        return passed

    def write_back(self) -> None:
        """After the launch, copy what was copied in back to its array, in the order of the arguments."""
        for host, passed in self.back:
            if isinstance(host, np.void):
                for name in host.dtype.names:
                    host[name] = passed[name]
            elif isinstance(passed, DeviceNDArray):
                passed.copy_to_host(host)
            else:
                np.copyto(host, passed)


def refusal(value: Any, position: int) -> str:
    """Why an argument cannot be passed to a kernel, and what can."""
    if isinstance(value, int):
        return f"argument {position + 1} is {value}, which does not fit into 64 bits"
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    remedy = "pass numbers, NumPy or device arrays, records, or tuples of them"
    if isinstance(value, list):
        remedy = "use a tuple, or a NumPy array"
    elif hasattr(value, "__cuda_array_interface__"):
        remedy = "it lies on a real GPU, out of reach of the host executor: copy it to the host"
    elif hasattr(value, "__array__"):
        remedy = "pass numpy.asarray(...) of it, or a device array"
    return f"argument {position + 1} is of type {name}, which kernels do not take; {remedy}"


def warn_of_copy(position: int) -> None:
    """As numba.cuda does, unless NUMBA_CUDA_WARN_ON_IMPLICIT_COPY=0; the warning shows the user's line."""
    if os.environ.get("NUMBA_CUDA_WARN_ON_IMPLICIT_COPY", "1") == "0":
        return
    frame, levels = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(PACKAGE):
        frame, levels = frame.f_back, levels + 1
    warnings.warn(
        f"argument {position + 1} is a NumPy array: on a GPU it is copied there and back at every launch; "
        "cuda.to_device() copies it once",
        ImplicitCopyWarning,
        stacklevel=levels,
    )


# Explicit signatures, as in `@cuda.jit("void(float32[:], int32)")`, and which of them a launch uses


def is_signature(value: Any) -> bool:
    """Whether `cuda.jit` was given a signature, or a list of them, rather than a function."""
    return isinstance(value, str | tuple | list) or type(value).__module__.startswith("numba.core.typ")


def parse(given: Any, device: bool) -> list[tuple]:
    """The argument types of each signature that `cuda.jit` was given.

    Raises:
        KernelReturnError: if a kernel is said to return something.
    """
    found = []
    for one in given if isinstance(given, list) else [given]:
        arguments, result = normalized(one)
        if str(result) not in ("None", "none") and not device:
            raise KernelReturnError(f"@cuda.jit({one!r}): a kernel returns nothing; write 'void(...)'")
        found.append(arguments)
    return found


def normalized(signature: Any) -> tuple[tuple, Any]:
    """The types of arguments and result that a signature names; None for a result that it leaves out.

    Raises:
        KernelArgumentError: if it is not a signature.
    """
    from numba.core import sigutils

    try:
        arguments, result = sigutils.normalize_signature(signature)
    except (TypeError, NameError, SyntaxError, AttributeError) as error:
        raise KernelArgumentError(f"@cuda.jit: {signature!r} is not a signature ({error})") from None
    return tuple(arguments), result


def choose(signatures: Sequence[tuple], types: tuple, name: str) -> tuple:
    """The signature to which the arguments convert best: with the fewest unsafe, then safe, then promoting steps.

    Raises:
        KernelArgumentError: if they convert to none.
    """
    from numba.core.registry import cpu_target
    from numba.core.types import none

    cases = [none(*accepted) for accepted in signatures]
    found = cpu_target.typing_context.resolve_overload(name, cases, types, {})
    if found is None:
        accepted = "; ".join(f"({', '.join(map(str, s))})" for s in signatures)
        raise KernelArgumentError(
            f"{name}: no matching signature for arguments ({', '.join(map(str, types))}); it accepts {accepted}"
        )
    return found.args


def casts_between(given: tuple, types: tuple, parameters: Sequence[str]) -> list[Callable | None] | None:
    """For each argument what makes it one of the signature's type, or None; None if nothing is to be converted.

    Numbers are converted; the memory of arrays is used as it is.
    """
    from numba.core.types import Boolean, Number

    casts = [
        cast_to(name, target) if target != own and isinstance(target, Number | Boolean) else None
        for name, own, target in zip(parameters, given, types, strict=True)
    ]
    return casts if any(casts) else None


def cast_to(name: str, numba_type: Any) -> Callable:
    """What makes a number one of the type: integers wrap around as in C; a float is not an integer."""
    from numba.np.numpy_support import as_dtype

    dtype = as_dtype(numba_type)

    def integer(value: Any) -> Any:
        if not hasattr(value, "__index__"):
            raise KernelArgumentError(f"{name}: expected an integer, as its type is {dtype}, got {value!r}")
        bits = value.__index__() % 2 ** (8 * dtype.itemsize)
        return np.array(bits, f"u{dtype.itemsize}").view(dtype)[()]

    return integer if dtype.kind in "iu" else dtype.type


def cast(values: Sequence[Any], casts: Sequence[Callable | None]) -> list[Any]:
    """The converted values."""
    return [convert(value) if convert else value for value, convert in zip(values, casts, strict=True)]
