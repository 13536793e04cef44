"""Pointwise arithmetic, with broadcasting and PyTorch's type promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.dispatch import Op, call
from miniflow.dtype import get_default_dtype
from miniflow.errors import ArgumentError, DTypeError
from miniflow.operands import takes_tensors
from miniflow.ops.comparison import eq, ge, gt, le, logical_and, lt
from miniflow.ops.promotion import (
    Binary,
    Number,
    as_operand,
    as_tensor_or_number,
    binary,
    broadcast_shape,
    cast,
    dtype_of,
    promote,
    result_type,
    shape_of,
)
from miniflow.tensor import Tensor, constant_like


class Add(Binary):
    """x + y"""

    def backward(ctx, dy):
        return dy, dy


def refuse_bools(name: str, *operands: Any) -> None:
    """Raise DTypeError if the operands that are arrays hold bools, on which there is no such arithmetic."""
    if dtype_of(*operands) == np.bool_:
        raise DTypeError(f"{name}: got bools; expected numbers: cast first, e.g. x.int(), or use ~, &, |, ^")


class OfNumbers(Binary):
    """A binary op that bools do not have."""

    @classmethod
    def infer(cls, x, y):
        refuse_bools(cls.function_name, x, y)
        return super().infer(x, y)


class Sub(OfNumbers):
    """x - y"""

    def backward(ctx, dy):
        return dy, neg(dy) if ctx.needs[1] else None


class Mul(Binary):
    """x * y"""

    saves = ("x", "y")
    saved_if_needed = {"x": 1, "y": 0}

    def backward(ctx, dy):
        x, y = ctx.saved
        return mul(dy, y) if ctx.needs[0] else None, mul(dy, x) if ctx.needs[1] else None


class Div(Binary):
    """x / y"""

    saves = ("x", "y")
    saved_if_needed = {"x": 1}

    def backward(ctx, dy):
        x, y = ctx.saved
        dx = div(dy, y)
        return dx, neg(div(mul(dx, x), y)) if ctx.needs[1] else None


class Pow(OfNumbers):
    """x ** y"""

    saves = ("x", "y", "power")
    outputs = ("power",)
    checks_values = "kernel"  # integers are raised to no negative powers

    def backward(ctx, dy):
        x, y, power = ctx.saved
        dx = dexponent = None
        if ctx.needs[0]:
            dx = where(eq(y, 0), 0.0, mul(dy, mul(y, pow(x, sub(y, 1.0)))))
        if ctx.needs[1]:
            base = x if isinstance(x, Tensor) else constant_like(power, np.asarray(x, power._array.dtype))
            zero = logical_and(eq(base, 0), ge(y, 0))
            dexponent = where(zero, 0.0, mul(dy, mul(power, log(where(zero, 1.0, base)))))
        return dx, dexponent


class Maximum(Binary):
    """The larger of x and y; NaN wins. Where they are equal each gets half of the gradient."""

    saves = ("x", "y")

    def backward(ctx, dy):
        x, y = ctx.saved
        return _share(dy, x, y, gt)


class Minimum(Binary):
    """The smaller of x and y; NaN wins. Where they are equal each gets half of the gradient."""

    saves = ("x", "y")

    def backward(ctx, dy):
        x, y = ctx.saved
        return _share(dy, x, y, lt)


def _share(dy: Tensor, x: Tensor, y: Tensor, wins: Any) -> tuple[Tensor, Tensor]:
    shared = where(eq(x, y), mul(dy, 0.5), 0.0)
    return where(wins(x, y), dy, shared), where(wins(y, x), dy, shared)


class Remainder(OfNumbers):
    """x - floor(x / y) * y: the remainder has the sign of y."""

    saves = ("x", "y")

    def backward(ctx, dy):
        x, y = ctx.saved
        return dy, neg(mul(dy, floor_divide(x, y))) if ctx.needs[1] else None


class FloorDivide(OfNumbers):
    """floor(x / y); its gradient is zero."""

    def backward(ctx, dy):
        zero = mul(dy, 0.0)
        return zero, zero


class Unary(Op):
    """An op on one floating tensor."""

    kernel_checks = True

    def infer(x, **attrs):
        return x.shape, x.dtype


class Neg(Unary):
    """-x"""

    def infer(x):
        refuse_bools("neg", x)
        return x.shape, x.dtype

    def backward(ctx, dy):
        return neg(dy)


class Abs(Unary):
    """|x|; its gradient at 0 is 0."""

    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        return mul(dy, sign(x))


class Exp(Unary):
    """e^x"""

    saves = ("y",)

    def backward(ctx, dy):
        (y,) = ctx.saved
        return mul(dy, y)


class Log(Unary):
    """The natural logarithm."""

    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        return div(dy, x)


class Sqrt(Unary):
    """The square root."""

    saves = ("y",)

    def backward(ctx, dy):
        (y,) = ctx.saved
        return div(mul(dy, 0.5), y)


class Rsqrt(Unary):
    """1 / sqrt(x)"""

    saves = ("y",)

    def backward(ctx, dy):
        (y,) = ctx.saved
        return mul(mul(dy, -0.5), pow(y, 3))


class Sin(Unary):
    """sin x"""

    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        return mul(dy, cos(x))


class Cos(Unary):
    """cos x"""

    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        return neg(mul(dy, sin(x)))


class Tanh(Unary):
    """tanh x"""

    saves = ("y",)

    def backward(ctx, dy):
        (y,) = ctx.saved
        return mul(dy, sub(1.0, mul(y, y)))


class PowScalar(Unary):
    """x ** exponent for a Python number."""

    function_name = "pow"
    saves = ("x",)

    def infer(x, *, exponent):
        refuse_bools("pow", x)
        if isinstance(exponent, int) and exponent < 0 and x.dtype.kind in "iu":
            raise DTypeError(f"pow: integers to the negative power {exponent} are not integers; cast first: x.float()")
        return x.shape, x.dtype

    def backward(ctx, dy):
        (x,) = ctx.saved
        exponent = ctx.attrs["exponent"]
        return mul(dy, 0.0) if exponent == 0 else mul(dy, mul(pow(x, exponent - 1), exponent))


class Staircase(Unary):
    """A piecewise constant op: its gradient is zero."""

    def backward(ctx, dy):
        return mul(dy, 0.0)


class Sign(Staircase):
    """-1, 0 or 1"""

    def infer(x):
        refuse_bools("sign", x)
        return x.shape, x.dtype


class Floor(Staircase):
    """The largest integer not above x."""


class Ceil(Staircase):
    """The smallest integer not below x."""


class Trunc(Staircase):
    """x without its fraction."""


class Round(Staircase):
    """The nearest integer, halves to even."""


class Clamp(Unary):
    """x kept within [min, max]."""

    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        low, high = ctx.attrs["min"], ctx.attrs["max"]
        inside = ge(x, low) if high is None else le(x, high) if low is None else logical_and(ge(x, low), le(x, high))
        return where(inside, dy, 0.0)


class Where(Op):
    """x where the condition holds, else y."""

    saves = ("condition",)
    kernel_checks = True
    broadcasts = True

    def infer(condition, x, y):
        if condition.dtype != np.bool_:
            raise DTypeError(f"where: got a condition of {condition.dtype}; expected bool: compare first, e.g. x > 0")
        kind = next((v.dtype for v in (x, y) if hasattr(v, "dtype")), None) or get_default_dtype().numpy
        return broadcast_shape("where", condition.shape, shape_of(x), shape_of(y)), kind

    def backward(ctx, dy):
        (condition,) = ctx.saved
        dx = where(condition, dy, 0.0) if ctx.needs[1] else None
        return None, dx, where(condition, 0.0, dy) if ctx.needs[2] else None


def add(x: Tensor | Number, y: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """x + alpha * y, with broadcasting and type promotion.

    >>> import miniflow as flow
    >>> flow.add(flow.tensor([1, 2]), 0.5)
    tensor([1.5000, 2.5000], dtype=miniflow.float32)

    Raises:
        ShapeError: if the shapes cannot be broadcast.
    """
    return binary(Add, x, y if alpha == 1 else mul(y, alpha))


def sub(x: Tensor | Number, y: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """x - alpha * y, with broadcasting and type promotion."""
    return binary(Sub, x, y if alpha == 1 else mul(y, alpha))


def mul(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """x * y, with broadcasting and type promotion."""
    return binary(Mul, x, y)


def div(x: Tensor | Number, y: Tensor | Number, *, rounding_mode: str | None = None) -> Tensor:
    """x / y, with broadcasting. Integers are divided in the default floating dtype, unless a rounding mode is given.

    Args:
        rounding_mode: None, "floor" (towards minus infinity) or "trunc" (towards zero).
    """
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if rounding_mode not in (None, "trunc"):
        raise ArgumentError(f"div: got rounding_mode={rounding_mode!r}; expected None, 'floor' or 'trunc'")
    if rounding_mode == "trunc":
        return cast(trunc(div(x, y)), result_type(as_tensor_or_number(x, "div"), as_tensor_or_number(y, "div")))
    x, y = promote(x, y, "div")
    if result_type(x, y).category < 2:
        x, y = as_operand(x, get_default_dtype()), as_operand(y, get_default_dtype())
    return binary(Div, x, y)


def floor_divide(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """floor(x / y), rounded towards minus infinity."""
    return binary(FloorDivide, x, y)


def remainder(x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """x - floor(x / y) * y, as Python's `%`: the result has the sign of y."""
    return binary(Remainder, x, y)


