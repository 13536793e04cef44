"""Pointwise kernels that are one NumPy ufunc each, and a few that are two.

NumPy's loops are vectorized (also exp, log, tanh in float32), broadcast, and take any strides.
"""

import numpy as np

from miniflow.backends.registry import EVERY, register, register_into

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


def _into(ufunc):
    def into(out, *inputs):
        ufunc(*inputs, out=out)

    into.ufunc = ufunc
    return into


for _name, _ufunc in UFUNCS.items():
    register("cpu", _name, half="native")(_ufunc)
    register_into("cpu", _name, EVERY, half="native")(_into(_ufunc))


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


@register_into("cpu", "Where", (2,), half="native")
def where_into(out, condition, x, y):
    np.copyto(out, y, casting="unsafe")
    np.copyto(out, x, casting="unsafe", where=condition)


@register("cpu", "Clamp")
def clamp(x, *, min, max):
    return np.clip(x, min, max, dtype=x.dtype)


@register_into("cpu", "Clamp", (0,))
def clamp_into(out, x, *, min, max):
    np.clip(x, min, max, out=out, dtype=x.dtype)


@register("cpu", "Rsqrt")
def rsqrt(x):
    return np.reciprocal(np.sqrt(x))


@register_into("cpu", "Rsqrt", (0,))
def rsqrt_into(out, x):
    np.reciprocal(np.sqrt(x, out=out), out=out)


@register("cpu", "PowScalar")
def pow_scalar(x, *, exponent):
    if exponent == 2:
        return np.square(x)
    if exponent == 0.5:
        return np.sqrt(x)
    return np.power(x, exponent, dtype=x.dtype)


@register_into("cpu", "PowScalar", (0,))
def pow_scalar_into(out, x, *, exponent):
    if exponent == 2:
        np.square(x, out=out)
    elif exponent == 0.5:
        np.sqrt(x, out=out)
    else:
        np.power(x, exponent, out=out, dtype=x.dtype)


@register("cpu", "Cast", half="native")
def cast(x, *, dtype):
    return x.astype(dtype)


@register_into("cpu", "Cast", half="native")
def cast_into(out, x, *, dtype):
    np.copyto(out, x, casting="unsafe")


@register("cpu", "ToInteger", half="native")
def to_integer(x, *, dtype):
    with np.errstate(invalid="ignore"):
        return x.astype(dtype)
