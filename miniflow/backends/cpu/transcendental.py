"""exp, erf and tanh for compiled loops, written so that LLVM can turn the loop into vector instructions.

numba's own `math.exp` and its kin are scalar calls into the C library: 5 to 15 ns an element. In float32 the functions
here are branch-free polynomials and quotients of polynomials, 0.3 to 0.6 ns an element, with errors of at most 4e-7
relative. In float64 they are the C library's. NaN and the infinities come out as IEEE 754 has them.

The range reduction of `exp` follows Cephes (S. Moshier, Methods and Programs for Mathematical Functions, 1989); the
coefficients were fitted in float64 by iteratively reweighted least squares on the relative error.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

f32 = np.float32
CONTRACT = {"fastmath": {"contract"}}  # only a * b + c -> fma: the range reduction of exp must not be reassociated

LOG2_E = f32(1.4426950408889634)
LN2_HIGH, LN2_LOW = f32(0.693359375), f32(-2.12194440e-4)  # their sum is ln 2; n * LN2_HIGH is exact
ROUND = f32(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits
ROUND_BITS = np.int32(0x4B400000)
EXP_LOW, EXP_HIGH = f32(-104.0), f32(89.0)  # beyond: 0 and inf
EXP_ZERO = f32(-88.0)  # here n = -127, and the exponent bits of 2^n are all zero: 2^n comes out as 0
BIAS, MANTISSA_BITS, INT_ONE = np.int32(127), np.int32(23), np.int32(1)
E2, E3, E4, E5, E6 = f32(0.499999996), f32(0.166665773), f32(0.0416668534), f32(0.00836314492), f32(0.00139012858)

ERF_LIMIT = f32(3.92)  # erf rounds to 1 in float32 from here on
A0, A1, A2 = f32(1.12837915), f32(0.190407487), f32(0.0527488638)
A3, A4, A5 = f32(0.00376566177), f32(0.000284883891), f32(2.05008173e-06)
B1, B2, B3 = f32(0.502076983), f32(0.114109538), f32(0.0149693069)
B4, B5 = f32(0.00116254663), f32(3.8091718e-05)

TANH_LIMIT = f32(9.02)
C0, C1, C2, C3, C4 = f32(0.999999979), f32(0.133797192), f32(0.00349403602), f32(2.05835043e-05), f32(1.33191018e-08)
D1, D2, D3, D4 = f32(0.467130344), f32(0.0258710788), f32(0.000328309518), f32(7.76203211e-07)

ONE = f32(1.0)


def exp(x: float) -> float:
    """e^x."""
    return math.exp(x)


def exp_nonpositive(x: float) -> float:
    """e^x for x <= 0, in two thirds of the time of `exp`; float32 results below 2^-126.5 are 0."""
    return math.exp(x)


def erf(x: float) -> float:
    """2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt."""
    return math.erf(x)


def tanh(x: float) -> float:
    """(e^x - e^-x) / (e^x + e^-x)."""
    return math.tanh(x)


def exp_float32(x):
    """x = n ln 2 + r with |r| <= ln 2 / 2; e^x = 2^n e^r. 2^n in two halves, so that denormals come out right."""
    x = EXP_LOW if x < EXP_LOW else x
    x = EXP_HIGH if x > EXP_HIGH else x
    shifted = f32(x * LOG2_E + ROUND)
    n = shifted - ROUND
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    y = ONE + r + r * r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * E6))))
    exponent = shifted.view(np.int32) - ROUND_BITS
    half = exponent >> INT_ONE
    first = np.int32((half + BIAS) << MANTISSA_BITS)
    second = np.int32((exponent - half + BIAS) << MANTISSA_BITS)
    return y * first.view(np.float32) * second.view(np.float32)


def exp_nonpositive_float32(x):
    x = EXP_ZERO if x < EXP_ZERO else x
    shifted = f32(x * LOG2_E + ROUND)
    n = shifted - ROUND
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    y = ONE + r + r * r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * E6))))
    power = np.int32((shifted.view(np.int32) - ROUND_BITS + BIAS) << MANTISSA_BITS)
    return y * power.view(np.float32)


def erf_float32(x):
    x = -ERF_LIMIT if x < -ERF_LIMIT else x
    x = ERF_LIMIT if x > ERF_LIMIT else x
    t = x * x
    p = A0 + t * (A1 + t * (A2 + t * (A3 + t * (A4 + t * A5))))
    q = ONE + t * (B1 + t * (B2 + t * (B3 + t * (B4 + t * B5))))
    y = x * p / q
    y = -ONE if x == -ERF_LIMIT or y < -ONE else y
    return ONE if x == ERF_LIMIT or y > ONE else y


def tanh_float32(x):
    x = -TANH_LIMIT if x < -TANH_LIMIT else x
    x = TANH_LIMIT if x > TANH_LIMIT else x
    t = x * x
    y = x * (C0 + t * (C1 + t * (C2 + t * (C3 + t * C4)))) / (ONE + t * (D1 + t * (D2 + t * (D3 + t * D4))))
    y = -ONE if x == -TANH_LIMIT or y < -ONE else y
    return ONE if x == TANH_LIMIT or y > ONE else y


@overload(exp, jit_options=CONTRACT)
def _exp(x):
    return exp_float32 if x == types.float32 else lambda x: math.exp(x)


@overload(exp_nonpositive, jit_options=CONTRACT)
def _exp_nonpositive(x):
    return exp_nonpositive_float32 if x == types.float32 else lambda x: math.exp(x)


@overload(erf, jit_options=CONTRACT)
def _erf(x):
    return erf_float32 if x == types.float32 else lambda x: math.erf(x)


@overload(tanh, jit_options=CONTRACT)
def _tanh(x):
    return tanh_float32 if x == types.float32 else lambda x: math.tanh(x)
