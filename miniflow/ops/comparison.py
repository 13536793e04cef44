"""Comparisons, logic and bits, with broadcasting. Their results have no gradients."""

from __future__ import annotations

import numpy as np

from miniflow.dispatch import Op, call
from miniflow.dtype import BY_NUMPY
from miniflow.errors import DTypeError
from miniflow.ops.promotion import Binary, Number, binary, broadcast_shape, dtype_of, shape_of
from miniflow.tensor import Tensor


class Predicate(Binary):
    """A comparison or a logical operation: the result is bool."""

    @classmethod
    def infer(cls, x, y):
        return broadcast_shape(cls.function_name, shape_of(x), shape_of(y)), np.dtype(np.bool_)


class Eq(Predicate):
    """x == y"""


class Ne(Predicate):
    """x != y"""


class Lt(Predicate):
    """x < y"""


class Le(Predicate):
    """x <= y"""


class Gt(Predicate):
    """x > y"""


class Ge(Predicate):
    """x >= y"""


class LogicalAnd(Predicate):
    """x and y, taken as truth values"""


class LogicalOr(Predicate):
    """x or y, taken as truth values"""


class LogicalXor(Predicate):
    """exactly one of x and y, taken as truth values"""


class Bitwise(Binary):
    """An operation on the bits of integers, or on bools."""

    @classmethod
    def infer(cls, x, y):
        kind = BY_NUMPY[dtype_of(x, y)]
        if kind.is_floating_point:
            raise DTypeError(f"{cls.function_name}: got {kind}; expected integers or bools: compare or cast first")
        return broadcast_shape(cls.function_name, shape_of(x), shape_of(y)), kind.numpy


class BitwiseAnd(Bitwise):
    """x & y"""


class BitwiseOr(Bitwise):
    """x | y"""


class BitwiseXor(Bitwise):
    """x ^ y"""


class Shift(Bitwise):
    """An integer with its bits moved."""

    kernel_checks = False  # NumPy shifts bools, as int8

    @classmethod
    def infer(cls, x, y):
        if np.dtype(np.bool_) == dtype_of(x, y):
            raise DTypeError(f"{cls.function_name}: got bools; expected integers: cast with .int()")
        return super().infer(x, y)


class BitwiseLeftShift(Shift):
    """x * 2^y"""


class BitwiseRightShift(Shift):
    """floor(x / 2^y)"""


class LogicalNot(Op):
    """not x, taken as truth value"""

    kernel_checks = True

    def infer(x):
        return x.shape, np.dtype(np.bool_)


class BitwiseNot(Op):
    """~x"""

    def infer(x):
        if BY_NUMPY[x.dtype].is_floating_point:
            raise DTypeError(f"bitwise_not: got {x.dtype}; expected integers or bools: compare or cast first")
        return x.shape, x.dtype


class FloatPredicate(Op):
    """A question about floating values; the result is bool."""

    kernel_checks = True

    def infer(x):
        return x.shape, np.dtype(np.bool_)


class Isnan(FloatPredicate):
    """Whether x is NaN."""


class Isinf(FloatPredicate):
    """Whether x is plus or minus infinity."""


class Isfinite(FloatPredicate):
    """Whether x is neither NaN nor infinite."""


def eq(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """x == y, elementwise; a bool tensor."""
    return binary(Eq, x, y)


def ne(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """x != y, elementwise; a bool tensor."""
    return binary(Ne, x, y)


def lt(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """x < y, elementwise; a bool tensor."""
    return binary(Lt, x, y)


def le(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """x <= y, elementwise; a bool tensor."""
    return binary(Le, x, y)


def gt(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """x > y, elementwise; a bool tensor."""
    return binary(Gt, x, y)


def ge(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """x >= y, elementwise; a bool tensor."""
    return binary(Ge, x, y)


def logical_and(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """Whether both are non-zero, elementwise."""
    return binary(LogicalAnd, x, y)


def logical_or(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """Whether either is non-zero, elementwise."""
    return binary(LogicalOr, x, y)


def logical_xor(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """Whether exactly one is non-zero, elementwise."""
    return binary(LogicalXor, x, y)


def bitwise_and(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """The bits set in both, for integers and bools."""
    return binary(BitwiseAnd, x, y)


def bitwise_or(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """The bits set in either, for integers and bools."""
    return binary(BitwiseOr, x, y)


def bitwise_xor(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """The bits set in exactly one, for integers and bools."""
    return binary(BitwiseXor, x, y)


def bitwise_left_shift(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """The bits of the integer `x` moved `y` places up: x * 2^y."""
    return binary(BitwiseLeftShift, x, y)


def bitwise_right_shift(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """The bits of the integer `x` moved `y` places down, keeping the sign: floor(x / 2^y)."""
    return binary(BitwiseRightShift, x, y)


def logical_not(x: Tensor) -> Tensor:
    """Whether x is zero, elementwise."""
    return call(LogicalNot, x)


def bitwise_not(x: Tensor) -> Tensor:
    """All bits flipped, for integers; `not x` for bools."""
    return call(BitwiseNot, x)


def isnan(x: Tensor) -> Tensor:
    """Whether each value is NaN."""
    return call(Isnan, x)


def isinf(x: Tensor) -> Tensor:
    """Whether each value is infinite."""
    return call(Isinf, x)


def isfinite(x: Tensor) -> Tensor:
    """Whether each value is neither NaN nor infinite."""
    return call(Isfinite, x)