def pow(x: Tensor | Number, exponent: Tensor | Number) -> Tensor:
    """x ** exponent, with broadcasting.

    >>> import miniflow as flow
    >>> flow.pow(flow.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.], dtype=miniflow.float32)
    """
    x, exponent = promote(x, exponent, "pow")
    if not isinstance(exponent, Tensor):
        return call(PowScalar, x, exponent=exponent)
    return binary(Pow, x, exponent)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    """The larger of two tensors, elementwise; NaN if either is NaN."""
    return binary(Maximum, x, y)


def minimum(x: Tensor, y: Tensor) -> Tensor:
    """The smaller of two tensors, elementwise; NaN if either is NaN."""
    return binary(Minimum, x, y)


def _of_floats(op: type[Op], formula: str) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        if x._array.dtype.kind in "iub":
            x = cast(x, get_default_dtype())
        return call(op, x)

    return _named(function, op, f"{formula}, elementwise. Integers are computed in the default floating dtype.")


def _keeping_integers(op: type[Op], formula: str) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        return call(op, x) if x._array.dtype.kind in "fV" else mul(x, 1)

    return _named(function, op, f"{formula}, elementwise. Integers are whole already.")


def _named(function: Callable, op: type[Op], doc: str) -> Callable:
    function.__name__ = function.__qualname__ = op.function_name
    function.__doc__ = doc
    return takes_tensors(function)


