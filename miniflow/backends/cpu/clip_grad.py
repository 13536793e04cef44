"""Gradient clipping: the norm over all elements of many arrays, and clipping in place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from miniflow.backends.cpu.threads import SUMS, share, unlocked
from miniflow.backends.registry import kernel

SMALL = 4096  # elements of a gradient below which concatenating it is faster than a call of its own
PART = 65_536  # elements of a partial sum, for any number of threads: so the result does not depend on it


@unlocked(SUMS)
def sums_of_squares(start, stop, x, results):
    """results[k] = the sum over elements k PART .. (k + 1) PART - 1 of x, in float64."""
    for k in range(start, stop):
        total = 0.0
        part = x[k * PART : (k + 1) * PART]
        for i in range(part.size):
            total += np.float64(part[i]) * np.float64(part[i])
        results[k] = total


def sum_of_squares(gradients: Sequence[np.ndarray]) -> float:
    """In float64, since squares may leave the range of float32. Small gradients are concatenated first."""
    dtype = np.result_type(np.float32, *{g.dtype for g in gradients})
    small = [g for g in gradients if g.size < SMALL]
    vectors = [np.ascontiguousarray(g, dtype).reshape(-1) for g in gradients if g.size >= SMALL]
    total = 0.0
    for x in [np.concatenate(small, None, dtype=dtype), *vectors] if small else vectors:
        results = np.empty(-(-x.size // PART))
        share(sums_of_squares, results.size, x.size, x, results)
        total += float(results.sum())
    return total


@kernel("cpu", half="native")
def total_norm(norm, *gradients, norm_type):
    p = float(norm_type)
    if p == 2:
        total = math.sqrt(sum_of_squares(gradients))
    elif p == math.inf:
        total = np.max([np.abs(g).max(initial=0) for g in gradients])
    else:
        total = sum([np.sum(np.abs(g).astype(np.float64) ** p) for g in gradients]) ** (1 / p)
    with np.errstate(over="ignore"):
        norm[...] = total


@kernel("cpu", returns=True)
def clip_grad_norm(gradients, norms, *, max_norm):
    last, factor = None, 1.0
    for g, norm in zip(gradients, norms, strict=True):
        if norm is not last:  # mostly one norm belongs to all
            last, factor = norm, max_norm / (float(norm) + 1e-6)
        if not factor >= 1:  # also when it is nan
            np.multiply(g, factor if g.itemsize > 2 else np.float32(factor), g)  # half precision in float32


@kernel("cpu", returns=True)
def clip_grad_value(gradients, *, clip_value):
    for g in gradients:
        g.clip(-clip_value, clip_value, g)
