"""The functions that generated loops on the CPU call.

These are functions of `formulas.scalar` that numba lacks, or for which it calls the C library for each element. Half
precision is computed in float32, and stored as uint16.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic
from numpy import ceil, floor, rint, trunc

from miniflow.formulas.gamma import digamma, zeta
from miniflow.hostcuda.transcendental import erf, exp, log, tanh

__all__ = [
    "ceil", "cfunc", "clear_flags", "digamma", "erf", "exp", "expm1", "floor", "log", "log1p", "narrow_bfloat16",
    "narrow_float16", "rint", "round_bfloat16", "round_float16", "tanh", "trunc", "where", "widen_bfloat16",
    "widen_float16", "zeta",
]  # fmt: skip

exactly = njit(error_model="numpy", fastmath=False)
clear_flags = types.ExternalFunction("feclearexcept", types.int32(types.int32))
"""Of the C library: for the floating-point flags that it clears NumPy issues no warning."""


# half precision


@intrinsic
def widen_float16(typingctx, bits):
    """The value of a float16 as a float32."""

    def codegen(context, builder, signature, args):
        return builder.fpext(builder.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), codegen


@intrinsic
def narrow_float16(typingctx, x):
    """The bits of the float16 nearest to a float32."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


@exactly
def round_float16(x):
    return widen_float16(narrow_float16(x))


@exactly
def widen_bfloat16(bits):
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@exactly
def narrow_bfloat16(x):
    """The upper half of the bits, halves rounded to even. NaN stays NaN."""
    word = np.float32(x).view(np.uint32)
    last = np.uint32(word >> np.uint32(16)) & np.uint32(1)
    rounded = np.uint32(word + np.uint32(last + np.uint32(0x7FFF)))
    quiet = np.uint32(word | np.uint32(0x00400000))
    return np.uint16((quiet if x != x else rounded) >> np.uint32(16))


@exactly
def round_bfloat16(x):
    return widen_bfloat16(narrow_bfloat16(x))


# functions


@exactly
def where(condition, x, y):
    return x if condition else y


@exactly
def log1p(x):
    """log(1 + x) by W. Kahan's correction: the quotient makes up for what 1 + x rounds away."""
    one = type(x)(1)
    w = one + x
    d = w - one
    y = log(w) * (x / d)
    return x if (d == type(x)(0)) | ((w > one) & (w == w + w)) else y


@exactly
def expm1(x):
    """e^x - 1, by W. Kahan's correction."""
    one = type(x)(1)
    w = exp(x)
    d = w - one
    y = d * (x / log(w))
    return x if w == one else d if (d == -one) | ((w > one) & (w == w + w)) else y
