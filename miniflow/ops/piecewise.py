"""Functions that are put together from pieces: signs, rounding, bounds and `where`."""

from __future__ import annotations

from math import inf

import numpy as np
from ml_dtypes import finfo

from miniflow import scalar
from miniflow.dispatch import call
from miniflow.dtype import fitting
from miniflow.errors import ArgumentError
from miniflow.operands import refuse_operand
from miniflow.ops.elementwise import div, mul
from miniflow.ops.method import method
from miniflow.ops.pointwise import called_as, check_attributes, pointwise, promoted
from miniflow.ops.promotion import Number, are_of_one_float, as_tensor_or_number, binary, promote, result_type
from miniflow.scalar import where as select
from miniflow.tensor import Tensor, constant_like

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


@called_as(round)
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


copysign.gradient("x")(lambda dy, x, out: select(x == 0, 0, select(x != x, x, select((x < 0) == (out < 0), dy, -dy))))
copysign.gradient("y")(lambda dy: 0)


# bounds and choices


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


@pointwise(amp="clear")
def heaviside(x, values):
    """The unit step"""
    return select(x == 0, values, select(x > 0, 1, 0))


@called_as(heaviside)
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 for input < 0, `values` for 0, else 1, elementwise; 0 for NaN. It has no gradient. `torch.heaviside`."""
    return binary(heaviside.op, input, values)


@pointwise(accepts="f", amp="clear")
def nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0):
    """x with other values for NaN and infinities"""
    return select(x != x, nan, select(x == inf, posinf, select(x == -inf, neginf, x)))


nan_to_num.gradient(lambda dy, x: select(x - x == 0, dy, 0))


@called_as(nan_to_num)
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
    operands = input, min, max
    if not are_of_one_float(operands):
        kind = result_type(*[as_tensor_or_number(x, "clamp") for x in operands if x is not None])
        operands = [fitting("clamp", x, kind) if isinstance(x, bool | int | float) else x for x in operands]
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


@pointwise(amp="clear", in_place=False)
def where(condition: bool, x, y):
    """x where the condition holds, else y."""
    return scalar.where(condition, x, y)


where.gradient("x")(lambda dy, condition: scalar.where(condition, dy, 0))
where.gradient("y")(lambda dy, condition: scalar.where(condition, 0, dy))


@called_as(where)
def where(
    condition: Tensor, input: Tensor | Number | None = None, other: Tensor | Number | None = None
) -> Tensor | tuple:
    """input where `condition` holds, else other; all three are broadcast. Alone, `condition.nonzero(as_tuple=True)`.

    A condition of integers holds where it is not 0.

    >>> import miniflow as flow
    >>> x = flow.tensor([-1.0, 2.0])
    >>> flow.where(x > 0, x, 0.0)
    tensor([0., 2.], dtype=miniflow.float32)

    Raises:
        DTypeError: for a condition of floats.

    Source: `torch.where`; `oneflow.where`, which takes integers.
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if isinstance(condition, bool):
        return input if condition else other
    if not isinstance(condition, Tensor):
        refuse_operand(condition, "where", parameter="condition")
    if condition.dtype.category == 1:
        condition = condition != 0
    x, y = promote(input, other, "where")
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        x = constant_like(condition, np.asarray(x, result_type(x, y).numpy))
    return call(where.op, condition, x, y)
