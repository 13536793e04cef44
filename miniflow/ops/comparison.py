"""Comparisons, logical and bitwise functions, tests for NaN and infinity, and elementwise maximum and minimum."""

from __future__ import annotations

import numpy as np

from miniflow.formulas import scalar
from miniflow.formulas.scalar import where as select
from miniflow.ops.method import method
from miniflow.ops.pointwise import pointwise
from miniflow.ops.reduction import all
from miniflow.tensor import Tensor


@pointwise(cpu=np.equal, operator="eq")
def eq(x, y):
    """input == other, elementwise; a bool tensor. `torch.eq`."""
    return x == y


@pointwise(cpu=np.not_equal, operator="ne", synonyms=("not_equal",))
def ne(x, y):
    """input != other, elementwise; a bool tensor. `torch.ne`."""
    return x != y


@pointwise(cpu=np.less, operator="lt", synonyms=("less",))
def lt(x, y):
    """input < other, elementwise; a bool tensor. `torch.lt`."""
    return x < y


@pointwise(cpu=np.less_equal, operator="le", synonyms=("less_equal",))
def le(x, y):
    """input <= other, elementwise; a bool tensor. `torch.le`."""
    return x <= y


@pointwise(cpu=np.greater, operator="gt", synonyms=("greater",))
def gt(x, y):
    """input > other, elementwise; a bool tensor. `torch.gt`."""
    return x > y


@pointwise(cpu=np.greater_equal, operator="ge", synonyms=("greater_equal",))
def ge(x, y):
    """input >= other, elementwise; a bool tensor. `torch.ge`."""
    return x >= y


@pointwise(cpu=np.logical_and)
def logical_and(x, y):
    """Whether both are non-zero, elementwise. `torch.logical_and`."""
    return (x != 0) & (y != 0)


@pointwise(cpu=np.logical_or)
def logical_or(x, y):
    """Whether either is non-zero, elementwise. `torch.logical_or`."""
    return (x != 0) | (y != 0)


@pointwise(cpu=np.logical_xor)
def logical_xor(x, y):
    """Whether exactly one is non-zero, elementwise. `torch.logical_xor`."""
    return (x != 0) != (y != 0)


@pointwise(cpu=np.logical_not, in_place=True)
def logical_not(x):
    """Whether x is zero, elementwise. `torch.logical_not`."""
    return x == 0


@pointwise(cpu=np.bitwise_and, accepts="ib", operator="and")
def bitwise_and(x, y):
    """The bits set in both, for integers and bools. `torch.bitwise_and`."""
    return x & y


@pointwise(cpu=np.bitwise_or, accepts="ib", operator="or")
def bitwise_or(x, y):
    """The bits set in either, for integers and bools. `torch.bitwise_or`."""
    return x | y


@pointwise(cpu=np.bitwise_xor, accepts="ib", operator="xor")
def bitwise_xor(x, y):
    """The bits set in exactly one, for integers and bools. `torch.bitwise_xor`."""
    return x ^ y


@pointwise(cpu=np.invert, accepts="ib")
def bitwise_not(x):
    """All bits flipped, for integers; `not x` for bools. `torch.bitwise_not`."""
    return ~x


@pointwise(cpu=np.left_shift, accepts="i", operator="lshift")
def bitwise_left_shift(x, y):
    """The bits of the integer `input` moved `other` places up: x * 2^y. `torch.bitwise_left_shift`."""
    return scalar.left_shift(x, y)


@pointwise(cpu=np.right_shift, accepts="i", operator="rshift")
def bitwise_right_shift(x, y):
    """The bits of the integer `input` moved `other` places down, keeping the sign: floor(x / 2^y)."""
    return scalar.right_shift(x, y)


@pointwise(cpu=np.isnan)
def isnan(x):
    """Whether each value is NaN, the only value that differs from itself. `torch.isnan`."""
    return x != x


@pointwise(cpu=np.isinf)
def isinf(x):
    """Whether each value is infinite. `torch.isinf`."""
    return (x == x) & (x - x != 0)


@pointwise(cpu=np.isfinite)
def isfinite(x):
    """Whether each value is neither NaN nor infinite: inf - inf is NaN. `torch.isfinite`."""
    return x - x == 0


@pointwise()
def isposinf(x):
    """Whether each value is positive infinity. `torch.isposinf`."""
    return isinf(x) & (x > 0)


@pointwise()
def isneginf(x):
    """Whether each value is negative infinity. `torch.isneginf`."""
    return isinf(x) & (x < 0)


@pointwise(cpu=np.signbit)
def signbit(x):
    """Whether the sign bit of each value is set: negative numbers, -0.0 too. `torch.signbit`."""
    return scalar.signbit(x)


@method
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether |input - other| <= atol + rtol |other|, elementwise; equal infinities are close.

    Args:
        equal_nan: NaN is close to NaN.

    >>> import miniflow as flow
    >>> flow.isclose(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 2.1])).tolist()
    [True, False]

    Source: `torch.isclose`.
    """
    if "b" in (input._array.dtype.kind, other._array.dtype.kind):
        return input == other
    close = (input == other) | (abs(input - other) <= atol + rtol * abs(other)) & other.isfinite()
    return close | input.isnan() & other.isnan() if equal_nan else close


@method
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close, as `isclose` says. `torch.allclose`."""
    return all(isclose(input, other, rtol, atol, equal_nan)).item()


@method
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both tensors have one shape and the same elements. `torch.equal`."""
    return input.shape == other.shape and all(input == other).item()


# the larger and the smaller of two


@pointwise(cpu=np.maximum, amp="clear", in_place=False)
def maximum(x, y):
    """The larger of two tensors, elementwise; NaN if either is NaN. Equal ones share the gradient.

    Source: `torch.maximum`.
    """
    return select((x > y) | (x != x), x, y)


@pointwise(cpu=np.minimum, amp="clear", in_place=False)
def minimum(x, y):
    """The smaller of two tensors, elementwise; NaN if either is NaN. Equal ones share the gradient.

    Source: `torch.minimum`.
    """
    return select((x < y) | (x != x), x, y)


@maximum.gradient("x")
@minimum.gradient("y")
def _(dy, x, y):
    return select(x < y, 0, select(x == y, dy * 0.5, dy))


@minimum.gradient("x")
@maximum.gradient("y")
def _(dy, x, y):
    return select(x > y, 0, select(x == y, dy * 0.5, dy))


@pointwise(cpu=np.fmax, amp="clear", in_place=False)
def fmax(x, y):
    """The larger of two tensors, elementwise; of a number and NaN the number. Of equal ones `input` gets the gradient.

    Source: `torch.fmax`.
    """
    return select((x >= y) | (y != y), x, y)


@pointwise(cpu=np.fmin, amp="clear", in_place=False)
def fmin(x, y):
    """The smaller of two tensors, elementwise; of a number and NaN the number. Of equal ones `input` gets the gradient.

    Source: `torch.fmin`.
    """
    return select((x <= y) | (y != y), x, y)


fmax.gradient("x")(lambda dy, x, y: select((x >= y) | (y != y), dy, 0))
fmax.gradient("y")(lambda dy, x, y: select((x >= y) | (y != y), 0, dy))
fmin.gradient("x")(lambda dy, x, y: select((x <= y) | (y != y), dy, 0))
fmin.gradient("y")(lambda dy, x, y: select((x <= y) | (y != y), 0, dy))
