"""The digamma and the Hurwitz zeta function, in scalars that numba compiles for any device.

Both shift their operand up to `LARGE` by the recurrence relation, and use the asymptotic series there: Abramowitz and
Stegun, "Handbook of Mathematical Functions", 6.3.5 and 6.3.18; Edwards, "Riemann's Zeta Function", 6.4 (the summation
of Euler and Maclaurin). Constants are created in the type of an operand, so that float32 stays float32.
"""

from __future__ import annotations

import math
from fractions import Fraction

from numba import njit

LARGE = 10.0
ALL_WHOLE = 2.0**53  # numbers above have no fraction
TINY = 2.0**-55
BERNOULLI = [Fraction(*pair) for pair in (
    (1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798), (-174611, 330)
)]  # fmt: skip
OF_DIGAMMA = tuple([float(b / (2 * j)) for j, b in enumerate(BERNOULLI[:8], 1)])  # B_2j / 2j
OF_ZETA = tuple([float(b / math.factorial(2 * j)) for j, b in enumerate(BERNOULLI, 1)])  # B_2j / (2j)!


compiled = njit(error_model="numpy", fastmath=False)
"""Decorates a part: without `fastmath` it would take the caller's, and round differently in different callers."""


@compiled
def digamma(x):
    """The derivative of log gamma(x): log x - 1 / 2x - sum of B_2j / (2j x^2j) for large x; NaN at -1, -2, ..."""
    one, result = type(x)(1.0), type(x)(0.0)
    if x == result:
        return -one / x
    if x < result:  # psi(x) = psi(1 - x) - pi / tan(pi x)
        fraction = from_nearest(x)
        if fraction == result:
            return type(x)(math.nan)
        result = -type(x)(math.pi) / type(x)(math.tan(type(x)(math.pi) * fraction))
        x = one - x
    while x < type(x)(LARGE):
        result -= one / x
        x += one
    square = one / (x * x)
    power = square
    result += type(x)(math.log(x)) - type(x)(0.5) / x
    for j in range(8):
        result -= type(x)(OF_DIGAMMA[j]) * power
        power *= square
    return result


@compiled
def from_nearest(x):
    """x minus the nearest whole number; 0 for infinity."""
    if abs(x) > type(x)(ALL_WHOLE):
        return type(x)(0.0)
    return x - type(x)(math.floor(x + type(x)(0.5)))


@compiled
def inverse_power(q, s):
    """q ** -s. For s = 2, 3, ... 8, by products: what LLVM makes of `pow` depends on whether it knows s."""
    if s > type(q)(8.0) or from_nearest(s) != type(q)(0.0):
        return type(q)(math.pow(q, -s))
    product = q
    for _ in range(int(s) - 1):
        product *= q
    return type(q)(1.0) / product


@compiled
def zeta_of_positive(s, q):
    """`zeta` for s > 1 and q > 0."""
    total, power = type(q)(0.0), inverse_power(q, s)
    while q < type(q)(LARGE) + s:
        total += power
        if power <= total * type(q)(TINY):
            return total
        q += type(q)(1.0)
        power = inverse_power(q, s)
    if power == type(q)(0.0):  # q may be infinite
        return total
    total += power * (q / (s - type(q)(1.0)) + type(q)(0.5))
    power *= s / q
    for j in range(10):  # power is s (s + 1) ... (s + 2j) / q^(s + 2j + 1)
        total += type(q)(OF_ZETA[j]) * power
        power *= (s + type(q)(2 * j + 1)) * (s + type(q)(2 * j + 2)) / (q * q)
    return total


@compiled
def zeta(s, q):
    """The sum of (q + k)^-s over k = 0, 1, ...: inf at the poles s = 1 and q = 0, -1, ...; NaN for s < 1.

    For negative q the powers are real only if s is an integer; otherwise the result is NaN.
    """
    one, s = type(q)(1.0), type(q)(s)
    if s == one:
        return type(q)(math.inf)
    if not s > one:
        return type(q)(math.nan)
    if not q <= type(q)(0.0):
        return zeta_of_positive(s, q)
    if from_nearest(q) == type(q)(0.0):
        return type(q)(math.inf)
    if from_nearest(s) != type(q)(0.0):
        return type(q)(math.nan)
    floor = type(q)(math.floor(q))  # the least positive q + k is q - floor; the negative ones end at q - floor - 1
    above, below = zeta_of_positive(s, q - floor), zeta_of_positive(s, floor + one - q)
    missing = zeta_of_positive(
        s, one - q
    )  # the negative q + k are those of `below` but for these, whose sum may be small beside it
    return above + below - missing if from_nearest(s * type(q)(0.5)) == type(q)(0.0) else above - below + missing
