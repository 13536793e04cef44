"""Functions of numbers that CUDA has and numba for CPUs has not, or has otherwise; and CUDA's vector types."""

from __future__ import annotations

import builtins
import math
from collections import namedtuple
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from miniflow.hostcuda.floats import llvm
from miniflow.hostcuda.intrinsic import VECTORS

FLOATS = {types.float32, types.float64}

# bits


def _bits(name, result_of=lambda kind: kind):
    @intrinsic
    def compute(typingctx, x):
        if not isinstance(x, types.Integer):
            return None
        result = result_of(x)

        def codegen(context, builder, signature, args):
            flag = [ir.IntType(1)(0)] if name in ("ctlz", "cttz") else []  # zero is a defined input
            count = llvm(builder, name, *args, *flag)
            if name == "cttz":  # counted from 1
                is_zero = builder.icmp_signed("==", args[0], count.type(0))
                count = builder.select(is_zero, count.type(0), builder.add(count, count.type(1)))
            return context.cast(builder, count, types.Integer.from_bitwidth(x.bitwidth, signed=False), result)

        return result(x), codegen

    return compute


popc = _bits("ctpop")  # the number of one bits
brev = _bits("bitreverse")  # the bits in reverse order
clz = _bits("ctlz")  # the number of zero bits before the first one bit
ffs = _bits("cttz", lambda kind: types.uint32)  # the position of the least significant one bit from 1; 0 for 0


# numbers


FORMULAS = {
    "selp": lambda condition, x, y: x if condition else y,  # without a branch
    "rsqrt": lambda x: type(x)(1.0) / math.sqrt(x),
    "cbrt": lambda x: np.cbrt(x),
    "fmod": lambda x, y: np.fmod(x, y),
    "sincos": lambda x: (math.sin(x), math.cos(x)),
}
ROUNDED = {"add_rn": lambda x, y: x + y, "sub_rn": lambda x, y: x - y, "mul_rn": lambda x, y: x * y}
"""Rounded to nearest, and not contracted with what follows."""
globals().update({name: njit(formula) for name, formula in FORMULAS.items()})
globals().update({name: njit(fastmath=False)(formula) for name, formula in ROUNDED.items()})  # else the caller's


def _of_floats(instruction):
    """The LLVM intrinsic, of float32 if all operands are such, else of float64."""

    @intrinsic
    def compute(typingctx, *numbers):
        kind = types.float32 if {types.float32}.issuperset(numbers) else types.float64

        def codegen(context, builder, signature, args):
            values = zip(cgutils.unpack_tuple(builder, args[0]), numbers, strict=True)
            return llvm(builder, instruction, *(context.cast(builder, v, source, kind) for v, source in values))

        return kind(types.StarArgTuple(numbers)), codegen

    return compute


fma = _of_floats("fma")  # x * y + z, rounded once


def _extreme(of_numbers, of_floats):
    """`max` or `min`. Of two floats that which is not NaN, as on a GPU; of several numbers what Python finds."""

    def extreme(*numbers):
        return of_numbers(*numbers)

    @overload(extreme)
    def choose(*numbers):
        two = len(numbers) == 2 and FLOATS.issuperset(numbers)
        function = of_floats if two else of_numbers
        return lambda *numbers: function(*numbers)

    return extreme


max = _extreme(builtins.max, _of_floats("maxnum"))
min = _extreme(builtins.min, _of_floats("minnum"))


def round(number, ndigits=None):
    """Python's."""
    return builtins.round(number, ndigits)


@overload(round)
def _round(number, ndigits=None):
    if ndigits not in (None, types.none) and not isinstance(ndigits, types.Omitted):
        return lambda number, ndigits=None: builtins.round(number, ndigits)
    if number in FLOATS:  # as numba-cuda does it: of the float64, and saturated
        return lambda number, ndigits=None: np.int64(np.rint(np.float64(number)))
    return lambda number, ndigits=None: builtins.round(number)


@njit
def remainder(x, y):
    """x - n * y for the whole n nearest to x / y, even in a tie."""
    rest = np.fmod(x, y)
    twice = 2 * abs(rest)
    if twice > abs(y) or (twice == abs(y) and math.floor(abs(x / y)) % 2 == 1):
        rest -= math.copysign(abs(y), rest)
    return rest


@njit
def modf(x):
    """(fraction, whole part), both with the sign of x."""
    whole = np.trunc(x)
    return (math.copysign(0.0, x) if math.isinf(x) else math.copysign(x - whole, x)), whole


@njit
def round_away(x):
    """The nearest whole number; halves away from zero."""
    whole = np.trunc(x)
    return whole + math.copysign(type(x)(1), x) if abs(x - whole) >= 0.5 else whole


# the inverse of the error function, in float64


@njit(error_model="numpy")
def erfinv(x):
    """The number whose erf is x: S. Winitzki's approximation, then Newton's method for erf y = |x| = 1 - erfc y."""
    below = abs(x)
    above = 1 - below
    if not above > 0:
        return math.copysign(math.inf, x) if above == 0 else math.nan
    spread = math.log(above) + math.log1p(below)
    t = 2 / (math.pi * 0.147) + spread / 2
    y = math.sqrt(max(math.sqrt(t * t - spread / 0.147) - t, 0.0))
    for _ in range(4):
        if below < 0.5:
            missing = below - math.erf(y)
        else:  # in the logarithm, which is nearly a parabola
            missing = math.erfc(y) * math.log(math.erfc(y) / above)
        y += missing * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


# the vector types, `float32x4` and its like, as named tuples with the fields x, y, z and w


def _constructor(identifier: str) -> Callable:
    """The function that makes such a vector of numbers and shorter vectors, as `float32x4(float32x2(1, 2), 3, 4)`."""
    scalar, count = identifier.rsplit("x", 1)
    known = {"Vector": namedtuple(identifier, list("xyzw")[: int(count)]), "cast": getattr(np, scalar)}

    def construct(*args):
        raise NotImplementedError

    construct.__name__ = identifier

    @overload(construct)
    def choose(*args):
        parts = []
        for i, kind in enumerate(args):
            size = len(kind) if isinstance(kind, types.BaseTuple) else 0
            parts += [f"cast(args[{i}][{k}])" for k in range(size)] or [f"cast(args[{i}])"]
        return eval(f"lambda *args: Vector({', '.join(parts)})", known) if len(parts) == int(count) else None

    return construct


CONSTRUCTORS = {name: _constructor(name) for name in VECTORS}
globals().update(CONSTRUCTORS)
__all__ = [
    *CONSTRUCTORS, *FORMULAS, *ROUNDED, "popc", "brev", "clz", "ffs", "max", "min", "round", "fma", "modf",
    "remainder", "round_away", "erfinv",
]  # fmt: skip
