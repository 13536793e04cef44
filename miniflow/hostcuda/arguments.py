"""A launch's arguments: the kind of each, what the kernel receives for it, and which explicit signature takes them.

A kind stands for a numba type: the class of a number, (dtype, ndim, layout) of an array, and of anything else the type
itself. It is found without asking numba, so that a launch looks up its compiled kernel in about a microsecond.
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from miniflow.hostcuda import devices
from miniflow.hostcuda.errors import CudaDeviceError, ImplicitCopyWarning, KernelArgumentError, KernelReturnError
from miniflow.hostcuda.memory import Allocation, DeviceNDArray, MappedNDArray, check_transferable

NUMBERS = "?bhilqBHILQefdFD"  # the codes of the dtypes that kernels know
SCALARS = {scalar for scalar in (bool, float, complex, *np.sctypeDict.values()) if np.dtype(scalar).char in NUMBERS}
SCALARS.add(type(None))
"""The classes of numbers; an int is one of int64 or uint64."""


def array_kind(host: np.ndarray) -> tuple:
    """The kind of an array: 'C' if it is contiguous, else 'F', else 'A', where strides are read at run time.

    Whether the array is read-only makes no variant, as a launch copies it then.
    """
    flags = host.flags
    return (host.dtype, host.ndim, "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A")


@cache
def numba_type(kind: Any) -> Any:
    """The numba type that a kind stands for."""
    from numba import typeof, types
    from numba.core.errors import NumbaError
    from numba.np.numpy_support import from_dtype

    if isinstance(kind, type):
        return types.none if kind is type(None) else typeof(kind(0))
    if isinstance(kind, types.Type):
        return kind
    dtype, *rest = kind
    try:
        return types.Array(from_dtype(dtype), *rest)
    except NumbaError:
        remedy = "; pass array.view(numpy.uint16)" if dtype.itemsize == 2 else ""
        raise KernelArgumentError(f"kernels cannot use arrays of dtype {dtype}{remedy}") from None


class InOut:
    """A NumPy argument that is copied to the device and back, as one without a hint is."""

    def __init__(self, value: Any, copies_in: bool = True, copies_out: bool = True):
        self.value, self.copies_in, self.copies_out = value, copies_in, copies_out


In, Out = partial(InOut, copies_out=False), partial(InOut, copies_in=False)
"""The same, but not copied back; or not copied to the device."""
NO_HINT = InOut(None)


class Arguments:
    """The arguments of one launch.

    numba.cuda copies every NumPy argument to the device before the launch and back after it, in the order of the
    arguments. Here the kernel works on the array itself, except where that could be told apart: an array that may
    overlap an earlier one, a read-only one and that of `cuda.In` are copied, and the first of these written back.

    Args:
        arguments: as the program passes them.
        checked: whether the checked executor runs the kernel: it gets device arrays as such, not their memory.

    Attributes:
        kinds: of each.
        values: what the kernel receives.
        copies_back: what is copied after the launch, in this order: an array or record, and its copy, or it itself.
    """

    __slots__ = ("checked", "device", "kinds", "values", "copies_back")

    def __init__(self, arguments: tuple, checked: bool = False):
        self.checked, self.device = checked, devices.current.index
        self.copies_back: Any = ()
        kinds, self.values = [], []
        for position, value in enumerate(arguments):
            kind = value.__class__
            if kind not in SCALARS:
                kind, value = self.converted(value, position)
            kinds.append(kind)
            self.values.append(value)
        self.kinds = tuple(kinds)

    def converted(self, value: Any, position: int) -> tuple[Any, Any]:
        """Kind and value of an argument.

        Raises:
            KernelArgumentError: if kernels do not take such a value.
        """
        if isinstance(value, DeviceNDArray):
            return self._device_array(value)
        if value.__class__ in SCALARS:
            return value.__class__, value
        if isinstance(value, int) and -(2**63) <= value < 2**64:
            return np.int64 if value < 2**63 else np.uint64, int(value)
        hint, value = (value, value.value) if isinstance(value, InOut) else (NO_HINT, value)
        value = value.__hostcuda_array__() if hasattr(value, "__hostcuda_array__") else value
        if isinstance(value, DeviceNDArray):
            return self._device_array(value)
        if isinstance(value, np.ndarray):
            return self._host_array(value, position, hint)
        if isinstance(value, tuple):
            from numba.core.types import BaseTuple

            members = [self.converted(item, position) for item in value]
            types, values = tuple(numba_type(kind) for kind, _ in members), [item for _, item in members]
            if hasattr(value, "_fields"):
                return BaseTuple.from_types(types, type(value)), type(value)(*values)
            return BaseTuple.from_types(types), tuple(values)
        if isinstance(value, np.void):
            from numba import typeof

            passed = np.array(value) if self.checked else value
            self.copies_back = [*self.copies_back, (np.asarray(value), passed)] if self.checked else self.copies_back
            return typeof(value), passed
        raise KernelArgumentError(refusal(value, position))

    def _device_array(self, value: DeviceNDArray) -> tuple[tuple, Any]:
        allocation = value.allocation
        if allocation.device != self.device:
            raise CudaDeviceError(
                f"an array of {value.dtype}{list(value.shape)} on device {allocation.device} was passed to a kernel on "
                f"device {self.device}; copy it there (through copy_to_host), or launch within "
                f"`with cuda.gpus[{allocation.device}]:`"
            )
        kind = value.kind
        if kind is None:
            kind = value.kind = array_kind(value.host)
        if self.checked:
            return kind, value
        allocation.initialised = True  # the kernel may write it all; only the checked executor knows
        return kind, value.host

    def _host_array(self, host: np.ndarray, position: int, hint: InOut) -> tuple[tuple, Any]:
        if isinstance(host, MappedNDArray):
            return array_kind(host), host.view(np.ndarray)
        if hint is NO_HINT:
            warn_of_copy(position)
        check_transferable(host)
        back = host.flags.writeable and hint.copies_out
        in_place = back and not any(np.may_share_memory(host, other) for other, _ in self.copies_back)
        passed = np.asarray(host) if in_place else np.array(host, order="K")
        kind = array_kind(passed)
        if self.checked:  # what is written to it in vain, or read before it is written, is reported
            passed.flags.writeable = back
            if not hint.copies_in:
                memory = passed.reshape(-1, order="A").view(np.uint8)
                passed = DeviceNDArray.over(passed, Allocation(memory, self.device, initialised=False))
        if back:
            self.copies_back = [*self.copies_back, (host, passed)]
        return kind, passed

    def write_back(self) -> None:
        """After the launch, copy what was copied in back to its array, in the order of the arguments."""
        for host, passed in self.copies_back:
            if passed is not host:
                np.copyto(host, passed if isinstance(passed, np.ndarray) else passed.copy_to_host())


def refusal(value: Any, position: int) -> str:
    """Why an argument cannot be passed to a kernel, and what can."""
    if isinstance(value, int):
        return f"argument {position + 1} is {value}, which does not fit into 64 bits"
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    remedy = "pass numbers, NumPy or device arrays, records, or tuples of them"
    if isinstance(value, list):
        remedy = "use a tuple, or a NumPy array"
    elif hasattr(value, "__array__"):
        remedy = "pass numpy.asarray(...) of it, or a device array"
    return f"argument {position + 1} is of type {name}, which kernels do not take; {remedy}"


def warn_of_copy(position: int) -> None:
    """Warn of an implicit copy, as numba.cuda does, at the user's line; not if NUMBA_CUDA_WARN_ON_IMPLICIT_COPY=0."""
    if os.environ.get("NUMBA_CUDA_WARN_ON_IMPLICIT_COPY", "1") != "0":
        warnings.warn(
            f"argument {position + 1} is a NumPy array: on a GPU it is copied there and back at every launch; "
            "cuda.to_device() copies it once",
            ImplicitCopyWarning,
            stacklevel=6,
        )


