"""Dropout in one pass: draw, compare, scale, and remember what was kept.

    thread i  ->  elements 4 i .. 4 i + 3: random words 0 .. 3 of Philox block i (see `random`)

Each element is read once, kept or not, since a read within a branch cannot be part of a vector instruction; the result
and one byte of mask are written once. The mask is a fact of (seed, offset) and the index alone: the same on every
device. The up to three elements after the last whole block are left to `drop_rest`.
"""

from __future__ import annotations

import numpy as np

from miniflow.formulas.philox import random_block
from miniflow.hostcuda import cuda


@cuda.jit
def drop(x, y, keep, seed, offset, threshold, scale):
    """keep = word >= threshold; y = x scale where kept, else 0. Whole blocks of four elements only.

    Args:
        x, y: (n,), floating.
        keep: (n,), uint8: 1 or 0.
        seed, offset: name of the draw, uint64.
        threshold: uint64, the share of dropped elements in units of 2^-32.
        scale: of x's dtype.
    """
    i = cuda.grid(1)
    if i < x.size // 4:
        w0, w1, w2, w3 = random_block(seed, offset, np.uint64(i))
        k0, k1, k2, k3 = w0 >= threshold, w1 >= threshold, w2 >= threshold, w3 >= threshold
        x0, x1, x2, x3 = x[4 * i] * scale, x[4 * i + 1] * scale, x[4 * i + 2] * scale, x[4 * i + 3] * scale
        zero = type(scale)(0)
        keep[4 * i], keep[4 * i + 1], keep[4 * i + 2], keep[4 * i + 3] = k0, k1, k2, k3
        y[4 * i] = x0 if k0 else zero
        y[4 * i + 1] = x1 if k1 else zero
        y[4 * i + 2] = x2 if k2 else zero
        y[4 * i + 3] = x3 if k3 else zero


@cuda.jit
def drop_rest(x, y, keep, seed, offset, threshold, scale):
    """The elements after the last whole block; thread j owns element 4 * (n // 4) + j. Arguments as for `drop`."""
    blocks = x.size // 4
    k = 4 * blocks + cuda.threadIdx.x
    if k < x.size:
        w0, w1, w2, w3 = random_block(seed, offset, np.uint64(blocks))
        word = w0 if k % 4 == 0 else w1 if k % 4 == 1 else w2
        kept = word >= threshold
        keep[k] = kept
        y[k] = x[k] * scale if kept else type(scale)(0)
