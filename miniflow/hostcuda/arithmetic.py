"""Scalars as numba types them, for the checked executor, which is Python.

    int64                             a Python int, wrapped to 64 bits after each operation
    other integers                    NumPy's scalar of that dtype; arithmetic gives int64 or uint64, as in numba
    float32, float64, complex         NumPy's scalars, whose arithmetic neither raises nor differs from a GPU's

Signed and unsigned together give int64; an int32 or int64 makes a float32 a float64. Where numba's typing looks ahead
(a variable that is a float32 here and a float64 there is a float64 in both places) values differ in the last bits.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import float32, float64, uint64

INT64_MIN, INT64_MAX, UINT64_MASK = -(2**63), 2**63 - 1, 2**64 - 1


def wrapped(value: int, bits: int = 64) -> int:
    """The signed integer of so many bits with the low bits of `value`."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def is_integer(value: Any) -> bool:
    """Whether arithmetic treats the value as an integer: bools count."""
    return isinstance(value, int | np.integer | np.bool_)


def _integer_result(value: int, *operands: Any) -> Any:
    """uint64 if all operands are unsigned, else int64."""
    if all(isinstance(operand, np.unsignedinteger) for operand in operands):
        return uint64(value & UINT64_MASK)
    return wrapped(value)


def _arithmetic(operate: Callable) -> Callable:
    """+, -, *, // and %."""

    def apply(a: Any, b: Any) -> Any:
        try:
            result = operate(a, b)
        except (OverflowError, TypeError):  # NumPy refuses a Python int that the other cannot hold, and bool - bool
            if not (is_integer(a) and is_integer(b)):
                raise
            return _integer_result(operate(int(a), int(b)), a, b)
        kind = type(result)
        if kind is float32:
            if type(a) is int or type(b) is int:
                return operate(float64(a), float64(b))
            return result
        if kind is int:
            return result if INT64_MIN <= result <= INT64_MAX else wrapped(result)
        if kind is float64 and not (is_integer(a) and is_integer(b)):
            return result
        if is_integer(a) and is_integer(b):
            return _integer_result(operate(int(a), int(b)), a, b)
        return result

    return apply


def _bitwise(operate: Callable) -> Callable:
    """&, | and ^."""

    def apply(a: Any, b: Any) -> Any:
        if type(a) is int and type(b) is int:
            return operate(a, b)
        if isinstance(a, bool | np.bool_) and isinstance(b, bool | np.bool_):
            return operate(bool(a), bool(b))
        return _integer_result(operate(int(a), int(b)), a, b)

    return apply


def _shift(operate: Callable) -> Callable:
    """<< and >>; the result is signed as the left operand is."""

    def apply(a: Any, b: Any) -> Any:
        return _integer_result(operate(int(a), int(b) & 63), a)

    return apply


def divide(a: Any, b: Any) -> Any:
    """a / b: float32 only for two float32; a division by zero gives infinity or NaN."""
    if type(a) is float32 and type(b) is float32:
        return a / b
    if isinstance(a, complex | np.complexfloating) or isinstance(b, complex | np.complexfloating):
        return a / (b if isinstance(b, np.generic) else float64(b))
    return float64(a) / float64(b)


def power(a: Any, b: Any) -> Any:
    """a ** b; integers wrap."""
    if is_integer(a) and is_integer(b):
        if b >= 0:
            return _integer_result(pow(int(a), int(b), 1 << 64), a, b)
        return float64(a) ** float64(b)
    return a**b


def negative(a: Any) -> Any:
    """-a; unsigned integers stay unsigned."""
    if is_integer(a):
        return _integer_result(-int(a), a)
    return -a


def inverted(a: Any) -> Any:
    """~a."""
    return _integer_result(~int(a), a)


def positive(a: Any) -> Any:
    """+a."""
    return _integer_result(int(a), a) if is_integer(a) else a


