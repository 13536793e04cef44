"""Pointwise arithmetic, with broadcasting and PyTorch's type promotion; see `pointwise` for how it is written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow import scalar
from miniflow.backends.memory import peek
from miniflow.dtype import float64
from miniflow.errors import ArgumentError, DivisionByZeroError, DTypeError
from miniflow.operands import takes_tensors
from miniflow.ops.method import method
from miniflow.ops.pointwise import called_as, pointwise
from miniflow.ops.promotion import Number, as_operand, binary, cast, floating_binary, promote, result_type
from miniflow.scalar import where as select
from miniflow.tensor import Tensor, constant_like

LOG_OF_2 = math.log(2)
SLOPE_OF_ERF = 2 / math.sqrt(math.pi)  # at 0

# sums and products


@pointwise(cpu=np.add, amp="gray", operator="add")
def add(x, y):
    """x + y"""
    return x + y


add.gradient("x", "y")(lambda dy: dy)


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


sub.gradient("x")(lambda dy: dy)
sub.gradient("y")(lambda dy: -dy)


@called_as(sub)
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
    return x, as_operand(y * alpha, target)


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


pow.gradient("x")(lambda dy, x, y: select(y == 0, 0, dy * (y * x ** (y - 1))))


@pow.gradient("y")
def _(dy, x, y, out):
    zero = (x == 0) & (y >= 0)
    return select(zero, 0, dy * (out * scalar.log(select(zero, 1, x))))


@pointwise(accepts="f", amp="gray", in_place=False)
def cube(x):
    """x * x * x"""
    return x * x * x


cube.gradient(lambda dy, x: dy * (3 * x * x))


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
            raise DTypeError(f"pow: got integers to the negative power {exponent}; expected floats: use x.float()")
        simple = POWERS.get(exponent) if kind in "fV" else None
        if simple is not None:
            return simple(input)
    elif isinstance(exponent, Tensor) and isinstance(input, int | float):
        input, exponent = promote(input, exponent, "pow")
        input = constant_like(exponent, np.asarray(input, exponent._array.dtype))
    return binary(pow.op, input, exponent)


@method
def float_power(input: Tensor, exponent: Tensor | Number) -> Tensor:
    """input ** exponent in float64. `torch.float_power`."""
    return pow(cast(input, float64), exponent)


@pointwise(cpu=np.sqrt, accepts="f", integers="float", amp="gray")
def sqrt(x):
    """The square root of x, elementwise. Integers are computed in the default floating dtype. `torch.sqrt`."""
    return scalar.sqrt(x)


sqrt.gradient(lambda dy, out: dy * 0.5 / out)


@pointwise(accepts="f", integers="float")
def rsqrt(x):
    """1 / sqrt(x), elementwise. Integers are computed in the default floating dtype. `torch.rsqrt`."""
    return 1 / scalar.sqrt(x)


rsqrt.gradient(lambda dy, out: dy * -0.5 * (out * out * abs(out)))  # -inf at -0.0 too, as from the right


POWERS = {
    **{0.5: sqrt, -0.5: rsqrt, 1: lambda x: mul(x, 1), 2: square, 3: cube},
    **{-1: reciprocal, -2: lambda x: square(reciprocal(x))},
}

# exponentials and other functions


@pointwise(cpu=np.exp, accepts="f", integers="float")
def exp(x):
    """e^x, elementwise. Integers are computed in the default floating dtype. `torch.exp`."""
    return scalar.exp(x)


exp.gradient(lambda dy, out: dy * out)


@pointwise(cpu=np.log, accepts="f", integers="float")
def log(x):
    """The natural logarithm of x, elementwise. Integers are computed in the default floating dtype. `torch.log`."""
    return scalar.log(x)


log.gradient(lambda dy, x: dy / x)


@pointwise(cpu=np.exp2, accepts="f", integers="float")
def exp2(x):
    """2^x, elementwise. `torch.exp2`."""
    return scalar.power(2, x)


exp2.gradient(lambda dy, out: dy * (out * LOG_OF_2))


@pointwise(accepts="f", integers="float")
def expm1(x):
    """e^x - 1, elementwise, exact to the last digits for small x. `torch.expm1`."""
    return scalar.expm1(x)


expm1.gradient(lambda dy, out: dy * (out + 1))


@pointwise(accepts="f", integers="float")
def log1p(x):
    """log(1 + x), elementwise, exact to the last digits for small x. `torch.log1p`."""
    return scalar.log1p(x)


log1p.gradient(lambda dy, x: dy / (x + 1))


@pointwise(cpu=np.log2, accepts="f", integers="float")
def log2(x):
    """The logarithm of x to the base 2, elementwise. `torch.log2`."""
    return scalar.log2(x)


log2.gradient(lambda dy, x: dy / (x * LOG_OF_2))


@pointwise(cpu=np.log10, accepts="f", integers="float")
def log10(x):
    """The logarithm of x to the base 10, elementwise. `torch.log10`."""
    return scalar.log10(x)


log10.gradient(lambda dy, x: dy / (x * math.log(10)))


@pointwise(accepts="f", integers="float", amp="gray", nn="Sigmoid")
def sigmoid(x):
    """1 / (1 + exp(-x)), elementwise. Integers are computed in the default floating dtype.

    >>> import miniflow as flow
    >>> flow.sigmoid(flow.tensor(0.0)).item()
    0.5

    Source: `torch.sigmoid`.
    """
    return 1 / (1 + scalar.exp(-x))


sigmoid.gradient(lambda dy, out: dy * out * (1 - out))


@pointwise(accepts="f")
def logaddexp(x, y):
    """log(e^input + e^other), without overflow. `torch.logaddexp`."""
    larger, distance = select(x > y, x, y), scalar.abs(x - y)
    return select(x == y, x + LOG_OF_2, larger + scalar.log1p(scalar.exp(-distance)))


logaddexp.gradient("x")(lambda dy, x, y: dy * sigmoid(x - y))
logaddexp.gradient("y")(lambda dy, x, y: dy * sigmoid(y - x))


@pointwise(accepts="f")
def logaddexp2(x, y):
    """log2(2^input + 2^other), without overflow. `torch.logaddexp2`."""
    larger, distance = select(x > y, x, y), scalar.abs(x - y)
    return select(x == y, x + 1, larger + scalar.log1p(scalar.exp(-distance * LOG_OF_2)) / LOG_OF_2)


logaddexp2.gradient("x")(lambda dy, x, y: dy * sigmoid((x - y) * LOG_OF_2))
logaddexp2.gradient("y")(lambda dy, x, y: dy * sigmoid((y - x) * LOG_OF_2))


@pointwise(accepts="f", integers="float")
def xlogy(x, y):
    """input * log(other), elementwise; 0 for input = 0, unless other is NaN. `torch.xlogy`."""
    return select((x == 0) & (y == y), 0, x * scalar.log(select((x == 0) & (y == y), 1, y)))


xlogy.gradient("x")(lambda dy, x, y: select((x == 0) & (y <= 0), 0, dy * scalar.log(y)))
xlogy.gradient("y")(lambda dy, x, y: dy * x / y)


@pointwise(accepts="f", integers="float")
def sinc(x):
    """sin(pi x) / (pi x), elementwise; 1 for x = 0. `torch.sinc`."""
    angle = math.pi * select(x == 0, 1, x)
    return select(x == 0, 1, scalar.sin(angle) / angle)


sinc.gradient(lambda dy, x, out: select(x == 0, 0, dy * (scalar.cos(math.pi * x) - out) / select(x == 0, 1, x)))


@pointwise(accepts="f", integers="float")
def rad2deg(x):
    """Radians in degrees, elementwise. `torch.rad2deg`."""
    return x * (180 / math.pi)


rad2deg.gradient(lambda dy: dy * (180 / math.pi))


@pointwise(accepts="f", integers="float")
def deg2rad(x):
    """Degrees in radians, elementwise. `torch.deg2rad`."""
    return x * (math.pi / 180)


deg2rad.gradient(lambda dy: dy * (math.pi / 180))


# the error function


@pointwise(accepts="f", integers="float")
def erf(x):
    """The error function 2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt, elementwise.

    Integers are computed in the default floating dtype.

    >>> import miniflow as flow
    >>> round(flow.erf(flow.tensor(0.5)).item(), 5)
    0.5205

    Source: `torch.erf`.
    """
    return scalar.erf(x)


erf.gradient(lambda dy, x: dy * (SLOPE_OF_ERF * scalar.exp(-x * x)))


@pointwise(accepts="f", integers="float")
def erfc(x):
    """1 - erf(x), elementwise, exact to the last digits for large x. `torch.erfc`."""
    return scalar.erfc(x)


erfc.gradient(lambda dy, x: dy * (-SLOPE_OF_ERF * scalar.exp(-x * x)))


# erfinv(x) / x in w - 4 where w = -log(1 - x^2) is below 8, else in sqrt(w) - 4.3; the highest power first. They were
# fitted at Chebyshev nodes to 50 digits, and are right to 1e-14.
ERFINV_CENTRAL = (
    -2.7222011718118042e-23, -5.1688132829484927e-22, 8.5298263567687979e-21, 3.4182414864640801e-20,
    -8.9545207587082562e-19, 2.0990562062984467e-18, 3.7949740341596897e-17, -3.5199181894555753e-16,
    6.3701685757854887e-16, 1.4034903117685083e-14, -1.5359705108475676e-13, 4.6404390109484729e-13,
    5.2408095281229282e-12, -7.175419170009617e-11, 2.9099809751595262e-10, 1.8500217130089542e-09,
    -3.3436465064400678e-08, 1.7724378503211534e-07, 4.8654244847817874e-07, -1.5515141247174784e-05,
    0.0001188777891244367, -0.00020397201746794386, -0.0072210599518373235, 0.22835468533768488, 1.8587791124269735
)  # fmt: skip
ERFINV_TAIL = (
    -6.6267900887104321e-14, 7.947420803535732e-13, -3.3824955087775944e-12, 2.2930717415781053e-12,
    3.5354591604260168e-11, -1.6351585561441729e-10, 3.0614874140483319e-10, 1.7349092695582192e-10,
    -3.0917000809861527e-09, 1.0936795923473892e-08, -2.0958874246040064e-08, 7.8400885325540399e-09,
    1.0377522348193948e-07, -4.5555654160316876e-07, 1.2229368587271812e-06, -2.5342295204550801e-06,
    4.5195663285132763e-06, -8.1424434738268234e-06, 1.8785622373308269e-05, -5.8322854474719566e-05,
    0.00019685383435960089, -0.00056701636138415236, 0.00062466999072998048, 1.0100450970686856, 4.142724044720679
)  # fmt: skip


@pointwise(accepts="f", integers="float")
def erfinv(x):
    """The number whose error function is x, elementwise; NaN outside [-1, 1].

    Source: Giles, "Approximating the erfinv function", GPU Computing Gems, 2010; `torch.erfinv`.
    """
    w = -scalar.log((1 - x) * (1 + x))
    central, tail = w - 4, scalar.sqrt(w) - 4.3
    p, q = ERFINV_CENTRAL[0], ERFINV_TAIL[0]
    for c, d in zip(ERFINV_CENTRAL[1:], ERFINV_TAIL[1:], strict=True):
        p, q = p * central + c, q * tail + d
    return x * select(x * x == 1, math.inf, select(w < 8, p, q))


erfinv.gradient(lambda dy, out: dy * (scalar.exp(out * out) / SLOPE_OF_ERF))


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
