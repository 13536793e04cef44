"""Powers, roots, exponentials and logarithms. Integers are computed in the default floating dtype, except powers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow.dtype import float64
from miniflow.errors import DTypeError
from miniflow.formulas import scalar
from miniflow.formulas.scalar import where as select
from miniflow.ops.activation import sigmoid
from miniflow.ops.arithmetic import mul, reciprocal, square
from miniflow.ops.method import method
from miniflow.ops.pointwise import pointwise, public_function_of
from miniflow.ops.promotion import Number, binary, cast, promote
from miniflow.tensor import Tensor, constant_like

# powers and roots


def _power(x: Any, y: Any, out: np.ndarray) -> None:
    """x ** y; for integers, 1 / x^|y| rounded towards zero if y is negative: 0, except for 1 and -1."""
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


@public_function_of(pow)
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
        dtype_kind = input._array.dtype.kind
        if dtype_kind in "iu" and isinstance(exponent, int) and exponent < 0:
            raise DTypeError(f"pow: got integers to the negative power {exponent}; expected floats: use x.float()")
        simple = POWERS.get(exponent) if dtype_kind in "fV" else None
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


rsqrt.gradient(lambda dy, out: dy * -0.5 * (out * out * abs(out)))  # -inf at -0.0 too, the limit from the right


POWERS = {
    **{0.5: sqrt, -0.5: rsqrt, 1: lambda x: mul(x, 1), 2: square, 3: cube},
    **{-1: reciprocal, -2: lambda x: square(reciprocal(x))},
}


# exponentials and logarithms

LOG_OF_2 = math.log(2)


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
