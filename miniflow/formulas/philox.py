"""Philox 4x32-10: random bits as a pure function of a key and a counter, in scalars that numba compiles for any device.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. There is no state to advance: a
draw is identified by `(seed, offset)`, and its block number `index` holds the 128 bits

    philox(counter = (index low, index high, offset low, offset high), key = (seed low, seed high))

so any thread, device or shard computes any element of a draw by itself, and all of them agree. Element i of a draw
takes 32 bits of block i // 4 (float32 and narrower) or 64 bits of block i // 2 (float64 and integers).

Words of 32 bits are held in uint64 scalars, because that is what vector units multiply. The functions are inlined into
the loop that calls them, and hold no branches, so that the loop vectorizes. They are plain scalar code: a `numba.cuda`
kernel can call them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import njit

MULTIPLIER_0, MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL_0, WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)  # the golden ratio and sqrt(3) - 1, as fractions of 2**32
LOW32, SHIFT32 = np.uint64(0xFFFFFFFF), np.uint64(32)
SHIFT5, SHIFT6, SHIFT9, SHIFT23, SHIFT26, SHIFT30 = (np.uint64(n) for n in (5, 6, 9, 23, 26, 30))
LOW30 = np.uint64(2**30 - 1)
SCALE_32, HALF_32 = np.float32(2.0**-32), np.float32(2.0**-33)
SCALE_64, HALF_64 = 2.0**-53, 2.0**-54
TURN_32, TURN_64 = np.float32(math.pi / 2 * 2.0**-30), math.pi / 2 * 2.0**-53  # bits to angles within a quadrant
QUADRANT_1, QUADRANT_2 = np.uint64(1), np.uint64(2)

ONE_32, LN2_32, LN2_64 = np.float32(1), np.float32(math.log(2)), math.log(2)
MANTISSA_32, MANTISSA_64 = np.int32(23), np.int64(52)  # bits of it
SQRT_HALF_32, SQRT_HALF_64 = np.float32(0.5**0.5).view(np.int32), np.float64(0.5**0.5).view(np.int64)


def series(coefficient: Callable[[int], float], terms_32: int, terms_64: int) -> tuple[tuple, tuple]:
    """The coefficients of a power series for float32 and for float64, highest power first."""
    dtypes = ((np.float32, terms_32), (float, terms_64))
    return tuple([tuple([dtype(coefficient(k)) for k in reversed(range(terms))]) for dtype, terms in dtypes])


# As many terms as the precision can see where |s| <= 0.172 and |x| <= pi / 4.
ATANH_32, ATANH_64 = series(lambda k: 2 / (2 * k + 1), 5, 11)  # 2 atanh(s) / s, in powers of s^2
SINE_32, SINE_64 = series(lambda k: (-1) ** k / math.factorial(2 * k + 1), 5, 9)  # sin(x) / x, in powers of x^2
COSINE_32, COSINE_64 = series(lambda k: (-1) ** k / math.factorial(2 * k), 6, 10)  # cos(x), in powers of x^2

inlined = njit(inline="always", error_model="numpy")


@inlined
def philox_round(c0, c1, c2, c3, k0, k1):
    """One round on the counter words, and the next round's key: two widening products, cross-wired."""
    product0 = MULTIPLIER_0 * c0
    product1 = MULTIPLIER_1 * c2
    c0, c2 = (product1 >> SHIFT32) ^ c1 ^ k0, (product0 >> SHIFT32) ^ c3 ^ k1
    return c0, product1 & LOW32, c2, product0 & LOW32, (k0 + WEYL_0) & LOW32, (k1 + WEYL_1) & LOW32


