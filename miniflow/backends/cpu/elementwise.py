"""Pointwise kernels that are one NumPy ufunc each, and a few that are two.

NumPy's loops are vectorized (also exp, log, tanh in float32), broadcast, and take any strides.
"""

import numpy as np

from miniflow.backends.registry import register

UFUNCS = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.true_divide,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Neg": np.negative,
    "Abs": np.absolute,
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tanh": np.tanh,
    "Sign": np.sign,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Trunc": np.trunc,
    "Round": np.rint,
    "Eq": np.equal,
    "Ne": np.not_equal,
    "Lt": np.less,
    "Le": np.less_equal,
    "Gt": np.greater,
    "Ge": np.greater_equal,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "LogicalXor": np.logical_xor,
    "LogicalNot": np.logical_not,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "BitwiseLeftShift": np.left_shift,
    "BitwiseRightShift": np.right_shift,
    "BitwiseNot": np.invert,
    "Isnan": np.isnan,
    "Isinf": np.isinf,
    "Isfinite": np.isfinite,
}

for _name, _ufunc in UFUNCS.items():
    register("cpu", _name, half="native")(_ufunc)


def _of_numbers(ufunc):
    """A ufunc that answers int8 to bools, as a kernel that refuses them."""

    def kernel(x, y):
        result = ufunc(x, y)
        if result.dtype == np.int8 and np.int8 not in (getattr(x, "dtype", None), getattr(y, "dtype", None)):
            raise TypeError("there is no such arithmetic on bools")
        return result

    return kernel


for _name, _ufunc in {"FloorDivide": np.floor_divide, "Remainder": np.remainder, "Pow": np.power}.items():
    register("cpu", _name, half="native")(_of_numbers(_ufunc))


@register("cpu", "Where", half="native")
def where(condition, x, y):
    if condition.dtype != np.bool_:  # NumPy would take any number as a truth value
        raise TypeError("the condition is not bool")
    dtype = x.dtype if isinstance(x, np.ndarray) else y.dtype  # NumPy would widen bfloat16 beside a Python number
    return np.where(condition, np.asarray(x, dtype), np.asarray(y, dtype))


@register("cpu", "Clamp", half="native")
def clamp(x, *, min, max):
    return np.clip(x, min, max, dtype=x.dtype)


@register("cpu", "Rsqrt")
def rsqrt(x):
    return np.reciprocal(np.sqrt(x))


@register("cpu", "PowScalar")
def pow_scalar(x, *, exponent):
    if exponent == 2:
        return np.square(x)
    if exponent == 0.5:
        return np.sqrt(x)
    return np.power(x, exponent, dtype=x.dtype)


@register("cpu", "Cast", half="native")
def cast(x, *, dtype):
    return x.astype(dtype)


@register("cpu", "ToInteger", half="native")
def to_integer(x, *, dtype):
    with np.errstate(invalid="ignore"):
        return x.astype(dtype)
