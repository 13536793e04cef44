"""Conversions between half precision and wider floats, of one element: `backends/cuda/copy` has the loops.

float16 and bfloat16 are not numbers to numba's CUDA compilers: the conversions read and write their bits as uint16, and
those of float32 and float64 as uint32 and uint64. Half precision, with s the sign, e the exponent, m the mantissa:

    float16    s eeeee mmmmmmmmmm             bias 15
    bfloat16   s eeeeeeee mmmmmmm             bias 127: the upper half of a float32
    float32    s eeeeeeee m (23 times)        bias 127
    float64    s e (11 times) m (52 times)    bias 1023

Rounding is to nearest, halves to even, in integers: adding half of the last kept place, less one, plus the last kept
bit itself, carries into the kept bits exactly when it should. The carry may run into the exponent, up to infinity.
"""

from __future__ import annotations

import numpy as np

from miniflow.hostcuda import cuda

SMALLEST_FLOAT16 = np.float32(2.0**-24)


@cuda.jit(device=True)
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


@cuda.jit(device=True)
def float32_to_float16(bits):
    """float32 -> float16, bits to bits."""
    word = np.int64(bits)
    return ((word >> 16) & 0x8000) | float16_magnitude(word & 0x7FFFFFFF, 23, 127)


@cuda.jit(device=True)
def float64_to_float16(bits):
    """float64 -> float16 with one rounding, bits to bits."""
    word = np.int64(bits)
    return ((word >> 48) & 0x8000) | float16_magnitude(word & 0x7FFFFFFFFFFFFFFF, 52, 1023)


@cuda.jit(device=True)
def float16_to_float32(bits):
    """float16 -> float32, bits to bits; exact."""
    word = np.int64(bits)
    sign, magnitude = (word & 0x8000) << 16, word & 0x7FFF
    if magnitude >= 0x7C00:  # infinity and NaN
        return sign | (magnitude << 13) | 0x7F800000
    if magnitude >= 0x0400:
        return sign | ((magnitude << 13) + ((127 - 15) << 23))
    return sign | np.int64(np.float32(np.float32(magnitude) * SMALLEST_FLOAT16).view(np.int32))  # denormal


@cuda.jit(device=True)
def float32_to_bfloat16(bits):
    """float32 -> bfloat16, bits to bits."""
    word = np.int64(bits)
    if (word & 0x7FFFFFFF) > 0x7F800000:
        return ((word >> 16) & 0x8000) | 0x7FC0  # a NaN stays one: rounding could carry it to infinity
    return (word + 0x7FFF + ((word >> 16) & 1)) >> 16


@cuda.jit(device=True)
def bfloat16_to_float32(bits):
    """bfloat16 -> float32, bits to bits; exact."""
    return np.int64(bits) << 16
