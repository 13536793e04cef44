"""Pointwise arithmetic with broadcasting and type promotion: sums, products and quotients, signs, rounding, bounds.

See `pointwise` for how an operator is written.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
from ml_dtypes import finfo

from miniflow.backends.memory import peek
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import call
from miniflow.dtype import fitting
from miniflow.errors import ArgumentError, DivisionByZeroError, DTypeError
from miniflow.formulas import scalar
from miniflow.formulas.scalar import where as select
from miniflow.ops.comparison import maximum, minimum
from miniflow.ops.method import method
from miniflow.ops.pointwise import check_attributes, pointwise, promoted, public_function_of
from miniflow.ops.promotion import (
    Number,
    are_of_one_float,
    as_operand,
    as_tensor_or_number,
    binary,
    floating_binary,
    promote,
    result_type,
)
from miniflow.tensor import Tensor

# sums and products


@pointwise(cpu=np.add, amp="gray", operator="add")
def add(x, y):
    """x + y"""
    return x + y


add.gradient("x", "y")(lambda dy: dy)


@public_function_of(add)
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


sub.gradient("x")(lambda dy: dy)
sub.gradient("y")(lambda dy: -dy)


@public_function_of(sub)
def sub(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """input - alpha * other, with broadcasting and type promotion. As `add`.

    Source: `torch.sub`.
    """
    return binary(sub.op, input, other) if alpha == 1 else binary(sub.op, *_scaled("sub", input, other, alpha))


@takes_tensors
def rsub(input: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """other - alpha * input: `sub` with the operands exchanged. `torch.rsub`."""
    return sub(other, input, alpha=alpha)


@method
def positive(input: Tensor) -> Tensor:
    """The tensor itself: what Python's unary + gives. `torch.positive`.

    Raises:
        DTypeError: for bools.
    """
    if input._array.dtype == np.bool_:
        raise DTypeError("positive: got bool; expected numbers: cast first, e.g. x.int()")
    return input


def _scaled(name: str, x: Any, y: Any, alpha: Number) -> tuple[Any, Any]:
    """The operands in the dtype of the result, the second one times `alpha`."""
    x, y = promote(x, y, name)
    target = result_type(x, y)
    if isinstance(alpha, float) and target.category < 2:
        raise DTypeError(f"{name}: got alpha={alpha} for integers; expected an integer: cast them first: x.float()")
    return x, as_operand(y * alpha, target, name)


@pointwise(cpu=np.multiply, amp="gray", operator="mul", synonyms=("multiply",))
def mul(x, y):
    """input * other, with broadcasting and type promotion. `torch.mul`."""
    return x * y


mul.gradient("x")(lambda dy, y: dy * y)
mul.gradient("y")(lambda dy, x: dy * x)


@pointwise(cpu=np.negative, accepts="fi", amp="clear", synonyms=("negative",))
def neg(x):
    """-x, elementwise. `torch.neg`."""
    return -x


neg.gradient(lambda dy: -dy)


@pointwise(cpu=np.square, accepts="fi", amp="gray")
def square(x):
    """x * x, elementwise. `torch.square`."""
    return x * x


square.gradient(lambda dy, x: dy * (2 * x))


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


div.gradient("x")(lambda dy, y: dy / y)
div.gradient("y")(lambda dy, x, y: -(dy / y * x) / y)


@public_function_of(div)
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
        return floating_binary(div.op, input, other)
    if rounding_mode not in ("floor", "trunc"):
        raise ArgumentError(f"div: got rounding_mode={rounding_mode!r}; expected None, 'floor' or 'trunc'")
    return floor_divide(input, other) if rounding_mode == "floor" else trunc_divide(input, other)


@pointwise(cpu=np.reciprocal, accepts="f", integers="float", amp="gray")
def reciprocal(x):
    """1 / x, elementwise. Integers are computed in the default floating dtype. `torch.reciprocal`."""
    return 1 / x


reciprocal.gradient(lambda dy, out: -dy * out * out)


def refuse_zero_divisors(x: Any, y: Any) -> None:
    """Raise DivisionByZeroError for an integer zero among the divisors, where they can be looked at."""
    if hasattr(x, "dtype") and x.dtype.kind not in "iu":
        return
    values = peek(y) if hasattr(y, "dtype") else np.asarray(y)
    if values is not None and values.dtype.kind in "iu" and not values.all():
        raise DivisionByZeroError("got an integer divided by zero; expected other divisors: use floats for infinity")


@pointwise(cpu=np.floor_divide, accepts="fi", operator="floordiv", check=refuse_zero_divisors, piecewise_constant=True)
def floor_divide(x, y):
    """floor(input / other), rounded towards minus infinity; its gradient is zero. `torch.floor_divide`."""
    return x // y


@pointwise(cpu=np.remainder, accepts="fi", operator="mod", check=refuse_zero_divisors)
def remainder(x, y):
    """input - floor(input / other) * other, as Python's `%`: the result has the sign of `other`. `torch.remainder`."""
    return x % y


