"""Floats as a GPU has them: float16, for which numba on CPUs has nothing but the type, and conversion to integers.

The types of results are those of numba-cuda: float16 with float16, int8 or bool gives float16, rounded after each
operation (a GPU may fuse a product and a sum); with anything else what float32 would give. `//`, `%`, `**` and most of
`math` compute in float32.

Conversions to integers are those of a GPU in generated code and in this package; elsewhere numba's own stand. PTX's
`cvt.rzi` truncates, and saturates to the limits of the integer type; NaN becomes 0, or the lowest bit pattern with the
sign bit set if either type has 64 bits. There is none to 8 bits: numba-cuda converts to 16 and drops the rest. (PTX
ISA, "cvt".) Explicit casts, stores into arrays and records, and operands of atomics all come here. numba-cuda converts
float16 by `cvt.rni`, which rounds to the nearest, ties to even, and `round(x)` too.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.boxing import unbox_float
from numba.core.datamodel import models
from numba.core.datamodel.registry import default_manager
from numba.core.pythonapi import NativeValue, _unboxers
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.cpython.mathimpl import registry
from numba.cpython.numbers import float_to_integer
from numba.extending import intrinsic

HALF, SINGLE, BITS = ir.HalfType(), ir.FloatType(), ir.IntType(32)
HALF_OPERANDS = {types.float16, types.int8, types.boolean}  # what stays in half precision beside a float16
ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": np.divide}
COMPARISONS = "eq ne lt le gt ge".split()
ROUNDED = (
    *(operator.neg, operator.pos, abs, math.sin, math.cos, math.sqrt, math.fabs, math.log2, math.log10),
    *([math.exp2] if hasattr(math, "exp2") else []),  # Python 3.11
    *(np.floor, np.ceil, np.trunc, np.exp2),  # the names of math.floor and its like in generated code
)
"""Functions of float16 that are computed in float32 and rounded."""


lower_builtin, lower_cast = registry.lower, registry.lower_cast
"""For CPUs alone: numba-cuda takes what others add to numba's registry of builtins, too."""


class FloatModel(models.PrimitiveModel):
    """numba's, and that of float16."""

    def __init__(self, dmm: Any, fe_type: types.Float):
        super().__init__(dmm, fe_type, {16: HALF, 32: SINGLE, 64: ir.DoubleType()}[fe_type.bitwidth])


default_manager.register(types.Float, FloatModel)


def unbox(kind: types.Float, obj: Any, c: Any) -> NativeValue:
    """A scalar argument of a launch."""
    wide = unbox_float(types.float64, obj, c)
    return NativeValue(c.context.cast(c.builder, wide.value, types.float64, kind), is_error=wide.is_error)


_unboxers.functions[types.Float] = unbox


def llvm(builder: Any, name: str, *args: Any) -> Any:
    """The call of an LLVM intrinsic that is overloaded by the type of its first argument, and gives that type."""
    kind = args[0].type
    function = ir.FunctionType(kind, [arg.type for arg in args])
    return builder.call(builder.module.declare_intrinsic(f"llvm.{name}", [kind], function), args)


@lower_cast(types.float64, types.float16)
def narrowed(context: Any, builder: Any, source: types.Type, target: types.Type, value: Any) -> Any:
    """Rounded to odd in float32 first, so that rounding twice is as rounding once (LLVM's own would be a call)."""
    single = builder.fptrunc(value, SINGLE)
    word, back = builder.bitcast(single, BITS), builder.fpext(single, value.type)
    smaller = builder.fcmp_ordered("<", llvm(builder, "fabs", back), llvm(builder, "fabs", value))
    even = builder.icmp_signed("==", builder.and_(word, BITS(1)), BITS(0))
    inexact = builder.and_(even, builder.fcmp_ordered("!=", back, value))
    odd = builder.add(word, builder.select(smaller, BITS(1), BITS(-1)))
    return builder.fptrunc(builder.bitcast(builder.select(inexact, odd, word), SINGLE), HALF)


@intrinsic
def half_of(typingctx, bits):
    """The float16 with the bits of an int16."""
    return types.float16(types.int16), lambda context, builder, signature, args: builder.bitcast(args[0], HALF)


def _typed(function: Callable, result: types.Type) -> None:
    """Let `function` of operands in OWN, one of them a float16, have such a result; before numba's own rules."""

    @infer_global(function)
    class Template(AbstractTemplate):
        metadata = {"target": "cpu"}  # numba tries what is made for a target first

        def generic(self, args: tuple, kws: dict) -> Any:
            if types.float16 in args and HALF_OPERANDS.issuperset(args) and not kws:
                return signature(result, *[types.float16] * len(args))
            return None


@lower_builtin(int, types.float16)
def to_integer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """`int(x)`."""
    return context.cast(builder, args[0], *sig.args, sig.return_type)


def _through_float32(function: Callable, of_float32: Callable, operands: int = 1) -> None:
    """Compute a function of float16 in float32, and round: as if + - * / were rounded once (Figueroa, 1995)."""

    def implementation(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        one = lambda x: np.float16(of_float32(np.float32(x)))  # noqa: E731
        two = lambda x, y: np.float16(of_float32(np.float32(x), np.float32(y)))  # noqa: E731
        return context.compile_internal(builder, (one, two)[operands - 1], sig, args)

    _typed(function, types.float16)
    lower_builtin(function, *[types.float16] * operands)(implementation)


for _name, _function in ARITHMETIC.items():
    _through_float32(getattr(operator, _name), _function, 2)
    _through_float32(getattr(operator, f"i{_name}"), _function, 2)
for _name in COMPARISONS:
    _typed(getattr(operator, _name), types.boolean)
for _function, _result in ((float, types.float16), (int, types.int64), (bool, types.boolean)):
    _typed(_function, _result)
for _function in ROUNDED:
    _through_float32(_function, _function)


# conversion to integers

DEVICE_CODE = ("miniflow_hostcuda", "8miniflow8hostcuda")
"""What is in the mangled names of functions of generated modules, and of this package."""


@lower_cast(types.float16, types.Integer)
@lower_cast(types.float32, types.Integer)
@lower_cast(types.float64, types.Integer)
def convert(context: Any, builder: Any, source: types.Float, target: types.Integer, value: Any) -> Any:
    """Conversion as on a GPU. Selects replace what does not fit; they vectorise, unlike `llvm.fptosi.sat`."""
    if not any(part in builder.function.name for part in DEVICE_CODE):
        return float_to_integer(context, builder, source, target, value)
    half = source.bitwidth == 16
    if half:
        value = llvm(builder, "rint", builder.fpext(value, SINGLE))
    word, signed = ir.IntType(target.bitwidth if half else max(target.bitwidth, 16)), target.signed
    end = 2.0 ** (word.width - signed)
    lowest, highest = word(-int(end) * signed), word(int(end) - 1)
    bound = (">=", value, value.type(-end)) if signed else (">", value, value.type(-1.0))
    result = builder.fptosi(value, word) if signed else builder.fptoui(value, word)
    result = builder.select(builder.fcmp_ordered(">=", value, value.type(end)), highest, result)
    result = builder.select(builder.fcmp_ordered(*bound), result, lowest)  # NaN does not fit
    if signed != (64 in (source.bitwidth, target.bitwidth)):
        nan = word(0 if signed else int(end) // 2)
        result = builder.select(builder.fcmp_unordered("uno", value, value), nan, result)
    return builder.trunc(result, ir.IntType(8)) if target.bitwidth < word.width else result
