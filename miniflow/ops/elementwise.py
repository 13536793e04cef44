"""Pointwise arithmetic, with broadcasting and PyTorch's type promotion; see `pointwise` for how it is written."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow import scalar
from miniflow.backends.memory import peek
from miniflow.dispatch import call
from miniflow.dtype import fitting, get_default_dtype
from miniflow.errors import ArgumentError, DivisionByZeroError, DTypeError
from miniflow.operands import refuse_operand
from miniflow.ops.pointwise import called_as, pointwise, promoted
from miniflow.ops.promotion import (
    Number,
    as_operand,
    as_tensor_or_number,
    binary,
    promote,
    result_type,
)
from miniflow.scalar import where as select
from miniflow.tensor import Tensor, constant_like

# sums and products


@pointwise(cpu=np.add, amp="gray", operator="add")
def add(x, y):
    """x + y"""
    return x + y


@add.gradient("x")
def _(dy):
    return dy


@add.gradient("y")
def _(dy):
    return dy


@called_as(add)
def add(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """input + alpha * other, with broadcasting and type promotion.

    >>> import miniflow as flow
    >>> flow.add(flow.tensor([1, 2]), 0.5)
    tensor([1.5000, 2.5000], dtype=miniflow.float32)

    Raises:
        ShapeError: if the shapes cannot be broadcast.
        DTypeError: for a fractional `alpha` beside integers.

    Source: `torch.add`.
    """
    return binary(add.op, input, other) if alpha == 1 else binary(add.op, *_scaled("add", input, other, alpha))


@pointwise(cpu=np.subtract, accepts="fi", amp="gray", operator="sub", synonyms=("subtract",))
def sub(x, y):
    """x - y"""
    return x - y


@sub.gradient("x")
def _(dy):
    return dy


@sub.gradient("y")
def _(dy):
    return -dy


@called_as(sub)
def sub(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """input - alpha * other, with broadcasting and type promotion. As `add`.

    Source: `torch.sub`.
    """
    return binary(sub.op, input, other) if alpha == 1 else binary(sub.op, *_scaled("sub", input, other, alpha))


def _scaled(name: str, x: Any, y: Any, alpha: Number) -> tuple[Any, Any]:
    """The operands in the dtype of the result, the second one times `alpha`."""
    x, y = promote(x, y, name)
    if isinstance(alpha, float) and result_type(x, y).category < 2:
        raise DTypeError(
            f"{name}: got alpha={alpha} for integers; expected an integer: cast them first, e.g. x.float()"
        )
    return x, y * alpha


@pointwise(cpu=np.multiply, amp="gray", operator="mul", synonyms=("multiply",))
def mul(x, y):
    """input * other, with broadcasting and type promotion. `torch.mul`."""
    return x * y


@mul.gradient("x")
def _(dy, y):
    return dy * y


@mul.gradient("y")
def _(dy, x):
    return dy * x


@pointwise(cpu=np.negative, accepts="fi", amp="clear", synonyms=("negative",))
def neg(x):
    """-x, elementwise. `torch.neg`."""
    return -x


@neg.gradient
def _(dy):
    return -dy


@pointwise(cpu=np.square, accepts="fi", amp="gray")
def square(x):
    """x * x, elementwise. `torch.square`."""
    return x * x


@square.gradient
def _(dy, x):
    return dy * (2 * x)


# quotients


@pointwise(
    cpu=np.true_divide,
    accepts="f",
    integers="float",
    amp="gray",
    operator="truediv",
    synonyms=("divide", "true_divide"),
)
def div(x, y):
    """x / y"""
    return x / y


@div.gradient("x")
def _(dy, y):
    return dy / y


@div.gradient("y")
def _(dy, x, y):
    return -(dy / y * x) / y


@called_as(div)
def div(input: Tensor | Number, other: Tensor | Number, *, rounding_mode: str | None = None) -> Tensor:
    """input / other, with broadcasting. Integers are divided in the default floating dtype, unless there is a mode.

    Args:
        rounding_mode: None, "floor" (towards minus infinity) or "trunc" (towards zero).

    Raises:
        ArgumentError: for another rounding mode.
        DivisionByZeroError: for an integer zero among the divisors, where a rounding mode is given.

    >>> import miniflow as flow
    >>> flow.div(flow.tensor([-7, 7]), 2, rounding_mode="trunc").tolist()
    [-3, 3]

    Source: `torch.div`.
    """
    if rounding_mode is None:
        if isinstance(input, Tensor) and isinstance(other, Tensor) and input._array.dtype.kind in "fV":
            return binary(div.op, input, other)
        x, y = as_tensor_or_number(input, "div"), as_tensor_or_number(other, "div")
        if result_type(x, y).category < 2:
            x, y = as_operand(x, get_default_dtype()), as_operand(y, get_default_dtype())
            return call(div.op, x, y)
        return binary(div.op, input, other)
    if rounding_mode not in ("floor", "trunc"):
        raise ArgumentError(f"div: got rounding_mode={rounding_mode!r}; expected None, 'floor' or 'trunc'")
    return floor_divide(input, other) if rounding_mode == "floor" else trunc_divide(input, other)


@pointwise(cpu=np.reciprocal, accepts="f", integers="float", amp="gray")
def reciprocal(x):
    """1 / x, elementwise. Integers are computed in the default floating dtype. `torch.reciprocal`."""
    return 1 / x


@reciprocal.gradient
def _(dy, out):
    return -dy * out * out


def refuse_zero_divisors(x: Any, y: Any) -> None:
    """Raise DivisionByZeroError for an integer zero among the divisors, where they can be looked at."""
    if getattr(x, "dtype", None) is None or x.dtype.kind in "iu":
        values = peek(y) if hasattr(y, "dtype") else np.asarray(y)
        if values is not None and values.dtype.kind in "iu" and not values.all():
            raise DivisionByZeroError(
                "got an integer divided by zero; expected other divisors: use floats for infinity"
            )


@pointwise(cpu=np.floor_divide, accepts="fi", operator="floordiv", check=refuse_zero_divisors)
def floor_divide(x, y):
    """floor(input / other), rounded towards minus infinity; its gradient is zero. `torch.floor_divide`."""
    return x // y


@floor_divide.gradient("x")
def _(dy):
    return 0


@floor_divide.gradient("y")
def _(dy):
    return 0


@pointwise(cpu=np.remainder, accepts="fi", operator="mod", check=refuse_zero_divisors)
def remainder(x, y):
    """input - floor(input / other) * other, as Python's `%`: the result has the sign of `other`. `torch.remainder`."""
    return x % y