remainder.gradient("x")(lambda dy: dy)
remainder.gradient("y")(lambda dy, x, y: -dy * (x // y))


@pointwise(cpu=np.fmod, accepts="fi", check=refuse_zero_divisors)
def fmod(x, y):
    """input - trunc(input / other) * other, as C's: the result has the sign of `input`. `torch.fmod`."""
    return scalar.fmod(x, y)


fmod.gradient("x")(lambda dy: dy)
fmod.gradient("y")(lambda dy, x, y: -dy * scalar.trunc_divide(x, y))


def _truncated(x: Any, y: Any, out: np.ndarray) -> None:
    """x / y rounded towards zero, exact for integers."""
    if out.dtype.kind in "iu":
        np.floor_divide(x, y, out=out)
        out += (np.less(x, 0) != np.less(y, 0)) & (np.remainder(x, y) != 0)
    else:
        np.trunc(np.true_divide(x, y, out=out), out=out)


@pointwise(cpu=_truncated, accepts="fi", check=refuse_zero_divisors, piecewise_constant=True)
def trunc_divide(x, y):
    """input / other rounded towards zero; its gradient is zero."""
    return scalar.trunc_divide(x, y)


# with three operands


@pointwise(accepts="f", amp="gray")
def lerp(x, end, weight):
    """input + weight (end - input), elementwise; just `end` for weight = 1. `torch.lerp`.

    Args:
        input, end: floating, broadcast.
        weight: a tensor or a number.
    """
    return select(scalar.abs(weight) < 0.5, x + weight * (end - x), end - (end - x) * (1 - weight))


lerp.gradient("x")(lambda dy, weight: dy * (1 - weight))
lerp.gradient("end")(lambda dy, weight: dy * weight)
lerp.gradient("weight")(lambda dy, x, end: dy * (end - x))


@pointwise(accepts="fi", amp="gray")
def addcmul(x, tensor1, tensor2, value=1):
    """input + value * tensor1 * tensor2, elementwise, with broadcasting. `torch.addcmul`."""
    return x + value * tensor1 * tensor2


addcmul.gradient("x")(lambda dy: dy)
addcmul.gradient("tensor1")(lambda dy, tensor2, value: dy * (value * tensor2))
addcmul.gradient("tensor2")(lambda dy, tensor1, value: dy * (value * tensor1))


@pointwise(accepts="f", amp="gray")
def addcdiv(x, tensor1, tensor2, value=1):
    """input + value * tensor1 / tensor2, elementwise, with broadcasting. `torch.addcdiv`."""
    return x + value * (tensor1 / tensor2)


addcdiv.gradient("x")(lambda dy: dy)
addcdiv.gradient("tensor1")(lambda dy, tensor2, value: dy * (value / tensor2))
addcdiv.gradient("tensor2")(lambda dy, tensor1, tensor2, value: -dy * (value * tensor1 / (tensor2 * tensor2)))


Add, Sub, Mul, Div, Neg = add.op, sub.op, mul.op, div.op, neg.op  # op classes, for passes over graphs


# signs and rounding


@pointwise(piecewise_constant=True, synonyms=("sgn",))
def sign(x):
    """-1, 0 or 1 by the sign of each value; 0 for NaN. `torch.sign`."""
    return select(x > 0, 1, select(x < 0, -1, 0))


@pointwise(cpu=np.absolute, amp="clear", synonyms=("absolute",))
def abs(x):
    """|x|, elementwise; its gradient at 0 is 0. `torch.abs`."""
    return scalar.abs(x)


abs.gradient(lambda dy, x: dy * sign(x))


@pointwise(cpu=np.floor, accepts="fi", piecewise_constant=True)
def floor(x):
    """The largest integer not above x, elementwise; its gradient is zero. `torch.floor`."""
    return scalar.floor(x)


@pointwise(cpu=np.ceil, accepts="fi", piecewise_constant=True)
def ceil(x):
    """The smallest integer not below x, elementwise; its gradient is zero. `torch.ceil`."""
    return scalar.ceil(x)


@pointwise(cpu=np.trunc, accepts="fi", piecewise_constant=True)
def trunc(x):
    """x without its fraction, elementwise; its gradient is zero. `torch.trunc`."""
    return scalar.trunc(x)


@pointwise(cpu=np.rint, accepts="f", piecewise_constant=True)
def round(x):
    """The nearest integer, halves to even."""
    return scalar.rint(x)


@public_function_of(round)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest value with `decimals` digits after the point, halves to even; its gradient is zero.

    Source: `torch.round`.
    """
    if decimals == 0:
        return trunc(input) if isinstance(input, Tensor) and input._array.dtype.kind in "iu" else call(round.op, input)
    scale = 10.0**decimals
    return div(call(round.op, mul(input, scale)), scale)


@pointwise(accepts="f")
def frac(x):
    """x - trunc(x), elementwise: the fraction, with the sign of x. `torch.frac`."""
    return x - scalar.trunc(x)


frac.gradient(lambda dy: dy)


@pointwise(cpu=np.copysign, accepts="f", integers="float")
def copysign(x, y):
    """The magnitude of `input` with the sign of `other`, elementwise. `torch.copysign`."""
    return scalar.copysign(x, y)


copysign.gradient("x")(
    lambda dy, x, out: select(x == 0, 0, select(x != x, dy * x, select((x < 0) == (out < 0), dy, -dy)))
)
copysign.gradient("y")(lambda dy: 0)


@pointwise(amp="clear")
def heaviside(x, values):
    """The unit step"""
    return select(x == 0, values, select(x > 0, 1, 0))


@public_function_of(heaviside)
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 for input < 0, `values` for 0, else 1, elementwise; 0 for NaN. It has no gradient. `torch.heaviside`."""
    return binary(heaviside.op, input, values)


# numbers in place of NaN, and bounds


@pointwise(accepts="f", amp="clear")
def nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0):
    """x with other values for NaN and infinities"""
    return select(x != x, nan, select(x == inf, posinf, select(x == -inf, neginf, x)))


nan_to_num.gradient(lambda dy, x: select(x - x == 0, dy, 0))


@public_function_of(nan_to_num)
def nan_to_num(input: Tensor, nan: Number = 0.0, posinf: Number | None = None, neginf: Number | None = None) -> Tensor:
    """`input` with `nan` for NaN, and `posinf` and `neginf` for infinities; their gradient is zero.

    Args:
        input: integers have neither, and stay as they are.
        nan: 0 also if None.
        posinf, neginf: the largest and the lowest number of the dtype if None.

    >>> import miniflow as flow
    >>> flow.nan_to_num(flow.tensor([float("nan"), 1.0]), nan=2.0).tolist()
    [2.0, 1.0]

    Source: `torch.nan_to_num`.
    """
    if not input.is_floating_point():
        return mul(input, 1)
    largest = float(finfo(input.dtype.numpy).max)
    attrs = {
        "nan": 0.0 if nan is None else nan,
        "posinf": largest if posinf is None else posinf,
        "neginf": -largest if neginf is None else neginf,
    }
    check_attributes(nan_to_num.op, attrs)
    return call(nan_to_num.op, input, **attrs)


@pointwise(amp="clear", synonyms=("clip",))
def clamp(x, min, max):
    """x kept within [min, max]"""
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


def _is_within(x, min, max):
    """Whether x lies within the bounds."""
    if min is None:
        return x <= max
    return x >= min if max is None else (x >= min) & (x <= max)


clamp.gradient("x")(lambda dy, x, min, max: select(_is_within(x, min, max), dy, 0))


@clamp.gradient("min")
def _(dy, x, min, max):
    below = x < min
    return select(below if max is None else below & (min < max), dy, 0)


@clamp.gradient("max")
def _(dy, x, min, max):
    above = x > max
    return select(above if min is None else above | (max < min), dy, 0)


@public_function_of(clamp)
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
    operands = input, min, max
    if not are_of_one_float(operands):
        dtype = result_type(*[as_tensor_or_number(x, "clamp") for x in operands if x is not None])
        operands = [fitting("clamp", x, dtype) if isinstance(x, bool | int | float) else x for x in operands]
        operands = promoted(clamp.op, operands)
    return call(clamp.op, *operands)


@method(in_place=True)
def clamp_min(input: Tensor, min: Tensor | Number) -> Tensor:
    """`clamp` with a lower bound alone. `torch.clamp_min`."""
    return clamp(input, min)


@method(in_place=True)
def clamp_max(input: Tensor, max: Tensor | Number) -> Tensor:
    """`clamp` with an upper bound alone. `torch.clamp_max`."""
    return clamp(input, None, max)
