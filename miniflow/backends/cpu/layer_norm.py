"""Layer norm: each row is handled while it lies in the cache, first its statistics, then its results.

Mean and variance take two passes, and are kept in float64. Threads share out arrays of half a million elements: for
fewer, to wake a thread costs what it saves.
"""

from __future__ import annotations

from math import prod

import numpy as np

from miniflow.backends.cpu.threads import STRICT, SUMS, share, unlocked
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


@unlocked(SUMS)
def plane_totals(dy, x, mean, sums, products):
    """sum_j dy_j and sum_j dy_j (x_j - mean) of each of the equally long planes that x consists of"""
    length, center = x.size // sums.size, x.dtype.type(mean)
    for k in range(sums.size):
        plane, cotangent = x[k * length : (k + 1) * length], dy[k * length : (k + 1) * length]
        sums[k] = products[k] = 0.0
        for start in range(0, length, BLOCK):
            block, g = plane[start : start + BLOCK], cotangent[start : start + BLOCK]
            partial = product = x.dtype.type(0)
            for j in range(block.size):
                partial += g[j]
                product += g[j] * (block[j] - center)
            sums[k] += partial
            products[k] += product


@unlocked(STRICT)
def normalize_rows(start, stop, x, weight, bias, eps, mean, rstd, y):
    groups, planes = weight.shape
    length = x.shape[1] // planes
    for i in range(start, stop):
        g = i % groups
        row, out, w, b = x[i], y[i], weight[g], bias[g]
        mean[i] = total(row) / row.size
        rstd[i] = 1.0 / np.sqrt(total_square_deviation(row, mean[i]) / row.size + eps)
        center, scale = x.dtype.type(mean[i]), x.dtype.type(rstd[i])
        if length == 1:
            for j in range(row.size):
                out[j] = (row[j] - center) * scale * w[j] + b[j]
        else:
            for k in range(planes):
                plane, result = row[k * length : (k + 1) * length], out[k * length : (k + 1) * length]
                factor, shift = scale * w[k], b[k]
                for j in range(length):
                    result[j] = (plane[j] - center) * factor + shift


@unlocked(STRICT)
def differentiate_elements(start, stop, dy, x, weight, mean, rstd, dx, partial):
    """Parts start to stop of the rows; `partial` (parts, 2, groups, width) gets their shares of dweight and dbias."""
    for p in range(start, stop):
        partial[p] = 0
        for i in range(p * len(x) // len(partial), (p + 1) * len(x) // len(partial)):
            g = i % len(weight)
            row, cotangent, w, out, dw, db = x[i], dy[i], weight[g], dx[i], partial[p, 0, g], partial[p, 1, g]
            summed, product = weighted_cotangent_totals(cotangent, w, row, mean[i])
            center, scale = x.dtype.type(mean[i]), x.dtype.type(rstd[i])
            g_mean, slope = x.dtype.type(summed / row.size), x.dtype.type(product * rstd[i] * rstd[i] / row.size)
            for j in range(row.size):
                out[j] = scale * (cotangent[j] * w[j] - g_mean - (row[j] - center) * slope)
            for j in range(row.size):  # a loop of its own: one over all of these arrays takes longer
                dw[j] += cotangent[j] * ((row[j] - center) * scale)
                db[j] += cotangent[j]


@unlocked(STRICT)
def differentiate_planes(start, stop, dy, x, weight, mean, rstd, dx, partial):
    """The same with a parameter for each plane: its gradients are sums over the plane, which make up the row's."""
    width, (groups, planes) = x.shape[1], weight.shape
    length, sums, products = width // planes, np.empty(planes), np.empty(planes)
    for p in range(start, stop):
        partial[p] = 0
        for i in range(p * len(x) // len(partial), (p + 1) * len(x) // len(partial)):
            g = i % groups
            row, cotangent, w, out = x[i], dy[i], weight[g], dx[i]
            plane_totals(cotangent, row, mean[i], sums, products)
            summed = product = 0.0
            for k in range(planes):
                summed += w[k] * sums[k]
                product += w[k] * products[k]
                partial[p, 0, g, k] += x.dtype.type(products[k] * rstd[i] if length else 0.0)
                partial[p, 1, g, k] += x.dtype.type(sums[k])
            center, scale = x.dtype.type(mean[i]), x.dtype.type(rstd[i])
            g_mean, slope = x.dtype.type(summed / width), x.dtype.type(product * rstd[i] * rstd[i] / width)
            for k in range(planes):
                first, last = k * length, (k + 1) * length
                plane, dplane, result, factor = row[first:last], cotangent[first:last], out[first:last], w[k]
                for j in range(length):
                    result[j] = scale * (dplane[j] * factor - g_mean - (plane[j] - center) * slope)


def parameter(values: np.ndarray | None, default: float, shape: int | tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A weight or bias as a contiguous array, filled with its neutral value if there is none."""
    if values is None:
        return np.full(shape, default, dtype)
    return np.ascontiguousarray(values, dtype).reshape(shape)


def by_group(x: np.ndarray, weight: np.ndarray | None, dims: int) -> tuple[np.ndarray, tuple[int, int]]:
    """x as (rows, width), and the shape (groups, planes) of its parameters: row i has those of group i % groups."""
    width = prod(x.shape[x.ndim - dims :])
    rows = np.ascontiguousarray(x).reshape(prod(x.shape[: x.ndim - dims]), width)
    if weight is None or weight.ndim == dims:
        return rows, (1, width)
    return rows, (prod(weight.shape[:-dims]), prod(weight.shape[-dims:]))


@kernel("cpu")
def layer_norm(out, x, weight, bias, *, dims, eps):
    y, mean, rstd = out
    rows, shape = by_group(x, weight, dims)
    weight, bias = parameter(weight, 1, shape, x.dtype), parameter(bias, 0, shape, x.dtype)
    results = mean.reshape(-1), rstd.reshape(-1), y.reshape(rows.shape)
    share(normalize_rows, mean.size, x.size // 2, rows, weight, bias, eps, *results)


@kernel("cpu")
def layer_norm_grad(out, dy, x, weight, mean, rstd, *, dims):
    """The parameters' gradients are first added up for each part of the rows, then over the parts."""
    dx, dweight, dbias = out
    rows, shape = by_group(x, weight, dims)
    partial = np.empty((min(mean.size, PARTS), 2, *shape), x.dtype)
    statistics = [np.ascontiguousarray(v).reshape(-1) for v in (mean, rstd)]
    arguments = np.ascontiguousarray(dy).reshape(rows.shape), rows, parameter(weight, 1, shape, x.dtype), *statistics
    differentiate = differentiate_elements if shape[1] == rows.shape[1] else differentiate_planes
    share(differentiate, len(partial), x.size // 2, *arguments, dx.reshape(rows.shape), partial)
    dweight[...], dbias[...] = np.add.reduce(partial).reshape(2, *dweight.shape)
