"""Pointwise arithmetic: which scalar function of `kernels.elementwise` serves which dtype, with arrays and numbers.

Half precision is computed in float32 and rounded once. Bools are the numbers 0 and 1, uint8, to kernels. A Python
number becomes an argument of the kernel, in the dtype of the array beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, bits
from miniflow.backends.cuda.copy import as_bits, as_number
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.pointwise import apply
from miniflow.backends.registry import register
from miniflow.dtype import HALF
from miniflow.kernels import elementwise as kernels
from miniflow.kernels.pointwise import flipped

FLOAT32 = np.dtype(np.float32)
BOOL = np.dtype(np.bool_)

ARITHMETIC = {  # the functions for floats, for integers, and for bools
    "Add": (kernels.add, kernels.add, kernels.bitwise_or),
    "Sub": (kernels.sub, kernels.sub, None),
    "Mul": (kernels.mul, kernels.mul, kernels.bitwise_and),
    "Div": (kernels.div, None, None),
    "Maximum": (kernels.maximum, kernels.maximum, kernels.bitwise_or),
    "Minimum": (kernels.minimum, kernels.minimum, kernels.bitwise_and),
    "Remainder": (kernels.remainder, kernels.remainder_integers, None),
    "BitwiseAnd": (None, kernels.bitwise_and, kernels.bitwise_and),
    "BitwiseOr": (None, kernels.bitwise_or, kernels.bitwise_or),
    "BitwiseXor": (None, kernels.bitwise_xor, kernels.bitwise_xor),
    "BitwiseLeftShift": (None, kernels.left_shift, None),
    "BitwiseRightShift": (None, kernels.right_shift, None),
    "BitwiseNot": (None, kernels.bitwise_not, kernels.logical_not),
    "Neg": (kernels.neg, kernels.neg, None),
    "Abs": (kernels.absolute, kernels.absolute, kernels.absolute),
    "Sign": (kernels.sign, kernels.sign, None),
    "Exp": (kernels.exp, None, None),
    "Log": (kernels.log, None, None),
    "Sqrt": (kernels.sqrt, None, None),
    "Rsqrt": (kernels.rsqrt, None, None),
    "Sin": (kernels.sin, None, None),
    "Cos": (kernels.cos, None, None),
    "Tanh": (kernels.tanh, None, None),
}

PREDICATES = {
    "Eq": kernels.eq,
    "Ne": kernels.ne,
    "Lt": kernels.lt,
    "Le": kernels.le,
    "Gt": kernels.gt,
    "Ge": kernels.ge,
    "LogicalAnd": kernels.logical_and,
    "LogicalOr": kernels.logical_or,
    "LogicalXor": kernels.logical_xor,
    "LogicalNot": kernels.logical_not,
    "Isnan": kernels.isnan,
    "Isinf": kernels.isinf,
    "Isfinite": kernels.isfinite,
}

TO_WHOLE = {"Floor": kernels.floor, "Ceil": kernels.ceil, "Trunc": kernels.trunc, "Round": kernels.nearest}


def run(function: Any, operands: tuple, numbers: tuple = (), predicate: bool = False) -> DeviceArray:
    """`function` of one or two operands, of which one may be a number, and of `numbers`.

    Args:
        function: a device function of scalars.
        operands: DeviceArrays of one dtype, and numbers.
        numbers: NumPy scalars.
        predicate: whether the result is bool.
    """
    arrays = [x for x in operands if type(x) is DeviceArray]
    dtype = arrays[0].dtype
    if len(arrays) < len(operands):
        (number,) = [x for x in operands if type(x) is not DeviceArray]
        if operands[0] is number:
            function = flipped(function)
        numbers = (as_scalar(number, dtype), *numbers)
    arrays = [x.astype(FLOAT32) if x.dtype in HALF else as_number(x) for x in arrays]
    result = apply(function, arrays, np.uint8 if predicate else arrays[0].dtype, numbers)
    if predicate or dtype == BOOL:
        return result.view(lambda a: a.view(BOOL))
    return result.astype(dtype) if dtype in HALF else result


def as_scalar(number: float, dtype: np.dtype) -> np.generic:
    """A Python number in `dtype`, in the form in which kernels see elements of it."""
    with np.errstate(over="ignore"):  # a float beyond the dtype's range is infinite in it
        value = np.asarray(number, dtype)
    return value.astype(FLOAT32 if dtype in HALF else np.uint8 if dtype == BOOL else dtype)[()]


def whole(dtype: np.dtype) -> np.floating:
    """Numbers of this size have no fraction; see `kernels.elementwise.nearest`."""
    return np.float64(2.0**52) if dtype == np.float64 else np.float32(2.0**23)


def arithmetic(of_floats: Any, of_integers: Any, of_bools: Any) -> Callable[..., DeviceArray]:
    """The kernel that chooses its scalar function by dtype."""

    def kernel(*operands: Any) -> DeviceArray:
        kind = next(x.dtype.kind for x in operands if type(x) is DeviceArray)
        return run(of_bools if kind == "b" else of_integers if kind in "iu" else of_floats, operands)

    return kernel


def predicate(function: Any) -> Callable[..., DeviceArray]:
    """The kernel whose result is bool."""
    return lambda *operands: run(function, operands, predicate=True)


def to_whole(function: Any) -> Callable[[DeviceArray], DeviceArray]:
    """The kernel that rounds floats."""
    return lambda x: run(function, (x,), (whole(x.dtype),))


for _name, _functions in ARITHMETIC.items():
    register("cuda", _name, half="native")(arithmetic(*_functions))

for _name, _function in PREDICATES.items():
    register("cuda", _name, half="native")(predicate(_function))

for _name, _function in TO_WHOLE.items():
    register("cuda", _name, half="native")(to_whole(_function))


@register("cuda", "FloorDivide", half="native")
def floor_divide(x: Any, y: Any) -> DeviceArray:
    dtype = next(v.dtype for v in (x, y) if type(v) is DeviceArray)
    if dtype.kind in "iu":
        return run(kernels.floor_divide_integers, (x, y))
    if type(x) is DeviceArray:
        return run(kernels.floor_divide, (x, y), (whole(dtype),))
    return run(kernels.floor_divide_flipped, (y, x), (whole(dtype),))


@register("cuda", "Pow", half="native")
def power(x: Any, y: Any) -> DeviceArray:
    if y.dtype.kind not in "iu":
        return run(kernels.power, (x, y))
    if driver().emulated and (y.numpy() < 0).any():  # on a GPU the host would have to wait for the values
        raise ValueError("Integers to negative integer powers are not allowed.")
    return run(kernels.power_integers, (x, y))


@register("cuda", "PowScalar")
def power_of_number(x: DeviceArray, *, exponent: float) -> DeviceArray:
    if exponent == 2:
        return run(kernels.square, (x,))
    if x.dtype.kind in "iu":
        return run(kernels.power_integers, (x,), (np.int64(exponent),))
    return run(kernels.sqrt, (x,)) if exponent == 0.5 else run(kernels.power, (x, exponent))


@register("cuda", "Clamp", half="native")
def clamp(x: DeviceArray, *, min: float | None, max: float | None) -> DeviceArray:
    lowest, highest = (0, 1) if x.dtype == BOOL else (-np.inf, np.inf)
    if x.dtype.kind in "iu":
        lowest, highest = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    bounds = [lowest if min is None else min, highest if max is None else max]
    if x.dtype.kind in "iub":
        bounds = [lowest if b < lowest else highest if b > highest else b for b in bounds]
    return run(kernels.clamp, (x,), tuple([as_scalar(b, x.dtype) for b in bounds]))


@register("cuda", "Where", half="native")
def where(condition: DeviceArray, x: Any, y: Any) -> DeviceArray:
    """Elements are only moved: as the unsigned integers that their bits are."""
    dtype = x.dtype if type(x) is DeviceArray else y.dtype
    x, y = [bits(v) if type(v) is DeviceArray else as_bits(v, dtype) for v in (x, y)]
    if type(y) is not DeviceArray:
        result = apply(kernels.where, [bits(condition), x], x.dtype, [y])
    elif type(x) is not DeviceArray:
        result = apply(kernels.where_number_first, [bits(condition), y], y.dtype, [x])
    else:
        result = apply(kernels.where, [bits(condition), x, y], x.dtype)
    return result.view(lambda a: a.view(dtype))
