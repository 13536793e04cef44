"""Clipping of gradients: the norm of all elements of many arrays, and bounds applied in place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from miniflow.backends.cpu.loops import SUMS
from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel

PART = 65_536  # elements that go into one partial sum, whoever computes it: so the number of threads changes no bit


@unlocked(SUMS)
def sums_of_squares(start, stop, x, results):
    """results[k] = the sum over elements k PART .. (k + 1) PART - 1 of x, in float64."""
    for k in range(start, stop):
        total = 0.0
        part = x[k * PART : (k + 1) * PART]
        for i in range(part.size):
            total += np.float64(part[i]) * np.float64(part[i])
        results[k] = total


def sum_of_squares(x: np.ndarray) -> float:
    """In float64: squares of float32 numbers may lie outside of float32."""
    flat = np.ascontiguousarray(x, real(x)).reshape(-1)
    results = np.empty(-(-flat.size // PART))
    share(sums_of_squares, results.size, flat.size, flat, results)
    return float(results.sum())


@kernel("cpu", half="native")
def total_norm(norm: np.ndarray, *gradients: np.ndarray, norm_type: float) -> None:
    p = float(norm_type)
    if p == 2:
        total = math.sqrt(sum(map(sum_of_squares, gradients)))
    elif p == math.inf:
        total = np.max([np.abs(g).max(initial=0) for g in gradients])
    else:
        total = sum([np.sum(np.abs(g).astype(np.float64) ** p) for g in gradients]) ** (1 / p)
    with np.errstate(over="ignore"):
        norm[...] = total


@kernel("cpu", returns=True)
def clip_grad_norm(gradients: Sequence[np.ndarray], norms: Sequence[np.ndarray], *, max_norm: float) -> None:
    for g, norm in zip(gradients, norms, strict=True):
        factor = max_norm / (float(norm) + 1e-6)
        if not factor >= 1:  # also when it is nan
            np.multiply(g, real(g)(factor), out=g, casting="same_kind")


@kernel("cpu", returns=True)
def clip_grad_value(gradients: Sequence[np.ndarray], *, clip_value: float) -> None:
    for g in gradients:
        bound = real(g)(clip_value)
        np.clip(g, -bound, bound, out=g, casting="same_kind")


def real(x: np.ndarray) -> type:
    """The class of numbers with which the elements are computed: float32 for half precision too."""
    return np.float64 if x.dtype == np.float64 else np.float32
