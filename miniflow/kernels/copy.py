"""Moving, converting and filling: copies between any two layouts and any two dtypes.

A copy is the elementwise kernel of `same` (see `pointwise` for who owns which element): one read and one write an
element. Arrays whose dtypes are equal are handed over as unsigned integers of their width, so that float32 and int32
share one compiled kernel; a store converts as C does, so that `same` is also the conversion between numbers.

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
from miniflow.kernels.pointwise import place

SMALLEST_FLOAT16 = np.float32(2.0**-24)


@cuda.jit(device=True)
def same(x):
    """x"""
    return x


@cuda.jit(device=True)
def truth(x):
    """Whether x is not 0; NaN is not 0."""
    return x != 0


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


@cuda.jit
def fill(out, value):
    """out[i] = value for a 1-D array; thread i owns element i: one write, no reads."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = value


@cuda.jit
def fill_spread(shape, out, out_steps, value):
    """The same for any layout: the thread owns the element (i0, i1, i2, i3) as in `pointwise.spread`."""
    i2 = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    i3 = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i2 < shape[2] and i3 < shape[3]:
        i0 = cuda.blockIdx.z // shape[1]
        i1 = cuda.blockIdx.z - i0 * shape[1]
        out[place(i0, i1, i2, i3, out_steps)] = value
