"""Pointwise arithmetic: the scalar functions, which `pointwise` makes kernels of.

Index picture: see `pointwise`; thread i owns element i of the result, reads one element of each operand, writes one.

numba types as C++ does, with wider integers: an operation on small integers is one of int64, cut to the element's width
when it is stored, so that overflow wraps around; float32 with an int or with a Python float would be one of float64,
ten to sixty times slower on a GPU. That is why constants here are made in the type of an operand, `type(x)(0.5)`.
"""

from __future__ import annotations

import math

import numpy as np

from miniflow.hostcuda import cuda

device = cuda.jit(device=True)

# arithmetic


@device
def add(x, y):
    """x + y"""
    return x + y


@device
def sub(x, y):
    """x - y"""
    return x - y


@device
def mul(x, y):
    """x * y"""
    return x * y


@device
def div(x, y):
    """x / y"""
    return x / y


@device
def neg(x):
    """-x"""
    return -x


@device
def absolute(x):
    """|x|"""
    return abs(x)


@device
def maximum(x, y):
    """The larger; NaN if either is NaN: then no comparison holds, and x != x only for the NaN itself."""
    return x if x > y or x != x else y


@device
def minimum(x, y):
    """The smaller; NaN if either is NaN."""
    return x if x < y or x != x else y


@device
def clamp(x, low, high):
    """min(max(x, low), high); NaN stays NaN."""
    x = low if x < low else x
    return high if x > high else x


@device
def sign(x):
    """-1, 0 or 1; NaN stays NaN."""
    return type(x)(1) if x > 0 else type(x)(-1) if x < 0 else x


@device
def where(condition, x, y):
    """x where the condition is not 0, else y."""
    return x if condition != 0 else y


@device
def where_number_first(condition, y, number):
    """`number` where the condition is not 0, else y."""
    return number if condition != 0 else y


# division with a remainder, as NumPy does it


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
def floor_divide(x, y, whole):
    """floor(x / y): (x - remainder) / y, which is whole but for rounding. `whole`: see `nearest`."""
    if y == 0:
        return x / y
    r = math.fmod(x, y)
    quotient = (x - r) / y
    if r != 0 and (r < 0) != (y < 0):
        quotient -= type(x)(1)
    if quotient == 0:
        return math.copysign(quotient, x / y)
    below = floor(quotient, whole)
    return below + type(x)(1) if quotient - below > type(x)(0.5) else below


@device
def floor_divide_flipped(y, x, whole):
    """floor(x / y) with the number x second."""
    return floor_divide(x, y, whole)


# to whole numbers


@device
def nearest(x, whole):
    """The nearest whole number, halves to even.

    `whole` is 2^23 in float32, 2^52 in float64: numbers from there on have no bits for a fraction, so that adding it
    rounds as IEEE 754 does. C has a function for it, but numba gives an int64, which cannot hold 1e30 or NaN.
    """
    size = abs(x)
    return math.copysign((size + whole) - whole, x) if size < whole else x


@device
def floor(x, whole):
    """The largest whole number not above x. `whole`: see `nearest`."""
    n = nearest(x, whole)
    return n - type(x)(1) if n > x else n


@device
def ceil(x, whole):
    """The smallest whole number not below x, -0.0 from -0.5. `whole`: see `nearest`."""
    n = nearest(x, whole)
    return math.copysign(n + type(x)(1), x) if n < x else n


@device
def trunc(x, whole):
    """x without its fraction. `whole`: see `nearest`."""
    return math.copysign(floor(abs(x), whole), x)


# functions


@device
def exp(x):
    """e^x"""
    return math.exp(x)


@device
def log(x):
    """The natural logarithm."""
    return math.log(x)


@device
def sqrt(x):
    """The square root."""
    return math.sqrt(x)


@device
def rsqrt(x):
    """1 / sqrt(x)"""
    return type(x)(1) / math.sqrt(x)


@device
def sin(x):
    """sin x"""
    return math.sin(x)


@device
def cos(x):
    """cos x"""
    return math.cos(x)


@device
def tanh(x):
    """tanh x"""
    return math.tanh(x)


@device
def square(x):
    """x^2"""
    return x * x


@device
def power(x, exponent):
    """x^exponent"""
    return math.pow(x, exponent)


@device
def power_integers(x, exponent):
    """x^exponent for exponent >= 0 by repeated squaring: x^13 = x^8 x^4 x^1; it wraps around as x * x * ... does."""
    base, rest, result = np.int64(x), np.int64(exponent), np.int64(1)
    while rest > 0:
        if rest & 1:
            result *= base
        base *= base
        rest >>= 1
    return result


# predicates; their results are bools


@device
def eq(x, y):
    """x == y"""
    return x == y


@device
def ne(x, y):
    """x != y"""
    return x != y


@device
def lt(x, y):
    """x < y"""
    return x < y


@device
def le(x, y):
    """x <= y"""
    return x <= y


@device
def gt(x, y):
    """x > y"""
    return x > y


@device
def ge(x, y):
    """x >= y"""
    return x >= y


@device
def logical_and(x, y):
    """x and y, taken as truth values"""
    return (x != 0) & (y != 0)


@device
def logical_or(x, y):
    """x or y, taken as truth values"""
    return (x != 0) | (y != 0)


@device
def logical_xor(x, y):
    """Exactly one of x and y, taken as truth values."""
    return (x != 0) != (y != 0)


@device
def logical_not(x):
    """Whether x is 0."""
    return x == 0


@device
def isfinite(x):
    """Whether x is neither NaN nor infinite: inf - inf is NaN, and NaN equals nothing."""
    return x - x == 0


@device
def isinf(x):
    """Whether x is infinite."""
    return (x == x) & (x - x != 0)


@device
def isnan(x):
    """Whether x is NaN, the only value that differs from itself."""
    return x != x


# bits


@device
def bitwise_and(x, y):
    """x & y"""
    return x & y


@device
def bitwise_or(x, y):
    """x | y"""
    return x | y


@device
def bitwise_xor(x, y):
    """x ^ y"""
    return x ^ y


@device
def bitwise_not(x):
    """~x"""
    return ~x


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
