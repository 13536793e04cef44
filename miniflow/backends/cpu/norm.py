"""Normalization kernels: two-pass mean and variance, the statistics kept in float64.

Layer norm works on rows, batch norm on the planes of a channel: x[n, c] for all n. Each row and each channel is handled
while it lies in the cache, one after the other: statistics, then results.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numba import njit, prange

from miniflow.backends.cpu.loops import SUMS, loop
from miniflow.backends.registry import register, register_into

BLOCK = 4096  # terms that are added in the arrays' own precision before they go into a float64 total
SHORT_PLANE = 8  # elements
PARTS = 16  # of the rows, each with its own sums for the parameters' gradients: a fixed number, whatever the threads


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SUMS)
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


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SUMS)
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


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SUMS)
def cotangent_totals(dy, x, mean):
    """sum_j dy_j and sum_j dy_j (x_j - mean)"""
    center = x.dtype.type(mean)
    result = result_product = 0.0
    for start in range(0, x.size, BLOCK):
        block, cotangent = x[start : start + BLOCK], dy[start : start + BLOCK]
        partial = product = x.dtype.type(0)
        for j in range(block.size):
            partial += cotangent[j]
            product += cotangent[j] * (block[j] - center)
        result += partial
        result_product += product
    return result, result_product


@njit(cache=True, nogil=True, error_model="numpy", fastmath=SUMS)
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


@loop()
def layer_norm_rows(x, weight, bias, eps, mean, rstd, y):
    for i in prange(x.shape[0]):
        row, out = x[i], y[i]
        mean[i] = total(row) / row.size
        rstd[i] = 1.0 / np.sqrt(total_square_deviation(row, mean[i]) / row.size + eps)
        center, scale = x.dtype.type(mean[i]), x.dtype.type(rstd[i])
        for j in range(row.size):
            out[j] = (row[j] - center) * scale * weight[j] + bias[j]


@loop()
def layer_norm_grad_rows(dy, x, weight, mean, rstd, dx, dweight, dbias):
    """The parameters' gradients are first added up for each part of the rows, then over the parts."""
    rows, width = x.shape
    parts = min(rows, PARTS)
    partial = np.zeros((parts, 2, width), x.dtype)
    for p in prange(parts):
        dw, db = partial[p, 0], partial[p, 1]
        for i in range(p * rows // parts, (p + 1) * rows // parts):
            cotangent, row, out = dy[i], x[i], dx[i]
            center, scale = x.dtype.type(mean[i]), x.dtype.type(rstd[i])
            summed, product = weighted_cotangent_totals(cotangent, weight, row, mean[i])
            g_mean, slope = x.dtype.type(summed / width), x.dtype.type(product * rstd[i] * rstd[i] / width)
            for j in range(width):
                out[j] = scale * (cotangent[j] * weight[j] - g_mean - (row[j] - center) * slope)
            for j in range(width):
                dw[j] += cotangent[j] * (row[j] - center) * scale
                db[j] += cotangent[j]
    dweight[:] = 0
    dbias[:] = 0
    for p in range(parts):
        for j in range(width):
            dweight[j] += partial[p, 0, j]
            dbias[j] += partial[p, 1, j]


@loop()
def batch_norm_channels(x, weight, bias, eps, training, mean, var, y):
    """In training, mean and var (biased) are results, else they are given."""
    images, channels, size = x.shape
    for c in prange(channels):
        if training:
            summed = 0.0
            for n in range(images):
                summed += total(x[n, c])
            mean[c] = summed / (images * size)
            squares = 0.0
            for n in range(images):
                squares += total_square_deviation(x[n, c], mean[c])
            var[c] = squares / (images * size)
        center, shift = x.dtype.type(mean[c]), bias[c]
        scale = x.dtype.type(weight[c] / np.sqrt(var[c] + eps))
        for n in range(images):
            plane, out = x[n, c], y[n, c]
            for j in range(size):
                out[j] = (plane[j] - center) * scale + shift


@loop()
def batch_norm_grad_channels(dy, x, weight, eps, training, mean, var, dx, dweight, dbias):
    images, channels, size = x.shape
    for c in prange(channels):
        rstd = 1.0 / np.sqrt(var[c] + eps)
        summed = products = 0.0
        for n in range(images):
            partial, product = cotangent_totals(dy[n, c], x[n, c], mean[c])
            summed += partial
            products += product
        dweight[c], dbias[c] = products * rstd, summed
        count = images * size
        dy_mean = x.dtype.type(summed / count if training else 0.0)
        slope = x.dtype.type(products * rstd * rstd / count if training else 0.0)
        center, scale = x.dtype.type(mean[c]), x.dtype.type(weight[c] * rstd)
        for n in range(images):
            cotangent, plane, out = dy[n, c], x[n, c], dx[n, c]
            for j in range(size):
                out[j] = scale * (cotangent[j] - dy_mean - (plane[j] - center) * slope)


def parameter(values: np.ndarray | None, default: float, size: int, dtype: np.dtype) -> np.ndarray:
    """A weight or bias as a contiguous vector, filled with its neutral value if there is none."""
    if values is None:
        return np.full(size, default, dtype)
    values = np.ascontiguousarray(values, dtype)
    return values if values.ndim == 1 else values.reshape(size)


def as_rows(x: np.ndarray, dims: int) -> np.ndarray:
    """The last `dims` dimensions as one, all before them as another."""
    x = np.ascontiguousarray(x)
    if dims == 1 and x.ndim == 2:
        return x
    return x.reshape(prod(x.shape[: x.ndim - dims]), prod(x.shape[x.ndim - dims :]))


@register("cpu", "LayerNorm")
def layer_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, *, dims: int, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = prod(x.shape[: x.ndim - dims])
    out = np.empty(x.shape, x.dtype), np.empty(count), np.empty(count)
    layer_norm_into(out, x, weight, bias, dims=dims, eps=eps)
    return out


@register_into("cpu", "LayerNorm")
def layer_norm_into(
    out: tuple[np.ndarray, ...],
    x: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    *,
    dims: int,
    eps: float,
) -> None:
    y, mean, rstd = out
    rows = as_rows(x, dims)
    width = rows.shape[1]
    weight, bias = parameter(weight, 1, width, x.dtype), parameter(bias, 0, width, x.dtype)
    layer_norm_rows(rows, weight, bias, eps, mean, rstd, y.reshape(rows.shape))


@register("cpu", "LayerNormGrad")
def layer_norm_grad(
    dy: np.ndarray, x: np.ndarray, weight: np.ndarray | None, mean: np.ndarray, rstd: np.ndarray, *, dims: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shape = x.shape
    normalized = shape[len(shape) - dims :]
    out = np.empty(shape, x.dtype), np.empty(normalized, x.dtype), np.empty(normalized, x.dtype)
    layer_norm_grad_into(out, dy, x, weight, mean, rstd, dims=dims)
    return out


@register_into("cpu", "LayerNormGrad")
def layer_norm_grad_into(
    out: tuple[np.ndarray, ...],
    dy: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray | None,
    mean: np.ndarray,
    rstd: np.ndarray,
    *,
    dims: int,
) -> None:
    dx, dweight, dbias = out
    dy, x = as_rows(dy, dims), as_rows(x, dims)
    width = x.shape[1]
    weight = parameter(weight, 1, width, x.dtype)
    layer_norm_grad_rows(dy, x, weight, mean, rstd, dx.reshape(x.shape), dweight.reshape(width), dbias.reshape(width))


def as_planes(x: np.ndarray) -> np.ndarray:
    """(N, C, ...) as contiguous (N, C, L); short planes as (1, C, N * L), since one long row is faster."""
    images, channels, size = x.shape[0], x.shape[1], prod(x.shape[2:])
    if size < SHORT_PLANE:
        return np.ascontiguousarray(x.swapaxes(0, 1)).reshape(1, channels, images * size)
    return np.ascontiguousarray(x).reshape(images, channels, size)


def planes_for(y: np.ndarray) -> np.ndarray:
    """Memory for the results of `y` (N, C, ...) in the form that `as_planes` gives: `y` itself for long planes."""
    images, channels, size = y.shape[0], y.shape[1], prod(y.shape[2:])
    if size < SHORT_PLANE:
        return np.empty((1, channels, images * size), y.dtype)
    return y.reshape(images, channels, size)


def from_planes(planes: np.ndarray, y: np.ndarray) -> None:
    """Bring results from the memory of `planes_for` to `y`."""
    if prod(y.shape[2:]) < SHORT_PLANE:
        np.copyto(y, planes.reshape(y.shape[1], y.shape[0], *y.shape[2:]).swapaxes(0, 1))


@register("cpu", "BatchNorm")
def batch_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, *, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    channels = x.shape[1]
    out = np.empty(x.shape, x.dtype), np.empty(channels), np.empty(channels)
    batch_norm_into(out, x, weight, bias, eps=eps)
    return out


@register_into("cpu", "BatchNorm")
def batch_norm_into(
    out: tuple[np.ndarray, ...], x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, *, eps: float
) -> None:
    y, mean, var = out
    normalize(y, x, mean, var, weight, bias, eps, True)


@register("cpu", "BatchNormInference")
def batch_norm_inference(
    x: np.ndarray, mean: np.ndarray, var: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, *, eps: float
) -> np.ndarray:
    y = np.empty(x.shape, x.dtype)
    batch_norm_inference_into(y, x, mean, var, weight, bias, eps=eps)
    return y


@register_into("cpu", "BatchNormInference")
def batch_norm_inference_into(
    y: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    *,
    eps: float,
) -> None:
    mean, var = (np.ascontiguousarray(statistic, np.float64) for statistic in (mean, var))
    normalize(y, x, mean, var, weight, bias, eps, False)


def normalize(y, x, mean, var, weight, bias, eps, training):
    """Run the channels' loop on planes."""
    planes, results = as_planes(x), planes_for(y)
    channels = planes.shape[1]
    weight, bias = parameter(weight, 1, channels, x.dtype), parameter(bias, 0, channels, x.dtype)
    batch_norm_channels(planes, weight, bias, eps, training, mean, var, results)
    from_planes(results, y)


@register("cpu", "BatchNormGrad")
def batch_norm_grad(
    dy: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray | None,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    eps: float,
    training: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    channels = x.shape[1]
    out = np.empty(x.shape, x.dtype), np.empty(channels, x.dtype), np.empty(channels, x.dtype)
    batch_norm_grad_into(out, dy, x, weight, mean, var, eps=eps, training=training)
    return out


@register_into("cpu", "BatchNormGrad")
def batch_norm_grad_into(
    out: tuple[np.ndarray, ...],
    dy: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray | None,
    mean: np.ndarray,
    var: np.ndarray,
    *,
    eps: float,
    training: bool,
) -> None:
    dx, dweight, dbias = out
    dy, x, results = as_planes(dy), as_planes(x), planes_for(dx)
    mean, var = (np.ascontiguousarray(statistic, np.float64) for statistic in (mean, var))
    weight = parameter(weight, 1, x.shape[1], x.dtype)
    batch_norm_grad_channels(dy, x, weight, eps, training, mean, var, results, dweight, dbias)
    from_planes(results, dx)