exp = _of_floats(Exp, "e^x")
log = _of_floats(Log, "The natural logarithm of x")
sqrt = _of_floats(Sqrt, "The square root of x")
rsqrt = _of_floats(Rsqrt, "1 / sqrt(x)")
sin = _of_floats(Sin, "sin x")
cos = _of_floats(Cos, "cos x")
tanh = _of_floats(Tanh, "tanh x")
floor = _keeping_integers(Floor, "The largest integer not above x")
ceil = _keeping_integers(Ceil, "The smallest integer not below x")
trunc = _keeping_integers(Trunc, "x without its fraction")


@takes_tensors
def round(x: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest value with `decimals` digits after the point, halves to even."""
    if x._array.dtype.kind not in "fV":
        return mul(x, 1)
    scale = 10.0**decimals
    return call(Round, x) if decimals == 0 else div(call(Round, mul(x, scale)), scale)


def neg(x: Tensor) -> Tensor:
    """-x, elementwise."""
    return call(Neg, x)


def abs(x: Tensor) -> Tensor:
    """|x|, elementwise."""
    return call(Abs, x)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1 by the sign of each value."""
    return call(Sign, x)


def square(x: Tensor) -> Tensor:
    """x * x, elementwise."""
    return pow(x, 2)


def reciprocal(x: Tensor) -> Tensor:
    """1 / x, elementwise."""
    return div(1.0, x)


@takes_tensors
def clamp(x: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
    """x kept within [min, max]; a bound may be None, a number, or a tensor that is broadcast.

    >>> import miniflow as flow
    >>> flow.clamp(flow.tensor([-2.0, 0.5, 9.0]), 0, 1)
    tensor([0.0000, 0.5000, 1.0000], dtype=miniflow.float32)
    """
    if min is None and max is None:
        raise ArgumentError("clamp: got neither min nor max; give at least one bound")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        x = x if min is None else maximum(x, min)
        return x if max is None else minimum(x, max)
    if x._array.dtype.kind in "iub":
        x = cast(x, result_type(x, *[bound for bound in (min, max) if bound is not None]))
    return call(Clamp, x, min=min, max=max)


@takes_tensors
def where(condition: Tensor, x: Tensor | Number, y: Tensor | Number) -> Tensor:
    """x where `condition` holds, else y; all three are broadcast.

    >>> import miniflow as flow
    >>> x = flow.tensor([-1.0, 2.0])
    >>> flow.where(x > 0, x, 0.0)
    tensor([0., 2.], dtype=miniflow.float32)
    """
    x, y = promote(x, y, "where")
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = constant_like(condition, np.asarray(x, result_type(x, y).numpy))
    return call(Where, condition, x, y)
