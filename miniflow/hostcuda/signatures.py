"""Explicit signatures, as in `@cuda.jit("void(float32[:], int32)")`, and which of them a launch uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miniflow.hostcuda.errors import KernelArgumentError, KernelReturnError


@dataclass
class Signature:
    """Argument types, and the result's (None if it was not given)."""

    types: tuple
    result: Any


class Casts:
    """Converts the numbers among a launch's arguments to the types of a signature.

    Args:
        casts: for each argument a conversion, or None.
    """

    def __init__(self, casts: list[Cast | None]):
        self.casts = casts

    @classmethod
    def between(cls, given: tuple, types: tuple, parameters: Sequence[str]) -> Casts | None:
        """From the types of the arguments to those of the signature; None if there is nothing to convert."""
        casts = [
            Cast(name, target) if target != own and is_number(target) else None
            for name, own, target in zip(parameters, given, types, strict=True)
        ]
        return cls(casts) if any(casts) else None

    def __call__(self, values: list[Any]) -> list[Any]:
        return [cast(value) if cast else value for value, cast in zip(values, self.casts, strict=True)]


@dataclass
class Variant:
    """What a launch runs: the compiled kernel, after conversions of its arguments if there are any."""

    compiled: Any
    casts: Casts | None


def is_signature(value: Any) -> bool:
    """Whether `cuda.jit` was given a signature, or a list of them, rather than a function."""
    if isinstance(value, str | tuple | list):
        return True
    return type(value).__module__.startswith("numba.") and hasattr(value, "args") or _is_numba_type(value)


def _is_numba_type(value: Any) -> bool:
    return any(cls.__module__ == "numba.core.types.abstract" and cls.__name__ == "Type" for cls in type(value).__mro__)


def parse(given: Any, device: bool) -> list[Signature]:
    """The signatures that `cuda.jit` was given.

    Raises:
        KernelReturnError: if a kernel is said to return something.
        KernelArgumentError: if it is not a signature.
    """
    from numba.core import sigutils, types

    found = []
    for one in given if isinstance(given, list) else [given]:
        try:
            arguments, result = sigutils.normalize_signature(one)
        except (TypeError, NameError, SyntaxError, AttributeError) as error:
            raise KernelArgumentError(f"@cuda.jit: {one!r} is not a signature ({error})") from None
        if result is not None and result != types.void and not device:
            raise KernelReturnError(f"@cuda.jit({one!r}): a kernel returns nothing; write 'void(...)'")
        found.append(Signature(tuple(arguments), result))
    return found


def choose(signatures: Sequence[Signature], types: tuple, name: str) -> tuple:
    """The signature whose types the arguments convert to best, as numba rates conversions.

    Raises:
        KernelArgumentError: if there is none.
    """
    rated = sorted(
        ((rating, index) for index, s in enumerate(signatures) if (rating := rate(types, s.types)) is not None),
    )
    if not rated:
        accepted = "; ".join(f"({', '.join(map(str, s.types))})" for s in signatures)
        raise KernelArgumentError(
            f"{name}: no matching signature for arguments ({', '.join(map(str, types))}); it accepts {accepted}"
        )
    return signatures[rated[0][1]].types


def rate(given: tuple, wanted: tuple) -> tuple[int, ...] | None:
    """How many unsafe, safe and promoting conversions a call needs; None if one is impossible."""
    from numba.core.registry import cpu_target
    from numba.core.typeconv import Conversion

    counts = {Conversion.unsafe: 0, Conversion.safe: 0, Conversion.promote: 0}
    for source, target in zip(given, wanted, strict=True):
        found = cpu_target.typing_context.can_convert(source, target)
        if found is None:
            return None
        if found in counts:
            counts[found] += 1
    return tuple(counts.values())


def is_number(numba_type: Any) -> bool:
    """Whether an argument of the type is converted; the memory of arrays is used as it is."""
    from numba.core import types

    return isinstance(numba_type, types.Number | types.Boolean)


class Cast:
    """Makes a number one of the signature's type: integers wrap around as in C; a float is not an integer."""

    def __init__(self, name: str, numba_type: Any):
        from numba.np.numpy_support import as_dtype

        self.name = name
        self.dtype = as_dtype(numba_type)
        self.unsigned = np.dtype(f"u{self.dtype.itemsize}") if self.dtype.kind in "iu" else None

    def __call__(self, value: Any) -> Any:
        if self.unsigned is None:
            return self.dtype.type(value)
        if not hasattr(value, "__index__"):
            raise KernelArgumentError(f"{self.name}: expected an integer, as its type is {self.dtype}, got {value!r}")
        bits = value.__index__() % 2 ** (8 * self.dtype.itemsize)
        return np.array(bits, self.unsigned).view(self.dtype)[()]
