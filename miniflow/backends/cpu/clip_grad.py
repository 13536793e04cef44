"""Clipping of gradients: the norm of all elements of many arrays, and bounds applied in place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numba
import numpy as np

from miniflow.backends.cpu.loops import SUMS
from miniflow.backends.cpu.tables import FLOAT32, FLOAT64, Arrays, Table, overlap, tables, vector
from miniflow.backends.cpu.threads import compiled, share, unlocked
from miniflow.backends.registry import register

PART = 65_536  # elements that go into one partial sum, whoever computes it: so the number of threads changes no bit
summing = numba.njit(error_model="numpy", fastmath=set(SUMS))


@summing
def sum_of_squares(x):
    total = 0.0
    for i in range(x.size):
        total += np.float64(x[i]) * np.float64(x[i])
    return total


@summing
def sum_of_magnitudes(x):
    total = 0.0
    for i in range(x.size):
        total += np.float64(abs(x[i]))
    return total


@compiled
def sum_of_powers(x, p):
    total = 0.0
    for i in range(x.size):
        total += np.float64(abs(x[i])) ** p
    return total


@compiled
def largest_magnitude(x):
    """NaN if there is one."""
    largest, nan = 0.0, 0.0
    for i in range(x.size):
        largest = max(largest, np.float64(abs(x[i])))
        nan += 0.0 if x[i] == x[i] else math.nan
    return largest + nan


@unlocked()
def partial_norms(start, stop, addresses, ends, like, p, results):
    """results[k] = sum of |x|^p, or the largest |x|, over elements k PART .. (k + 1) PART - 1 of a table."""
    for k in range(start, stop):
        total = 0.0
        for row in range(ends.size - 1):
            first, count = overlap(ends, row, k * PART, (k + 1) * PART)
            if count > 0:
                x = vector(addresses[row, 0], first, count, like)
                if p == 2:
                    total += sum_of_squares(x)
                elif p == 1:
                    total += sum_of_magnitudes(x)
                elif p == math.inf:
                    largest = largest_magnitude(x)
                    total = total if total > largest or total != total else largest
                else:
                    total += sum_of_powers(x, p)
        results[k] = total


@register("cpu", "TotalNorm", half="native")
def total_norm(*gradients: np.ndarray, norm_type: float) -> np.ndarray:
    p = float(norm_type)
    partials = [_partials(table, p) for table, _ in tables([gradients])]
    together = np.concatenate(partials) if len(partials) > 1 else partials[0]
    total = float(np.maximum.reduce(together, initial=0.0) if p == math.inf else np.add.reduce(together))
    if p != math.inf:
        total = math.sqrt(total) if p == 2 else total ** (1 / p)
    result = np.empty((), FLOAT64 if any([g.dtype == FLOAT64 for g in gradients]) else FLOAT32)
    with np.errstate(over="ignore"):
        result[...] = total
    return result


def _partials(table: Table, p: float) -> np.ndarray:
    results = np.empty(-(-table.total // PART))
    share(partial_norms, results.size, table.total, table.addresses, table.ends, table.like, p, results)
    return results


@unlocked()
def scale_rows(start, stop, addresses, ends, like, factors):
    for row in range(ends.size - 1):
        first, count = overlap(ends, row, start, stop)
        factor = factors[row % factors.size]
        if count > 0 and not factor >= 1:  # also when it is nan
            gradient = vector(addresses[row, 0], first, count, like)
            factor = like.dtype.type(factor)
            for i in range(count):
                gradient[i] *= factor


@register("cpu", "ClipGradNorm", half="native")
def clip_grad_norm(gradients: Arrays, norms: Sequence[np.ndarray], *, max_norm: float) -> None:
    alone = all([norm is norms[0] for norm in norms])
    factors = np.array([max_norm / (float(norm) + 1e-6) for norm in (norms[:1] if alone else norms)])
    if (factors >= 1).all():
        return
    for table, rows in tables([gradients], changed=(0,)):
        mine = factors if alone else factors[rows]
        share(scale_rows, table.total, table.total, table.addresses, table.ends, table.like, mine)


@unlocked()
def clamp_rows(start, stop, addresses, ends, like, bound):
    bound = like.dtype.type(bound)
    for row in range(ends.size - 1):
        first, count = overlap(ends, row, start, stop)
        if count > 0:
            gradient = vector(addresses[row, 0], first, count, like)
            for i in range(count):
                value = gradient[i]
                gradient[i] = -bound if value < -bound else bound if value > bound else value


@register("cpu", "ClipGradValue", half="native")
def clip_grad_value(gradients: Arrays, *, clip_value: float) -> None:
    for table, _ in tables([gradients], changed=(0,)):
        share(clamp_rows, table.total, table.total, table.addresses, table.ends, table.like, float(clip_value))
