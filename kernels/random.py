"""Random numbers by counters: element i of a draw is a function of (seed, offset, i) alone; see `formulas.philox`.

Thread i of the grid owns block i of Philox, 128 random bits, and writes the elements that they make:

    float32, dropout    elements 4 i .. 4 i + 3, 32 bits each
    float64, integers   elements 2 i and 2 i + 1, 64 bits each

so the numbers depend neither on the launch nor on the device. A product that is to be added is written fma(x, y, 0):
rounded by itself, as on the CPU, where a compiler would otherwise join it with the sum. Nothing is read, each element
is written once. `out` is padded to whole blocks, so that no kernel has a ragged end.
"""

from __future__ import annotations

import numpy as np

from miniflow.formulas.philox import below, normal32, normal64, random_block, uniform32, uniform64
from miniflow.hostcuda import cuda


@cuda.jit
def uniform_float32(out, seed, offset, low, span, top, shift, scale):
    """min(low + span u, top) with u from [0, 1): the random word less its last `shift` bits, times `scale`.

    Args:
        out: (4 n,), float32.
        seed, offset: name of the draw, uint64.
        low, span, top: float32; `top` is the largest number below low + span, to which rounding may carry.
        shift: uint64.
        scale: 2^(shift - 32), float32.
    """
    i = cuda.grid(1)
    if i < out.size // 4:
        zero = np.float32(0)
        w0, w1, w2, w3 = random_block(seed, offset, np.uint64(i))
        out[4 * i] = min(low + cuda.fma(span, uniform32(w0, shift, scale), zero), top)
        out[4 * i + 1] = min(low + cuda.fma(span, uniform32(w1, shift, scale), zero), top)
        out[4 * i + 2] = min(low + cuda.fma(span, uniform32(w2, shift, scale), zero), top)
        out[4 * i + 3] = min(low + cuda.fma(span, uniform32(w3, shift, scale), zero), top)


@cuda.jit
def uniform_float64(out, seed, offset, low, span, top):
    """min(low + span u, top) with u of 53 bits from [0, 1).

    Args:
        out: (2 n,), float64.
        seed, offset: name of the draw, uint64.
        low, span, top: as in `uniform_float32`, float64.
    """
    i = cuda.grid(1)
    if i < out.size // 2:
        w0, w1, w2, w3 = random_block(seed, offset, np.uint64(i))
        out[2 * i] = min(low + cuda.fma(span, uniform64(w0, w1), 0.0), top)
        out[2 * i + 1] = min(low + cuda.fma(span, uniform64(w2, w3), 0.0), top)


@cuda.jit
def normal_float32(out, seed, offset, mean, std):
    """mean + std z with z standard normal; two words make two of them.

    Args:
        out: (4 n,), float32.
        seed, offset: name of the draw, uint64.
        mean, std: float32.
    """
    i = cuda.grid(1)
    if i < out.size // 4:
        w0, w1, w2, w3 = random_block(seed, offset, np.uint64(i))
        z0, z1 = normal32(w0, w1)
        z2, z3 = normal32(w2, w3)
        out[4 * i] = mean + std * z0
        out[4 * i + 1] = mean + std * z1
        out[4 * i + 2] = mean + std * z2
        out[4 * i + 3] = mean + std * z3


@cuda.jit
def normal_float64(out, seed, offset, mean, std):
    """mean + std z with z standard normal; four words make two of them.

    Args:
        out: (2 n,), float64.
        seed, offset: name of the draw, uint64.
        mean, std: float64.
    """
    i = cuda.grid(1)
    if i < out.size // 2:
        w0, w1, w2, w3 = random_block(seed, offset, np.uint64(i))
        z0, z1 = normal64(w0, w1, w2, w3)
        out[2 * i] = mean + std * z0
        out[2 * i + 1] = mean + std * z1


@cuda.jit
def integers(out, seed, offset, low, bound):
    """low + k with k from [0, bound).

    Args:
        out: (2 n,), int64.
        seed, offset: name of the draw, uint64.
        low: int64.
        bound: uint64, at least 1.
    """
    i = cuda.grid(1)
    if i < out.size // 2:
        w0, w1, w2, w3 = random_block(seed, offset, np.uint64(i))
        out[2 * i] = low + np.int64(below(w0, w1, bound))
        out[2 * i + 1] = low + np.int64(below(w2, w3, bound))