BINARY = {
    "Add": _arithmetic(operator.add),
    "Sub": _arithmetic(operator.sub),
    "Mult": _arithmetic(operator.mul),
    "FloorDiv": _arithmetic(operator.floordiv),
    "Mod": _arithmetic(operator.mod),
    "Div": divide,
    "Pow": power,
    "LShift": _shift(operator.lshift),
    "RShift": _shift(operator.rshift),
    "BitAnd": _bitwise(operator.and_),
    "BitOr": _bitwise(operator.or_),
    "BitXor": _bitwise(operator.xor),
    "MatMult": operator.matmul,
}
"""Name of an ast operator -> its function."""
UNARY = {"USub": negative, "UAdd": positive, "Invert": inverted, "Not": operator.not_}


def truncated(value: Any, dtype: np.dtype) -> int:
    """A float towards zero; NaN gives 0 and what is too large the dtype's limit, as a GPU's conversion does."""
    if is_integer(value):
        return int(value)
    value, limits = float(value), np.iinfo(dtype)
    if math.isnan(value):
        return 0
    return limits.max if value >= limits.max else limits.min if value <= limits.min else int(value)


def cast(dtype: Any) -> Callable:
    """What `np.float32(...)` and its like do inside a kernel."""
    dtype = np.dtype(dtype)
    scalar, bits = dtype.type, 8 * dtype.itemsize
    if dtype.kind == "i":
        if bits == 64:
            return lambda value=0: wrapped(truncated(value, dtype))
        return lambda value=0: scalar(wrapped(truncated(value, dtype), bits))
    if dtype.kind == "u":
        return lambda value=0: scalar(truncated(value, dtype) & ((1 << bits) - 1))
    if dtype.kind == "b":
        return lambda value=False: bool(value)
    return lambda *values: scalar(complex(*values)) if len(values) == 2 else scalar(*values)


def loaded(value: Any) -> Any:
    """A scalar that came from outside, as the kernel's arithmetic wants it."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int):
        return value if value <= INT64_MAX else uint64(value)
    if isinstance(value, np.int64):
        return int(value)
    if isinstance(value, float) and not isinstance(value, np.floating):
        return float64(value)
    if isinstance(value, complex) and not isinstance(value, np.complexfloating):
        return np.complex128(value)
    return value


def _floats(function: Callable) -> Callable:
    """A NumPy function of floats; integers become float64 first."""

    def apply(*args: Any) -> Any:
        return function(*(float64(a) if is_integer(a) else a for a in args))

    return apply


def _careful(function: Callable) -> Callable:
    """A function of `math` without NumPy's counterpart: where Python raises, a GPU gives NaN or infinity."""

    def apply(*args: Any) -> Any:
        try:
            result = function(*args)
        except ValueError:
            result = math.nan
        except OverflowError:
            result = math.inf
        single = all(isinstance(a, float32) for a in args)
        return float32(result) if single else loaded(result)

    return apply


def _whole(function: Callable) -> Callable:
    """floor, ceil and trunc: math gives an int, of infinity and NaN an error."""
    return lambda value: truncated(function(value), np.dtype(np.int64)) if not is_integer(value) else int(value)


def _math() -> dict[Any, Callable]:
    numpy_names = {
        name: name
        for name in (
            "exp expm1 exp2 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh fabs hypot copysign fmod degrees"
            " radians"
        ).split()
    }
    numpy_names |= {f"a{name}": f"arc{name}" for name in "sin cos tan sinh cosh tanh".split()}
    numpy_names |= {"atan2": "arctan2", "pow": "power", "ldexp": "ldexp"}
    table = {getattr(math, n): _floats(getattr(np, m)) for n, m in numpy_names.items() if hasattr(math, n)}
    table[math.ldexp] = lambda value, exponent: np.ldexp(value, int(exponent))
    table |= {getattr(math, name): _careful(getattr(math, name)) for name in ("erf", "erfc", "gamma", "lgamma")}
    table |= {math.floor: _whole(np.floor), math.ceil: _whole(np.ceil), math.trunc: _whole(np.trunc)}
    return table


MATH = _math()
"""A function of `math` -> the one that stands in for it."""
