"""float16 and bfloat16 in registers.

They are not numbers to numba's CUDA compilers: kernels that compute with them read and write their bits as uint16, and
hold values in float32. Half precision, with s the sign, e the exponent, m the mantissa:

    float16    s eeeee mmmmmmmmmm             bias 15
    bfloat16   s eeeeeeee mmmmmmm             bias 127: the upper half of a float32
    float32    s eeeeeeee m (23 times)        bias 127
    float64    s e (11 times) m (52 times)    bias 1023

Rounding is to nearest, halves to even, in integers: adding half of the last kept place, less one, plus the last kept
bit itself, carries into the kept bits exactly when it should. The carry may run into the exponent, up to infinity.

`round_float16` and `round_bfloat16` give what is left of a float32 after it was stored.
"""

from __future__ import annotations

import numpy as np

from miniflow.hostcuda import cuda

SMALLEST_FLOAT16 = np.float32(2.0**-24)

device = cuda.jit(device=True)


@device
def float16_magnitude(magnitude, mantissa, bias):
    """The bits of a float16 nearest to a positive number with bits `magnitude`, `mantissa` bits of fraction, `bias`."""
    exponent = magnitude >> mantissa
    dropped = mantissa - 10
    if exponent > 2 * bias:  # infinity, or NaN if there is a fraction
        return 0x7C00 if magnitude == exponent << mantissa else 0x7E00
    if exponent > bias + 15:
        return 0x7C00
    if exponent > bias - 15:
        value = magnitude - ((bias - 15) << mantissa)
    else:  # denormal: the leading 1 is written out and shifted to its place
        value = (magnitude & ((1 << mantissa) - 1)) | (1 << mantissa)
        dropped = min(bias - 14 - exponent + dropped, mantissa + 2)
    return (value + (1 << (dropped - 1)) - 1 + ((value >> dropped) & 1)) >> dropped


@device
def widen_float16(bits):
    """The value of a float16; exact."""
    word = np.int64(bits)
    sign, magnitude = (word & 0x8000) << 16, word & 0x7FFF
    if magnitude >= 0x7C00:  # infinity and NaN
        wide = sign | (magnitude << 13) | 0x7F800000
    elif magnitude >= 0x0400:
        wide = sign | ((magnitude << 13) + ((127 - 15) << 23))
    else:  # denormal
        wide = sign | np.int64(np.float32(np.float32(magnitude) * SMALLEST_FLOAT16).view(np.int32))
    return np.uint32(wide).view(np.float32)


@device
def widen_bfloat16(bits):
    """The value of a bfloat16; exact."""
    return np.uint32(np.int64(bits) << 16).view(np.float32)


@device
def narrow_float16(x):
    """The bits of the float16 nearest to a float32."""
    word = np.int64(np.float32(x).view(np.uint32))
    return np.uint16(((word >> 16) & 0x8000) | float16_magnitude(word & 0x7FFFFFFF, 23, 127))


@device
def narrow_float16_once(x):
    """The bits of the float16 nearest to a float64, with one rounding."""
    word = np.int64(np.float64(x).view(np.uint64))
    return np.uint16(((word >> 48) & 0x8000) | float16_magnitude(word & 0x7FFFFFFFFFFFFFFF, 52, 1023))


@device
def narrow_bfloat16(x):
    """The bits of the bfloat16 nearest to a float32."""
    word = np.int64(np.float32(x).view(np.uint32))
    if (word & 0x7FFFFFFF) > 0x7F800000:
        return np.uint16(((word >> 16) & 0x8000) | 0x7FC0)  # a NaN stays one: rounding could carry it to infinity
    return np.uint16((word + 0x7FFF + ((word >> 16) & 1)) >> 16)


@device
def round_float16(x):
    """The float16 nearest to a float32, as a float32."""
    return widen_float16(narrow_float16(x))


@device
def round_bfloat16(x):
    """The bfloat16 nearest to a float32, as a float32."""
    return widen_bfloat16(narrow_bfloat16(x))
