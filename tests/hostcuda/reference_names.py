"""What the names in a kernel mean in the reference executor: `cuda.*`, `np.*`, `math.*` and the builtins."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import reference_numbers as numbers
from numba.np.numpy_support import as_dtype
from reference_numbers import UndefinedBehaviour, cast, typed


class Waiting:
    """A function that threads call together: `call` yields it, with the site and the arguments, to the scheduler."""

    def __init__(self, scope: str, operation: str):
        self.scope, self.operation = scope, operation


class AtSite:
    """A function that is told where it is called."""

    def __init__(self, function: Any):
        self.function = function


class Caster:
    """A type of numbers: called, it converts; as dtype, it is one."""

    def __init__(self, dtype: Any):
        self.dtype = np.dtype(dtype)

    def __call__(self, value: Any) -> Any:
        return cast(value, self.dtype)


def dtype_of(kind: Any) -> np.dtype:
    """The dtype that `shared.array` and `local.array` were given."""
    if isinstance(kind, Caster):
        return kind.dtype
    return np.dtype(kind) if isinstance(kind, np.dtype | type | str) else as_dtype(kind)


class Numpy:
    """`np` in a kernel: types, constants and functions of numbers."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if isinstance(found, type) and issubclass(found, np.generic):
            return Caster(found)
        return numbers.function_of_floats(found) if callable(found) else found


class Math:
    """`math` in a kernel; floor, ceil and trunc give floats there."""

    OTHER_NAMES = {"pow": "power", "fabs": "abs", "asin": "arcsin", "acos": "arccos", "atan": "arctan"}

    def __getattr__(self, name: str) -> Any:
        if isinstance(getattr(math, name), float):
            return getattr(math, name)
        if name in ("erf", "erfc", "gamma", "lgamma"):
            return numbers.function_of_floats(lambda x: x.dtype.type(getattr(math, name)(float(x))))
        if name == "remainder":
            return numbers.function_of_floats(ieee_remainder)
        other = {"atan2": "arctan2", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}
        return numbers.function_of_floats(getattr(np, {**self.OTHER_NAMES, **other}.get(name, name)))


def ieee_remainder(x: Any, y: Any) -> Any:
    """x minus the nearest multiple of y; NaN where there is none."""
    undefined = y == 0 or not math.isfinite(x) or math.isnan(y)
    return x.dtype.type(math.nan if undefined else math.remainder(x, y))


def typed_range(*bounds: Any) -> Any:
    kind = np.uint64 if all(isinstance(bound, np.unsignedinteger) for bound in bounds) else np.int64
    return (kind(i) for i in range(*map(int, bounds)))


BUILTINS = {
    range: typed_range,
    int: numbers.to_int,
    float: numbers.to_float,
    bool: lambda value: np.bool_(value),
    abs: numbers.absolute,
    round: numbers.rounded,
    min: lambda *values: numbers.extreme(min, values[0] if len(values) == 1 else values),
    max: lambda *values: numbers.extreme(max, values[0] if len(values) == 1 else values),
    complex: lambda *parts: np.complex128(complex(*map(float, parts))),
    divmod: lambda a, b: (numbers.binary("FloorDiv", a, b), numbers.binary("Mod", a, b)),
    pow: lambda a, b: numbers.binary("Pow", a, b),
    slice: slice,
}


def load(container: Any, index: Any) -> Any:
    """`container[index]`."""
    if isinstance(index, bool | np.bool_):
        raise TypeError("a condition is no index")
    return container[index] if isinstance(container, np.ndarray | np.void) else container[typed_index(index)]


def typed_index(index: Any) -> Any:
    return int(index) if isinstance(index, np.integer) else index


def store(container: Any, index: Any, value: Any) -> None:
    """`container[index] = value`, converted as numba does."""
    if isinstance(container, np.void):
        container[index] = cast(value, container.dtype.fields[index][0])
    elif isinstance(value, np.ndarray | np.void | tuple):
        container[index] = value
    else:
        container[index] = cast(value, container.dtype)


def attribute(owner: Any, name: str) -> Any:
    return owner[name] if isinstance(owner, np.void) else getattr(typed(owner), name)


def set_attribute(owner: Any, name: str, value: Any) -> None:
    if not isinstance(owner, np.void):
        raise TypeError(f"{name} of {type(owner).__name__} cannot be set")
    store(owner, name, value)


