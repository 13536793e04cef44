"""A launch's arguments: which kind each is, and what the compiled kernel receives for it.

A `Kind` stands for a numba type. It is found without asking numba, and kinds are compared by identity, so that a launch
looks up its compiled kernel in about a microsecond. numba itself is loaded when a kind's type is first needed.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from miniflow.hostcuda.errors import KernelArgumentError
from miniflow.hostcuda.mapped import is_device_memory

if TYPE_CHECKING:
    from miniflow.hostcuda.transfers import HostArrays

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1


class Kind:
    """What the compiler needs to know of an argument; one object for each.

    Attributes:
        description: ("array", dtype, ndim, layout), ("scalar", dtype), ("record", dtype), ("none",),
            ("tuple", class, kinds) or ("enum", class).
    """

    __slots__ = ("description", "_type")

    def __init__(self, description: tuple):
        self.description = description
        self._type: Any = None

    @property
    def type(self) -> Any:
        """The numba type."""
        if self._type is None:
            self._type = _numba_type(self.description)
        return self._type

    def __repr__(self) -> str:
        return f"Kind({self.type})"


_kinds: dict[tuple, Kind] = {}


def kind_of(*description: Any) -> Kind:
    """The one Kind of that description."""
    found = _kinds.get(description)
    if found is None:
        found = _kinds.setdefault(description, Kind(description))
    return found


def array_kind(host: np.ndarray) -> Kind:
    """The kind of an array: 'C' if it is contiguous, else 'F', else 'A', where strides are read at run time.

    Whether the array is read-only makes no variant, as a launch copies it then.
    """
    flags = host.flags
    layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    return kind_of("array", host.dtype, host.ndim, layout)


def _numba_type(description: tuple) -> Any:
    from numba import types

    what, *rest = description
    if what == "array":
        dtype, ndim, layout = rest
        return types.Array(_from_dtype(dtype, "array"), ndim, layout)
    if what in ("scalar", "record"):
        return _from_dtype(rest[0], what)
    if what == "none":
        return types.none
    if what == "enum":
        from numba import typeof

        return typeof(next(iter(rest[0])))
    cls, kinds = rest
    members = tuple(kind.type for kind in kinds)
    if hasattr(cls, "_fields"):
        return types.BaseTuple.from_types(members, cls)
    return types.BaseTuple.from_types(members)


def _from_dtype(dtype: np.dtype, what: str) -> Any:
    from numba.core.errors import NumbaError
    from numba.np.numpy_support import from_dtype

    try:
        return from_dtype(dtype)
    except NumbaError:
        remedy = "; pass array.view(numpy.uint16)" if dtype.itemsize == 2 else ""
        raise KernelArgumentError(f"kernels cannot use {what}s of dtype {dtype}{remedy}") from None


def _scalar_kinds() -> dict[type, Kind]:
    kinds = {bool: kind_of("scalar", np.dtype(np.bool_)), float: kind_of("scalar", np.dtype(np.float64))}
    kinds[complex] = kind_of("scalar", np.dtype(np.complex128))
    kinds[type(None)] = kind_of("none")
    for scalar in np.sctypeDict.values():
        if issubclass(scalar, np.number | np.bool_) and scalar not in (np.longdouble, np.clongdouble):
            kinds[scalar] = kind_of("scalar", np.dtype(scalar))
    return kinds


SCALARS = _scalar_kinds()
INT64, UINT64 = kind_of("scalar", np.dtype(np.int64)), kind_of("scalar", np.dtype(np.uint64))


class Transfer:
    """`cuda.In`, `cuda.Out`, `cuda.InOut`: in which directions a NumPy argument is copied."""

    copies_in = copies_out = True

    def __init__(self, value: Any):
        self.value = value


class In(Transfer):
    """A NumPy argument that is copied to the device and not back."""

    copies_out = False


class Out(Transfer):
    """A NumPy argument that is not copied to the device, only back."""

    copies_in = False


class InOut(Transfer):
    """A NumPy argument that is copied both ways, as one without a hint is."""


def convert_other(value: Any, position: int, hosts: HostArrays) -> tuple[Kind, Any]:
    """Kind and value of an argument that is not a plain number: the slower cases of a launch.

    Raises:
        KernelArgumentError: if kernels do not take such a value.
    """
    if is_device_memory(value):
        return hosts.on_device(value)
    if isinstance(value, np.ndarray):
        return hosts.host_array(value, position)
    if isinstance(value, Transfer):
        return hosts.hinted(value, position)
    if isinstance(value, np.void) and value.dtype.names is not None:
        return hosts.record(value)
    if isinstance(value, tuple):
        return convert_tuple(value, position, hosts)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return kind_of("scalar", value.dtype), value
    if isinstance(value, Enum):
        return kind_of("enum", type(value)), value
    if isinstance(value, int):
        return convert_int(value, position)
    if hasattr(value, "__hostcuda_array__"):
        return hosts.on_device(value.__hostcuda_array__())
    raise KernelArgumentError(refusal(value, position))


def convert_tuple(value: tuple, position: int, hosts: HostArrays) -> tuple[Kind, Any]:
    """A tuple or namedtuple of arguments."""
    converted = [convert_any(item, position, hosts) for item in value]
    kinds = tuple(kind for kind, _ in converted)
    values = [item for _, item in converted]
    if hasattr(value, "_fields"):
        return kind_of("tuple", type(value), kinds), type(value)(*values)
    return kind_of("tuple", tuple, kinds), tuple(values)


def convert_any(value: Any, position: int, hosts: HostArrays) -> tuple[Kind, Any]:
    """Kind and value of any argument."""
    kind = SCALARS.get(type(value))
    return (kind, value) if kind is not None else convert_other(value, position, hosts)


def convert_int(value: int, position: int) -> tuple[Kind, Any]:
    """A Python int is an int64, or a uint64 if it is too large for that."""
    if INT64_MIN <= value <= INT64_MAX:
        return INT64, int(value)
    if 0 <= value <= UINT64_MAX:
        return UINT64, value
    raise KernelArgumentError(f"argument {position + 1} is {value}, which does not fit into 64 bits")


def refusal(value: Any, position: int) -> str:
    """Why an argument cannot be passed to a kernel, and what can."""
    name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    remedy = "pass numbers, NumPy or device arrays, records, or tuples of them"
    if isinstance(value, list):
        remedy = "use a tuple, or a NumPy array"
    elif hasattr(value, "__cuda_array_interface__"):
        remedy = "it lies on a real GPU, out of reach of the host executor: copy it to the host"
    elif hasattr(value, "__array__"):
        remedy = "pass numpy.asarray(...) of it, or a device array"
    return f"argument {position + 1} is of type {name}, which kernels do not take; {remedy}"