@remainder.gradient("x")
def _(dy):
    return dy


@remainder.gradient("y")
def _(dy, x, y):
    return -dy * (x // y)


def _truncated(x: Any, y: Any, out: np.ndarray) -> None:
    """x / y rounded towards zero, exact for integers."""
    if out.dtype.kind in "iu":
        np.floor_divide(x, y, out=out)
        out += (np.less(x, 0) != np.less(y, 0)) & (np.remainder(x, y) != 0)
    else:
        np.trunc(np.true_divide(x, y, out=out), out=out)


@pointwise(cpu=_truncated, accepts="fi", check=refuse_zero_divisors)
def trunc_divide(x, y):
    """input / other rounded towards zero; its gradient is zero."""
    return scalar.trunc_divide(x, y)


@trunc_divide.gradient("x")
def _(dy):
    return 0


@trunc_divide.gradient("y")
def _(dy):
    return 0


# powers and roots


def _power(x: Any, y: Any, out: np.ndarray) -> None:
    """x ** y; of integers with a negative exponent what is left of the quotient: 0, but for 1 and -1."""
    if out.dtype.kind not in "iu" or not np.any(np.less(y, 0)):
        np.power(x, y, out=out)
        return
    np.power(x, np.maximum(y, 0), out=out)
    sign = np.where(np.equal(x, 1), 1, np.where(np.equal(x, -1), 1 - 2 * np.bitwise_and(y, 1), 0))
    np.copyto(out, sign, where=np.less(y, 0), casting="unsafe")


@pointwise(cpu=_power, accepts="fi", operator="pow")
def pow(x, y):
    """x ** y"""
    return x**y


@pow.gradient("x")
def _(dy, x, y):
    return select(y == 0, 0, dy * (y * x ** (y - 1)))


@pow.gradient("y")
def _(dy, x, y, out):
    zero = (x == 0) & (y >= 0)
    return select(zero, 0, dy * (out * scalar.log(select(zero, 1, x))))


@pointwise(accepts="f", amp="gray", in_place=False)
def cube(x):
    """x * x * x"""
    return x * x * x


@cube.gradient
def _(dy, x):
    return dy * (3 * x * x)


@called_as(pow)
def pow(input: Tensor | Number, exponent: Tensor | Number) -> Tensor:
    """input ** exponent, with broadcasting.

    >>> import miniflow as flow
    >>> flow.pow(flow.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.], dtype=miniflow.float32)

    Raises:
        DTypeError: for bools, and for integers to the power of a negative number.

    Source: `torch.pow`.
    """
    if isinstance(input, Tensor) and isinstance(exponent, int | float) and not isinstance(exponent, bool):
        kind = input._array.dtype.kind
        if kind in "iu" and isinstance(exponent, int) and exponent < 0:
            raise DTypeError(
                f"pow: got integers to the negative power {exponent}, which are not integers; cast first: x.float()"
            )
        simple = POWERS.get(exponent) if kind in "fV" else None
        if simple is not None:
            return simple(input)
    elif isinstance(exponent, Tensor) and isinstance(input, int | float):
        input, exponent = promote(input, exponent, "pow")
        input = constant_like(exponent, np.asarray(input, exponent._array.dtype))
    return binary(pow.op, input, exponent)


@pointwise(cpu=np.sqrt, accepts="f", integers="float", amp="gray")
def sqrt(x):
    """The square root of x, elementwise. Integers are computed in the default floating dtype. `torch.sqrt`."""
    return scalar.sqrt(x)


@sqrt.gradient
def _(dy, out):
    return dy * 0.5 / out


@pointwise(accepts="f", integers="float")
def rsqrt(x):
    """1 / sqrt(x), elementwise. Integers are computed in the default floating dtype. `torch.rsqrt`."""
    return 1 / scalar.sqrt(x)


@rsqrt.gradient
def _(dy, out):
    return dy * -0.5 * (out * out * out)


POWERS = {
    **{0.5: sqrt, -0.5: rsqrt, 1: lambda x: mul(x, 1), 2: square, 3: cube},
    **{-1: reciprocal, -2: lambda x: square(reciprocal(x))},
}

# exponentials and other functions


@pointwise(cpu=np.exp, accepts="f", integers="float")
def exp(x):
    """e^x, elementwise. Integers are computed in the default floating dtype. `torch.exp`."""
    return scalar.exp(x)


@exp.gradient
def _(dy, out):
    return dy * out


@pointwise(cpu=np.log, accepts="f", integers="float")
def log(x):
    """The natural logarithm of x, elementwise. Integers are computed in the default floating dtype. `torch.log`."""
    return scalar.log(x)


@log.gradient
def _(dy, x):
    return dy / x


@pointwise(cpu=np.sin, accepts="f", integers="float")
def sin(x):
    """sin x, elementwise. Integers are computed in the default floating dtype. `torch.sin`."""
    return scalar.sin(x)


@sin.gradient
def _(dy, x):
    return dy * scalar.cos(x)


@pointwise(cpu=np.cos, accepts="f", integers="float")
def cos(x):
    """cos x, elementwise. Integers are computed in the default floating dtype. `torch.cos`."""
    return scalar.cos(x)


@cos.gradient
def _(dy, x):
    return -(dy * scalar.sin(x))


@pointwise(cpu=np.tanh, accepts="f", integers="float", amp="gray", nn="Tanh")
def tanh(x):
    """tanh x, elementwise. Integers are computed in the default floating dtype. `torch.tanh`."""
    return scalar.tanh(x)


@tanh.gradient
def _(dy, out):
    return dy * (1 - out * out)


# pieces


@pointwise(cpu=np.sign, loop_from=0, accepts="fi")
def sign(x):
    """-1, 0 or 1 by the sign of each value; 0 for NaN. `torch.sign`."""
    return select(x > 0, 1, select(x < 0, -1, 0))


@sign.gradient
def _(dy):
    return 0


@pointwise(cpu=np.absolute, amp="clear", synonyms=("absolute",))
def abs(x):
    """|x|, elementwise; its gradient at 0 is 0. `torch.abs`."""
    return scalar.abs(x)


@abs.gradient
def _(dy, x):
    return dy * sign(x)


@pointwise(cpu=np.floor, accepts="fi")
def floor(x):
    """The largest integer not above x, elementwise; its gradient is zero. `torch.floor`."""
    return scalar.floor(x)


@floor.gradient
def _(dy):
    return 0


@pointwise(cpu=np.ceil, accepts="fi")
def ceil(x):
    """The smallest integer not below x, elementwise; its gradient is zero. `torch.ceil`."""
    return scalar.ceil(x)


@ceil.gradient
def _(dy):
    return 0


@pointwise(cpu=np.trunc, accepts="fi")
def trunc(x):
    """x without its fraction, elementwise; its gradient is zero. `torch.trunc`."""
    return scalar.trunc(x)


@trunc.gradient
def _(dy):
    return 0


@pointwise(cpu=np.rint, accepts="f")
def round(x):
    """The nearest integer, halves to even."""
    return scalar.rint(x)


@round.gradient
def _(dy):
    return 0


@called_as(round)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest value with `decimals` digits after the point, halves to even; its gradient is zero.

    Source: `torch.round`.
    """
    if decimals == 0:
        return trunc(input) if isinstance(input, Tensor) and input._array.dtype.kind in "iu" else call(round.op, input)
    scale = 10.0**decimals
    return div(call(round.op, mul(input, scale)), scale)


# choices


@pointwise(cpu=np.maximum, amp="clear", in_place=False)
def maximum(x, y):
    """The larger of two tensors, elementwise; NaN if either is NaN. Equal ones share the gradient.

    Source: `torch.maximum`.
    """
    return select((x > y) | (x != x), x, y)


@maximum.gradient("x")
def _(dy, x, y):
    return select(x < y, 0, select(x == y, dy * 0.5, dy))


@maximum.gradient("y")
def _(dy, x, y):
    return select(y < x, 0, select(x == y, dy * 0.5, dy))


@pointwise(cpu=np.minimum, amp="clear", in_place=False)
def minimum(x, y):
    """The smaller of two tensors, elementwise; NaN if either is NaN. Equal ones share the gradient.

    Source: `torch.minimum`.
    """
    return select((x < y) | (x != x), x, y)


@minimum.gradient("x")
def _(dy, x, y):
    return select(x > y, 0, select(x == y, dy * 0.5, dy))


@minimum.gradient("y")
def _(dy, x, y):
    return select(y > x, 0, select(x == y, dy * 0.5, dy))


def _clip(x: Any, low: Any, high: Any, out: np.ndarray) -> None:
    np.clip(x, low, high, out=out)


@pointwise(cpu=_clip, amp="clear", synonyms=("clip",))
def clamp(x, min, max):
    """x kept within [min, max]"""
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


def _within(x, min, max):
    """Whether x lies within the bounds."""
    if min is None:
        return x <= max
    return x >= min if max is None else (x >= min) & (x <= max)


@clamp.gradient("x")
def _(dy, x, min, max):
    return select(_within(x, min, max), dy, 0)


@clamp.gradient("min")
def _(dy, x, min, max):
    below = x < min
    return select(below if max is None else below & (min < max), dy, 0)


@clamp.gradient("max")
def _(dy, x, min, max):
    above = x > max
    return select(above if min is None else above | (max < min), dy, 0)


@called_as(clamp)
def clamp(input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
    """input kept within [min, max]; a bound may be None, a number, or a tensor that is broadcast.

    The gradient goes to the bound where the input lies outside, else to the input.

    >>> import miniflow as flow
    >>> flow.clamp(flow.tensor([-2.0, 0.5, 9.0]), 0, 1)
    tensor([0.0000, 0.5000, 1.0000], dtype=miniflow.float32)

    Raises:
        ArgumentError: without any bound.

    Source: `torch.clamp`.
    """
    if isinstance(input, scalar.Expr):
        return clamp.op.formula.function(input, min, max)
    if min is None and max is None:
        raise ArgumentError("clamp: got neither min nor max; give at least one bound")
    kind = result_type(*[x for x in (input, min, max) if x is not None])
    min, max = [fitting("clamp", x, kind) if isinstance(x, bool | int | float) else x for x in (min, max)]
    return call(clamp.op, *promoted(clamp.op, [input, min, max]))


def _choose(condition: np.ndarray, x: Any, y: Any, out: np.ndarray) -> None:
    np.copyto(out, y, casting="unsafe")
    np.copyto(out, x, where=condition, casting="unsafe")


@pointwise(cpu=_choose, amp="clear", in_place=False)
def where(condition: bool, x, y):
    """x where the condition holds, else y."""
    return select(condition, x, y)


@where.gradient("x")
def _(dy, condition):
    return select(condition, dy, 0)


@where.gradient("y")
def _(dy, condition):
    return select(condition, 0, dy)


@called_as(where)
def where(condition: Tensor, input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """input where `condition` holds, else other; all three are broadcast.

    >>> import miniflow as flow
    >>> x = flow.tensor([-1.0, 2.0])
    >>> flow.where(x > 0, x, 0.0)
    tensor([0., 2.], dtype=miniflow.float32)

    Raises:
        DTypeError: for a condition that is not bool.

    Source: `torch.where`.
    """
    if isinstance(condition, bool):
        return input if condition else other
    if not isinstance(condition, Tensor):
        refuse_operand(condition, "where", parameter="condition")
    x, y = promote(input, other, "where")
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = constant_like(condition, np.asarray(x, result_type(x, y).numpy))
    return call(where.op, condition, x, y)


Add, Sub, Mul, Div, Neg, Where = add.op, sub.op, mul.op, div.op, neg.op, where.op  # op classes, for passes over graphs
