"""Layer norm: each row is handled while it lies in the cache, first its statistics, then its results.

Mean and variance take two passes, and are kept in float64. Threads share out arrays of half a million elements: for
fewer, to wake a thread costs what it saves.
"""

from __future__ import annotations

from math import prod

import numpy as np

from miniflow.backends.cpu.loops import STRICT, SUMS
from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel

BLOCK = 4096  # terms that are added in the arrays' own precision before they go into a float64 total
PARTS = 16  # of the rows, each with its own sums for the parameters' gradients: a fixed number, whatever the threads


@unlocked(SUMS)
def total(x):
    """sum_j x_j"""
    result = 0.0
    for start in range(0, x.size, BLOCK):
        block = x[start : start + BLOCK]
        partial = x.dtype.type(0)
        for j in range(block.size):
            partial += block[j]
        result += partial
    return result


@unlocked(SUMS)
def total_square_deviation(x, mean):
    """sum_j (x_j - mean)^2"""
    center = x.dtype.type(mean)
    result = 0.0
    for start in range(0, x.size, BLOCK):
        block = x[start : start + BLOCK]
        partial = x.dtype.type(0)
        for j in range(block.size):
            partial += (block[j] - center) * (block[j] - center)
        result += partial
    return result


@unlocked(SUMS)
def weighted_cotangent_totals(dy, weight, x, mean):
    """sum_j dy_j w_j and sum_j dy_j w_j (x_j - mean)"""
    center = x.dtype.type(mean)
    result = result_product = 0.0
    for start in range(0, x.size, BLOCK):
        block, cotangent, w = x[start : start + BLOCK], dy[start : start + BLOCK], weight[start : start + BLOCK]
        partial = product = x.dtype.type(0)
        for j in range(block.size):
            g = cotangent[j] * w[j]
            partial += g
            product += g * (block[j] - center)
        result += partial
        result_product += product
    return result, result_product


@unlocked(STRICT)
def normalize_rows(start, stop, x, weight, bias, eps, mean, rstd, y):
    for i in range(start, stop):
        row, out = x[i], y[i]
        mean[i] = total(row) / row.size
        rstd[i] = 1.0 / np.sqrt(total_square_deviation(row, mean[i]) / row.size + eps)
        center, scale = x.dtype.type(mean[i]), x.dtype.type(rstd[i])
        for j in range(row.size):
            out[j] = (row[j] - center) * scale * weight[j] + bias[j]


@unlocked(STRICT)
def differentiate_parts(start, stop, dy, x, weight, mean, rstd, dx, partial):
    """Parts start to stop of the rows; `partial` (parts, 2, width) gets their shares of dweight and dbias."""
    rows, width = x.shape
    for p in range(start, stop):
        dw, db = partial[p, 0], partial[p, 1]
        dw[:] = 0
        db[:] = 0
        for i in range(p * rows // len(partial), (p + 1) * rows // len(partial)):
            cotangent, row, out = dy[i], x[i], dx[i]
            center, scale = x.dtype.type(mean[i]), x.dtype.type(rstd[i])
            summed, product = weighted_cotangent_totals(cotangent, weight, row, mean[i])
            g_mean, slope = x.dtype.type(summed / width), x.dtype.type(product * rstd[i] * rstd[i] / width)
            for j in range(width):
                xhat = (row[j] - center) * scale
                out[j] = scale * (cotangent[j] * weight[j] - g_mean) - xhat * slope
                dw[j] += cotangent[j] * xhat
                db[j] += cotangent[j]


@unlocked(STRICT)
def add_parts(partial, dweight, dbias):
    dweight[:] = 0
    dbias[:] = 0
    for p in range(len(partial)):
        for j in range(dweight.size):
            dweight[j] += partial[p, 0, j]
            dbias[j] += partial[p, 1, j]


def parameter(values: np.ndarray | None, default: float, size: int, dtype: np.dtype) -> np.ndarray:
    """A weight or bias as a contiguous vector, filled with its neutral value if there is none."""
    if values is None:
        return np.full(size, default, dtype)
    return np.ascontiguousarray(values, dtype).reshape(size)


@kernel("cpu")
def layer_norm(
    out: tuple[np.ndarray, ...],
    x: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    *,
    dims: int,
    eps: float,
) -> None:
    y, mean, rstd = out
    width = prod(x.shape[x.ndim - dims :])
    rows = np.ascontiguousarray(x).reshape(mean.size, width)
    weight, bias = parameter(weight, 1, width, x.dtype), parameter(bias, 0, width, x.dtype)
    results = mean.reshape(-1), rstd.reshape(-1), y.reshape(rows.shape)
    share(normalize_rows, mean.size, x.size // 2, rows, weight, bias, eps, *results)


@kernel("cpu")
def layer_norm_grad(
    out: tuple[np.ndarray, ...],
    dy: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray | None,
    mean: np.ndarray,
    rstd: np.ndarray,
    *,
    dims: int,
) -> None:
    """The parameters' gradients are first added up for each part of the rows, then over the parts."""
    dx, dweight, dbias = out
    shape = mean.size, dweight.size
    dy, rows = np.ascontiguousarray(dy).reshape(shape), np.ascontiguousarray(x).reshape(shape)
    partial = np.empty((min(mean.size, PARTS), 2, dweight.size), x.dtype)
    statistics = [np.ascontiguousarray(v).reshape(-1) for v in (mean, rstd)]
    given = dy, rows, parameter(weight, 1, dweight.size, x.dtype), *statistics, dx.reshape(shape)
    share(differentiate_parts, len(partial), x.size // 2, *given, partial)
    add_parts(partial, dweight.reshape(-1), dbias.reshape(-1))
