"""Arithmetic with the types of numba.cuda, on NumPy scalars.

Every value of the reference executor is a NumPy scalar whose dtype is the type that numba gives the expression;
Python's int, float and complex are int64, float64 and complex128. The rules were read off numba-cuda's own typing:

    int op int            64 bits; unsigned only if both are
    int / int             float64
    float op int          an int of at most 16 bits (uint16 excepted) keeps the float's width; else float64
    // % **               at least float32
    << >>                 64 bits, with the sign of the left operand
    - ~                   64 bits
    min max               the type both convert to without loss, as np.promote_types
"""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np

OPERATIONS = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mult": np.multiply,
    "Div": np.true_divide,
    "FloorDiv": np.floor_divide,
    "Mod": np.remainder,
    "Pow": np.power,
    "LShift": np.left_shift,
    "RShift": np.right_shift,
    "BitAnd": np.bitwise_and,
    "BitOr": np.bitwise_or,
    "BitXor": np.bitwise_xor,
}
COMPARISONS = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
}
NARROW = [np.dtype(t) for t in (np.bool_, np.int8, np.int16, np.uint8)]


class UndefinedBehaviour(Exception):
    """The kernel does what CUDA leaves undefined, so that nothing can be expected of it."""


def typed(value: Any) -> Any:
    """A number as NumPy scalar; anything else unchanged."""
    if isinstance(value, np.generic):
        return value
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int64(value) if -(2**63) <= value < 2**63 else np.uint64(value)
    if isinstance(value, float):
        return np.float64(value)
    return np.complex128(value) if isinstance(value, complex) else value


def is_number(value: Any) -> bool:
    return isinstance(value, np.number | np.bool_)


def binary(operation: str, left: Any, right: Any) -> Any:
    """`left operation right`."""
    a, b = typed(left), typed(right)
    if isinstance(a, tuple) and isinstance(b, tuple) and operation == "Add":
        return a + b
    if not (is_number(a) and is_number(b)):
        raise TypeError(f"{operation} of {type(left).__name__} and {type(right).__name__} is not what a kernel can do")
    dtype = result_dtype(operation, a.dtype, b.dtype)
    a, b = a.astype(dtype), b.astype(dtype)
    refuse_undefined(operation, b)
    with np.errstate(all="ignore"):
        return OPERATIONS[operation](a, b)


def refuse_undefined(operation: str, right: np.generic) -> None:
    if operation in ("FloorDiv", "Mod") and right.dtype.kind in "iu" and right == 0:
        raise UndefinedBehaviour("integer division by zero")
    if operation in ("LShift", "RShift") and not 0 <= int(right) < 64:
        raise UndefinedBehaviour("a shift by more than 63 bits")
    if operation == "Pow" and right.dtype.kind == "i" and right < 0:
        raise UndefinedBehaviour("an integer to a negative power")


def result_dtype(operation: str, a: np.dtype, b: np.dtype) -> np.dtype:
    """The type in which numba.cuda computes."""
    kinds = {a.kind, b.kind}
    if kinds <= set("biu"):
        return integer_dtype(operation, a, b)
    if operation in ("LShift", "RShift", "BitAnd", "BitOr", "BitXor"):
        raise TypeError(f"{operation} of {a} and {b}")
    if operation == "Pow" and kinds == {"f", "i"} or kinds == {"f", "u"} and operation == "Pow":
        return np.dtype(np.float64 if np.dtype(np.float64) in (a, b) else np.float32)
    half = "e" in (a.char, b.char) and operation not in ("FloorDiv", "Mod", "Pow")
    width = max(component_width(a, half), component_width(b, half))
    return np.dtype(f"c{2 * max(width, 4)}" if "c" in kinds else f"f{width}")


def integer_dtype(operation: str, a: np.dtype, b: np.dtype) -> np.dtype:
    if operation == "Div":
        return np.dtype(np.float64)
    if operation in ("BitAnd", "BitOr", "BitXor") and a.kind == b.kind == "b":
        return np.dtype(np.bool_)
    unsigned = a.kind == "u" if operation in ("LShift", "RShift") else a.kind == b.kind == "u"
    return np.dtype(np.uint64 if unsigned else np.int64)


def component_width(dtype: np.dtype, half: bool) -> int:
    """Bytes of the float type that an operand is converted to."""
    if dtype.kind == "c":
        return dtype.itemsize // 2
    if dtype.kind == "f":
        return dtype.itemsize if half else max(dtype.itemsize, 4)
    if half and dtype in (np.dtype(np.bool_), np.dtype(np.int8)):
        return 2
    return 4 if dtype in NARROW else 8