def atomic(change: Any) -> Any:
    """An atomic of `change(old, operand)` -> new; the location's old value is returned."""

    def apply(array: Any, index: Any, *operands: Any) -> Any:
        old = load(array, index)
        new = change(old, *(cast(operand, old.dtype) for operand in operands))
        store(array, index, new)
        return old

    return apply


def plain(operation: str) -> Any:
    return lambda old, new: numbers.binary(operation, old, new)


def cas(array: Any, index: Any, expected: Any, new: Any) -> Any:
    old = load(array, index)
    if old == cast(expected, old.dtype):
        store(array, index, new)
    return old


ATOMICS = SimpleNamespace(
    add=atomic(plain("Add")),
    sub=atomic(plain("Sub")),
    and_=atomic(plain("BitAnd")),
    or_=atomic(plain("BitOr")),
    xor=atomic(plain("BitXor")),
    max=atomic(lambda old, new: new if new > old else old),
    min=atomic(lambda old, new: new if new < old else old),
    nanmax=atomic(lambda old, new: new if new > old or np.isnan(old) else old),
    nanmin=atomic(lambda old, new: new if new < old or np.isnan(old) else old),
    inc=atomic(lambda old, limit: old + 1 if old < limit else old * 0),
    dec=atomic(lambda old, limit: limit if old == 0 or old > limit else old - 1),
    exch=atomic(lambda old, new: new),
    cas=cas,
    compare_and_swap=lambda array, expected, new: cas(array, 0, expected, new),
)


def popc(value: Any) -> Any:
    pattern, _ = numbers.bits(value)
    return typed(value).dtype.type(pattern.bit_count())


def clz(value: Any) -> Any:
    pattern, width = numbers.bits(value)
    return typed(value).dtype.type(width - pattern.bit_length())


def ffs(value: Any) -> Any:
    pattern, _ = numbers.bits(value)
    return np.int32((pattern & -pattern).bit_length())


def brev(value: Any) -> Any:
    pattern, width = numbers.bits(value)
    return cast(np.uint64(int(f"{pattern:0{width}b}"[::-1], 2)), typed(value).dtype)


def selp(condition: Any, a: Any, b: Any) -> Any:
    return typed(a) if condition else typed(b)


def half(operation: str) -> Any:
    return lambda *operands: numbers.binary(operation, *(np.float16(operand) for operand in operands))


FP16 = SimpleNamespace(
    hadd=half("Add"),
    hsub=half("Sub"),
    hmul=half("Mult"),
    hdiv=half("Div"),
    hneg=lambda a: -np.float16(a),
    habs=lambda a: abs(np.float16(a)),
    hfma=lambda a, b, c: np.float16(float(a) * float(b) + float(c)),
    hmax=lambda a, b: max(np.float16(a), np.float16(b)),
    hmin=lambda a, b: min(np.float16(a), np.float16(b)),
    hgt=lambda a, b: np.float16(a) > np.float16(b),
    hlt=lambda a, b: np.float16(a) < np.float16(b),
    heq=lambda a, b: np.float16(a) == np.float16(b),
)


def shuffle_source(operation: str, lane: int, argument: int) -> int:
    """The lane that a lane reads; its own if that would lie outside of the warp."""
    if operation == "shfl_sync":
        return argument % 32
    source = {"shfl_up_sync": lane - argument, "shfl_down_sync": lane + argument, "shfl_xor_sync": lane ^ argument}
    return source[operation] if 0 <= source[operation] < 32 else lane


def vote(operation: str, predicates: dict[int, Any]) -> Any:
    """lane -> predicate of those that vote; the answer for all of them."""
    votes = [bool(predicate) for predicate in predicates.values()]
    if operation == "all_sync":
        return np.bool_(all(votes))
    if operation == "any_sync":
        return np.bool_(any(votes))
    if operation == "eq_sync":
        return np.bool_(len(set(votes)) == 1)
    if operation == "ballot_sync":
        return mask_of(lane for lane, predicate in predicates.items() if predicate)
    raise UndefinedBehaviour(f"{operation} is unknown")


def mask_of(lanes: Any) -> np.int32:
    return cast(np.int64(sum(1 << lane for lane in lanes)), np.int32)
