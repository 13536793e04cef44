"""Functions of one element for CUDA kernels: those of `formulas.scalar` that are more than an operator of Python.

numba types as C++ does, with wider integers: an operation on small integers is one of int64, cut to the element's width
when it is stored, so that overflow wraps around; float32 with an int or with a Python float would be one of float64,
ten to sixty times slower on a GPU. That is why constants are made in the type of an operand, `type(x)(0.5)`.
"""

from __future__ import annotations

import math
from math import erf, exp, expm1, log, log1p, tanh  # noqa: F401
from math import pow as power  # noqa: F401

import numpy as np

from miniflow.formulas.gamma import digamma, zeta  # noqa: F401
from miniflow.hostcuda import cuda

device = cuda.jit(device=True)


@device
def where(condition, x, y):
    """x where the condition holds, else y."""
    return x if condition else y


@device
def floor_divide_integers(x, y):
    """floor(x / y); 0 for y = 0. A CPU traps the one quotient that overflows, the smallest integer over -1."""
    x, y = np.int64(x), np.int64(y)
    if y == 0:
        return np.int64(0)
    return -x if y == -1 else x // y


@device
def remainder_integers(x, y):
    """x - floor(x / y) y, which has the sign of y; 0 for y = 0."""
    x, y = np.int64(x), np.int64(y)
    if y == 0 or y == -1:
        return np.int64(0)
    return x % y


@device
def remainder(x, y):
    """x - floor(x / y) y, exact: C's fmod has the sign of x, and is moved by y if that is the wrong one."""
    r = math.fmod(x, y)
    if r == 0:
        return math.copysign(r, y) if y != 0 else r
    return r + y if (r < 0) != (y < 0) else r


@device
def floor_divide(x, y):
    """floor(x / y): (x - remainder) / y, which is whole but for rounding."""
    if y == 0:
        return x / y
    r = math.fmod(x, y)
    quotient = (x - r) / y
    if r != 0 and (r < 0) != (y < 0):
        quotient -= type(x)(1)
    if quotient == 0:
        return math.copysign(quotient, x / y)
    below = floor(quotient)
    return below + type(x)(1) if quotient - below > type(x)(0.5) else below


@device
def no_fraction(x):
    """2^23 for float32, which has no 2^24 + 1, else 2^52: numbers from there on have no bits for a fraction."""
    is_single = type(x)(16777217.0) == type(x)(16777216.0)
    return type(x)(8388608.0) if is_single else type(x)(4503599627370496.0)


@device
def rint(x):
    """The nearest whole number, halves to even.

    Adding and subtracting a number that has no bits for a fraction rounds as IEEE 754 does. C has a
    function for it, but numba gives an int64, which cannot hold 1e30 or NaN.
    """
    size, whole = abs(x), no_fraction(x)
    return math.copysign((size + whole) - whole, x) if size < whole else x


@device
def floor(x):
    """The largest whole number not above x."""
    n = rint(x)
    return n - type(x)(1) if n > x else n


@device
def ceil(x):
    """The smallest whole number not below x, -0.0 from -0.5."""
    n = rint(x)
    return math.copysign(n + type(x)(1), x) if n < x else n


@device
def trunc(x):
    """x without its fraction."""
    return math.copysign(floor(abs(x)), x)


@device
def power_integers(x, exponent):
    """x^exponent by repeated squaring: x^13 = x^8 x^4 x^1; it wraps around as x * x * ... does.

    With a negative exponent only 1 and -1 have integers as powers; others give 0.
    """
    if exponent < 0:
        one = np.int64(exponent & 1)
        return np.int64(1) if x == 1 else np.int64(1) - 2 * one if x == -1 else np.int64(0)
    base, rest, result = np.int64(x), np.int64(exponent), np.int64(1)
    while rest > 0:
        if rest & 1:
            result *= base
        base *= base
        rest >>= 1
    return result


@device
def left_shift(x, y):
    """x 2^y; 0 if y is negative or as large as the integer is wide, where C says nothing."""
    x, y = np.int64(x), np.int64(y)
    return x << y if 0 <= y < 64 else np.int64(0)


@device
def right_shift(x, y):
    """floor(x / 2^y); all bits are the sign if y is negative or as large as the integer is wide."""
    x, y = np.int64(x), np.int64(y)
    if 0 <= y < 64:
        return x >> y
    return np.int64(-1) if x < 0 else np.int64(0)


@device
def trunc_divide_integers(x, y):
    """x / y without its fraction; 0 for y = 0."""
    x, y = np.int64(x), np.int64(y)
    if y == 0:
        return np.int64(0)
    if y == -1:
        return -x
    quotient = x // y
    return quotient + 1 if (x < 0) != (y < 0) and quotient * y != x else quotient