@inlined
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Ten rounds: four random words of 32 bits from four counter words and two key words, all uint64 below 2**32.

    The rounds are spelled out because LLVM unrolls loops too late to vectorize the one around them: 0.5 ns a word
    instead of 3.
    """
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3, k0, k1 = philox_round(c0, c1, c2, c3, k0, k1)
    return c0, c1, c2, c3


@inlined
def random_block(seed, offset, index):
    """Block `index` of the draw `(seed, offset)`, three uint64 scalars: four words of 32 bits."""
    return philox4x32(index & LOW32, index >> SHIFT32, offset & LOW32, offset >> SHIFT32, seed & LOW32, seed >> SHIFT32)


@inlined
def uniform32(word, shift, scale):
    """A float32 in [0, 1), exact: the word less its last `shift` bits (at least 8), times `scale` = 2**(shift - 32)."""
    return np.float32(np.int32(word >> shift)) * scale


@inlined
def uniform64(high, low):
    """A float64 in [0, 1) from the top 53 bits of two words; exact."""
    return np.float64(np.int64((high >> SHIFT5) << SHIFT26 | low >> SHIFT6)) * SCALE_64


@inlined
def below(high, low, bound):
    """A uint64 in [0, bound): the high half of the 128-bit product of 64 random bits and `bound` (Lemire, 2019).

    The probability of a value is off from 1 / bound by less than 2**-64; the slower modulo would be no better.
    """
    bound_high, bound_low = bound >> SHIFT32, bound & LOW32
    cross = high * bound_low + ((low * bound_low) >> SHIFT32)  # at most (2**32 - 1) * 2**32: no overflow
    cross_low = low * bound_high + (cross & LOW32)
    return high * bound_high + (cross >> SHIFT32) + (cross_low >> SHIFT32)


@inlined
def polynomial(x, coefficients):
    """Horner's rule, highest power first."""
    result = coefficients[0]
    for k in range(1, len(coefficients)):
        result = result * x + coefficients[k]
    return result


@inlined
def log32(u):
    """ln of a positive float32: u = m 2**e with m near 1, and ln m = 2 atanh(s), s = (m - 1) / (m + 1)."""
    bits = np.float32(u).view(np.int32)
    exponent = np.int32((bits - SQRT_HALF_32) >> MANTISSA_32)
    m = np.int32(bits - np.int32(exponent << MANTISSA_32)).view(np.float32)
    s = (m - ONE_32) / (m + ONE_32)
    return np.float32(exponent) * LN2_32 + s * polynomial(s * s, ATANH_32)


@inlined
def log64(u):
    """ln of a positive float64, as `log32`."""
    bits = np.float64(u).view(np.int64)
    exponent = (bits - SQRT_HALF_64) >> MANTISSA_64
    m = np.int64(bits - (exponent << MANTISSA_64)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    return np.float64(exponent) * LN2_64 + s * polynomial(s * s, ATANH_64)


@inlined
def box_muller(log_u, quadrant, angle, sine, cosine):
    """Two independent normal numbers (Box and Muller, 1958): the point with r^2 = -2 ln u in a random direction.

    The direction is a `quadrant` 0..3 and an `angle` within it, from -pi/4 to pi/4.
    """
    r = math.sqrt(-(log_u + log_u))
    r = -r if quadrant >= QUADRANT_2 else r
    t = angle * angle
    y, x = r * angle * polynomial(t, sine), r * polynomial(t, cosine)
    odd = (quadrant & QUADRANT_1) == QUADRANT_1
    return -y if odd else x, x if odd else y


@inlined
def normal32(a, b):
    """Two independent normal float32 numbers from two words."""
    u = np.float32(a) * SCALE_32 + HALF_32  # in (0, 1]
    angle = np.float32(np.int32(b & LOW30)) * TURN_32 - np.float32(math.pi / 4)
    return box_muller(log32(u), b >> SHIFT30, angle, SINE_32, COSINE_32)


@inlined
def normal64(a, b, c, d):
    """Two independent normal float64 numbers from four words."""
    u = uniform64(a, b) + HALF_64  # in (0, 1]
    angle = np.float64(np.int64((c & LOW30) << SHIFT23 | d >> SHIFT9)) * TURN_64 - math.pi / 4
    return box_muller(log64(u), c >> SHIFT30, angle, SINE_64, COSINE_64)