# Explicit signatures, as in `@cuda.jit("void(float32[:], int32)")`, and which of them a launch uses


def parse(signatures: Any, device: bool) -> list[tuple]:
    """The argument types of each signature that `cuda.jit` was given.

    Raises:
        KernelReturnError: if the signature of a kernel returns something.
    """
    from numba.core import sigutils

    lists = []
    for sig in signatures if isinstance(signatures, list) else [signatures]:
        arguments, result = sigutils.normalize_signature(sig)
        if str(result) not in ("None", "none") and not device:
            raise KernelReturnError(f"@cuda.jit({sig!r}): a kernel returns nothing; write 'void(...)'")
        lists.append(tuple(arguments))
    return lists


def choose(signatures: Sequence[tuple], types: tuple, name: str) -> tuple:
    """The signature to which the arguments convert best: with the fewest unsafe, then safe, then promoting steps.

    Raises:
        KernelArgumentError: if they convert to none.
    """
    from numba.core.registry import cpu_target
    from numba.core.types import none

    cases = [none(*accepted) for accepted in signatures]
    resolved = cpu_target.typing_context.resolve_overload(name, cases, types, {})
    if resolved is None:
        accepted = "; ".join(f"({', '.join(map(str, s))})" for s in signatures)
        raise KernelArgumentError(
            f"{name}: no matching signature for arguments ({', '.join(map(str, types))}); it accepts {accepted}"
        )
    return resolved.args


def casts_between(argument_types: tuple, types: tuple) -> list[Callable | None] | None:
    """For each argument what makes it one of the signature's type, or None; None if nothing is to be converted.

    Numbers are converted, and must fit; the memory of arrays is used as it is.
    """
    from numba.core.types import Boolean, Number

    casts = [
        cast_to(parameter) if parameter != argument and isinstance(parameter, Number | Boolean) else None
        for argument, parameter in zip(argument_types, types, strict=True)
    ]
    return casts if any(casts) else None


def cast_to(numba_type: Any) -> Callable:
    """The conversion of a number to a type; floats are not converted to integers."""
    from numba.np.numpy_support import as_dtype

    dtype = as_dtype(numba_type)
    return (lambda value: dtype.type(operator.index(value))) if dtype.kind in "iu" else dtype.type


def cast(values: Sequence[Any], casts: Sequence[Callable | None]) -> list[Any]:
    """The converted values."""
    return [convert(value) if convert else value for value, convert in zip(values, casts, strict=True)]
