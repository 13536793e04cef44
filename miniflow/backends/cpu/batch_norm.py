"""Batch norm, alone or followed by a sum with z and ReLU, over the planes x[n, c] of each channel.

A channel stays in the cache while its statistics and then its results are computed. Mean and variance take two passes,
and are kept in float64.
"""

from __future__ import annotations

import functools
from math import prod

import numpy as np

from miniflow.backends.cpu.layer_norm import parameter, plane_totals, total, total_square_deviation
from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel

SHORT_PLANE = 8  # elements


@unlocked()
def normalize_channels(start, stop, x, weight, bias, z, relu, eps, training, mean, var, y):
    """Normalize channels start to stop of (N, C, L); z is empty if there is none. In training, mean and var (biased)
    are computed, 0 for no elements; else they are inputs."""
    images, _, size = x.shape
    count, zero = max(images * size, 1), x.dtype.type(0)
    for c in range(start, stop):
        if training:
            summed = squares = 0.0
            for n in range(images):
                summed += total(x[n, c])
            mean[c] = summed / count
            for n in range(images):
                squares += total_square_deviation(x[n, c], mean[c])
            var[c] = squares / count
        center, shift = x.dtype.type(mean[c]), bias[c]
        scale = x.dtype.type(weight[c] / np.sqrt(var[c] + eps))
        for n in range(images):
            plane, out = x[n, c], y[n, c]
            if z.size:
                shortcut = z[n, c]
                for j in range(size):
                    value = (plane[j] - center) * scale + shift + shortcut[j]
                    out[j] = zero if value <= zero else value
            elif relu:
                for j in range(size):
                    value = (plane[j] - center) * scale + shift
                    out[j] = zero if value <= zero else value
            else:
                for j in range(size):
                    out[j] = (plane[j] - center) * scale + shift


@unlocked()
def differentiate_channels(
    start, stop, dy, y, x, weight, eps, training, mean, var, dx, dweight, dbias, masked, plane_sum, plane_product
):
    """The gradient of channels start to stop; y, the result of ReLU, is empty without ReLU. `masked` is dy of one
    channel where y > 0, else 0: sums of masked numbers, and loops that write what they read, are not vectorized."""
    images, _, size = x.shape
    count, zero = max(images * size, 1), x.dtype.type(0)
    for c in range(start, stop):
        rstd = 1.0 / np.sqrt(var[c] + eps)
        summed = products = 0.0
        for n in range(images):
            g = dy[n, c]
            if y.size:
                cotangent, result, g = dy[n, c], y[n, c], masked[n]
                for j in range(size):
                    value = cotangent[j]
                    g[j] = zero if result[j] <= zero else value
            plane_totals(g, x[n, c], mean[c], plane_sum, plane_product)
            summed += plane_sum[0]
            products += plane_product[0]
        dweight[c], dbias[c] = products * rstd, summed
        dy_mean, slope = x.dtype.type(summed / count), x.dtype.type(products * rstd * rstd / count)
        center, scale = x.dtype.type(mean[c]), x.dtype.type(weight[c] * rstd)
        for n in range(images):
            g, plane, out = masked[n] if y.size else dy[n, c], x[n, c], dx[n, c]
            for j in range(size):
                out[j] = scale * (g[j] - dy_mean - (plane[j] - center) * slope if training else g[j])


@functools.lru_cache(maxsize=1024)
def plane_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(N, C, ...) as (N, C, L); short planes as (1, C, N * L), since one long row is faster."""
    images, channels, size = shape[0], shape[1], prod(shape[2:])
    return (images, channels, size) if size >= SHORT_PLANE else (1, channels, images * size)


def as_planes(x: np.ndarray) -> np.ndarray:
    """A contiguous array of `plane_shape`: a view of `x`, or a copy."""
    shape = plane_shape(x.shape)
    return np.ascontiguousarray(x if len(x) == shape[0] else x.swapaxes(0, 1)).reshape(shape)


def from_planes(planes: np.ndarray, y: np.ndarray) -> None:
    """Copy results from `as_planes(y)` to `y`, unless they share memory."""
    if len(planes) != len(y):
        np.copyto(y, planes.reshape(y.shape[1], y.shape[0], *y.shape[2:]).swapaxes(0, 1))


def normalize(y, x, mean, var, weight, bias, z, *, relu, eps, training) -> None:
    """Run `normalize_channels` on the planes of `x`."""
    planes, results = as_planes(x), as_planes(y)
    channels = planes.shape[1]
    shortcut = np.empty((0, 0, 0), x.dtype) if z is None else as_planes(z)
    weight, bias = parameter(weight, 1, channels, x.dtype), parameter(bias, 0, channels, x.dtype)
    mean, var = np.ascontiguousarray(mean, np.float64), np.ascontiguousarray(var, np.float64)
    arguments = planes, weight, bias, shortcut, relu, eps, training
    share(normalize_channels, channels, x.size, *arguments, mean, var, results)
    from_planes(results, y)


@kernel("cpu")
def batch_norm(out, x, weight, bias, *, eps):
    normalize(*out[:1], x, *out[1:], weight, bias, None, relu=False, eps=eps, training=True)


@kernel("cpu")
def batch_norm_inference(y, x, mean, var, weight, bias, *, eps):
    normalize(y, x, mean, var, weight, bias, None, relu=False, eps=eps, training=False)


@kernel("cpu")
def batch_norm_relu(out, x, weight, bias, z, *, eps):
    normalize(*out[:1], x, *out[1:], weight, bias, z, relu=True, eps=eps, training=True)


@kernel("cpu")
def batch_norm_relu_inference(y, x, mean, var, weight, bias, z, *, eps):
    normalize(y, x, mean, var, weight, bias, z, relu=True, eps=eps, training=False)


@kernel("cpu")
def batch_norm_relu_grad(out, dy, y, x, weight, mean, var, *, eps, training):
    dx, dweight, dbias = out
    results = as_planes(dx)
    y = np.empty((0, 0, 0), x.dtype) if y is None else as_planes(y)
    mean, var = np.ascontiguousarray(mean, np.float64), np.ascontiguousarray(var, np.float64)
    arguments = as_planes(dy), y, as_planes(x), parameter(weight, 1, dweight.size, x.dtype), eps, training, mean, var
    images, _, size = results.shape

    def differentiate(start: int, stop: int) -> None:
        buffers = np.empty((images if y.size else 0, size), x.dtype), np.empty(1), np.empty(1)
        differentiate_channels(start, stop, *arguments, results, dweight, dbias, *buffers)

    share(differentiate, dweight.size, x.size)
    from_planes(results, dx)


@kernel("cpu")
def batch_norm_grad(out, dy, x, weight, mean, var, *, eps, training):
    batch_norm_relu_grad(out, dy, None, x, weight, mean, var, eps=eps, training=training)