def unary(operation: str, operand: Any) -> Any:
    """`-x`, `~x`, `+x`."""
    value = typed(operand)
    if operation == "UAdd":
        return value
    if operation == "Invert" and value.dtype.kind == "b":
        return np.bool_(not value)
    if value.dtype.kind in "biu":
        value = value.astype(np.uint64 if value.dtype.kind == "u" else np.int64)
    with np.errstate(all="ignore"):
        return np.invert(value) if operation == "Invert" else np.negative(value)


def compare(operation: str, left: Any, right: Any) -> bool:
    """`left operation right`: integers exactly whatever their signs, else as floats."""
    if operation in ("Is", "IsNot"):
        return (left is right) == (operation == "Is")
    if operation in ("In", "NotIn"):
        return any(compare("Eq", left, item) for item in right) == (operation == "In")
    a, b = typed(left), typed(right)
    if not (is_number(a) and is_number(b)):
        return bool(COMPARISONS[operation](left, right))
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":
        return bool(COMPARISONS[operation](int(a), int(b)))
    dtype = result_dtype("Add", a.dtype, b.dtype)
    return bool(COMPARISONS[operation](a.astype(dtype), b.astype(dtype)))


def cast(value: Any, dtype: Any) -> np.generic:
    """Conversion as a GPU does it: integers wrap, floats too large for an integer saturate."""
    value, dtype = typed(value), np.dtype(dtype)
    if value.dtype.kind == "f" and dtype.kind in "iu":
        return to_integer(value, dtype)
    if value.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"a complex number does not convert to {dtype}")
    if dtype.kind == "b":
        return np.bool_(value != 0)
    with np.errstate(all="ignore"):
        return value.astype(dtype)


def to_integer(value: np.floating, dtype: np.dtype) -> np.integer:
    """Truncated; float16 to the nearest. NaN becomes 0, or the highest bit alone where 64 bits come in."""
    limits = np.iinfo(dtype)
    narrow = dtype.itemsize < 4 and value.dtype != np.float16
    if np.isnan(value):
        if narrow:
            raise UndefinedBehaviour(f"NaN as {dtype}")
        wide = dtype.itemsize == 8 or value.dtype == np.float64
        return np.array(1 << (8 * dtype.itemsize - 1) if wide else 0, f"u{dtype.itemsize}").view(dtype)[()]
    value = np.rint(value) if value.dtype == np.float16 else value
    whole = int(np.clip(value.astype(np.float64), -(2.0**65), 2.0**65))
    if narrow and not limits.min <= whole <= limits.max:
        raise UndefinedBehaviour(f"{value} as {dtype}")
    return dtype.type(min(max(whole, limits.min), limits.max))


def extreme(choose: Any, values: tuple) -> np.generic:
    """`min` and `max` of two or more numbers; of two floats that which is not NaN."""
    values = tuple(typed(value) for value in values)
    dtype = values[0].dtype
    for value in values[1:]:
        dtype = np.promote_types(dtype, value.dtype)
    if [v.dtype.char in "fd" for v in values] == [True] * 2:
        return (np.fmin if choose is min else np.fmax)(*values)
    return choose(*(value.astype(dtype) for value in values))


def absolute(value: Any) -> np.generic:
    with np.errstate(all="ignore"):
        return np.abs(typed(value))


def to_int(value: Any) -> np.generic:
    """`int(x)`: integers keep their type."""
    value = typed(value)
    return cast(value, np.int64) if value.dtype.kind in "bf" else value


def to_float(value: Any) -> np.generic:
    value = typed(value)
    return value if value.dtype.kind == "f" else cast(value, np.float64)


def rounded(value: Any) -> np.int64:
    """`round(x)`: to the nearest, ties to even."""
    return cast(np.rint(typed(value).astype(np.float64)), np.int64)


def fused_multiply_add(a: Any, b: Any, c: Any) -> np.floating:
    """a b + c with one rounding; for finite numbers."""
    a, b, c = typed(a), typed(b), typed(c)
    dtype = np.promote_types(np.promote_types(a.dtype, b.dtype), c.dtype)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if dtype == np.float64:
        return np.float64(float(exact))
    nearest = np.float32(float(exact))  # rounded twice, so the neighbours are looked at too
    around = [nearest, np.nextafter(nearest, np.float32(-np.inf)), np.nextafter(nearest, np.float32(np.inf))]
    return min(around, key=lambda f: abs(Fraction(float(f)) - exact))


def function_of_floats(function: Any) -> Any:
    """A function of `math`: float32 of float32, float64 of any integer."""

    def apply(*arguments: Any) -> Any:
        values = [typed(argument) for argument in arguments]
        floats = [value if value.dtype.kind in "fc" else value.astype(np.float64) for value in values]
        with np.errstate(all="ignore"):
            return function(*floats)

    return apply


def bits(value: Any) -> tuple[int, int]:
    """The bit pattern of an integer as a number, and its width."""
    value = typed(value)
    width = 8 * value.dtype.itemsize
    return int(value) & (2**width - 1), width
