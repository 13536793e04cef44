"""Kernels of batch norm, sum and ReLU in one pass over each channel, while it lies in the cache.

Forward reads x twice and z once, and writes y once; backward masks dy where it reads it. Each number is computed as by
the kernels of the single ops.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.norm import (
    as_planes,
    cotangent_totals,
    from_planes,
    parameter,
    planes_for,
    total,
    total_square_deviation,
)  # fmt: skip
from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import register, register_into


@unlocked()
def normalize_channels(start, stop, x, weight, bias, z, eps, training, mean, var, y):
    """Channels start to stop of (N, C, L); z has no elements where there is none. In training, mean and var (biased)
    are results, else they are given."""
    images, _, size = x.shape
    zero = x.dtype.type(0)
    for c in range(start, stop):
        if training:
            summed = squares = 0.0
            for n in range(images):
                summed += total(x[n, c])
            mean[c] = summed / (images * size)
            for n in range(images):
                squares += total_square_deviation(x[n, c], mean[c])
            var[c] = squares / (images * size)
        center, shift = x.dtype.type(mean[c]), bias[c]
        scale = x.dtype.type(weight[c] / np.sqrt(var[c] + eps))
        for n in range(images):
            plane, out = x[n, c], y[n, c]
            if z.size:
                shortcut = z[n, c]
                for j in range(size):
                    value = (plane[j] - center) * scale + shift + shortcut[j]
                    out[j] = zero if value <= zero else value
            else:
                for j in range(size):
                    value = (plane[j] - center) * scale + shift
                    out[j] = zero if value <= zero else value


@unlocked()
def differentiate_channels(start, stop, dy, y, x, weight, eps, training, mean, var, dx, dweight, dbias):
    """`masked` is dy where y > 0, else 0, of one channel, which stays in the cache: sums of masked numbers, and loops
    that write where they read, would not be vectorized."""
    images, _, size = x.shape
    zero = x.dtype.type(0)
    masked = np.empty((images, size), x.dtype)
    for c in range(start, stop):
        rstd = 1.0 / np.sqrt(var[c] + eps)
        summed = products = 0.0
        for n in range(images):
            cotangent, kept, g = dy[n, c], y[n, c], masked[n]
            for j in range(size):
                value = cotangent[j]
                g[j] = zero if kept[j] <= zero else value
            partial, product = cotangent_totals(g, x[n, c], mean[c])
            summed += partial
            products += product
        dweight[c], dbias[c] = products * rstd, summed
        count = images * size
        dy_mean = x.dtype.type(summed / count if training else 0.0)
        slope = x.dtype.type(products * rstd * rstd / count if training else 0.0)
        center, scale = x.dtype.type(mean[c]), x.dtype.type(weight[c] * rstd)
        for n in range(images):
            g, plane, out = masked[n], x[n, c], dx[n, c]
            for j in range(size):
                out[j] = scale * (g[j] - dy_mean - (plane[j] - center) * slope)


def normalize(y, x, mean, var, weight, bias, z, eps, training) -> None:
    """Run the channels' loop on planes."""
    planes, results = as_planes(x), planes_for(y)
    channels = planes.shape[1]
    shortcut = np.empty((0, 0, 0), x.dtype) if z is None else as_planes(z)
    weight, bias = parameter(weight, 1, channels, x.dtype), parameter(bias, 0, channels, x.dtype)
    share(normalize_channels, channels, x.size, planes, weight, bias, shortcut, eps, training, mean, var, results)
    from_planes(results, y)


def differentiate(out, dy, y, x, weight, mean, var, eps, training) -> None:
    """Run the channels' loop of the gradients on planes."""
    dx, dweight, dbias = out
    dy, y, x, results = as_planes(dy), as_planes(y), as_planes(x), planes_for(dx)
    mean, var = (np.ascontiguousarray(statistic, np.float64) for statistic in (mean, var))
    weight = parameter(weight, 1, x.shape[1], x.dtype)
    given = dy, y, x, weight, eps, training, mean, var
    share(differentiate_channels, x.shape[1], x.size, *given, results, dweight, dbias)
    from_planes(results, dx)


@register_into("cpu", "BatchNormRelu")
def batch_norm_relu_into(out, x, weight, bias, z, *, eps) -> None:
    y, mean, var = out
    normalize(y, x, mean, var, weight, bias, z, eps, True)


@register("cpu", "BatchNormRelu")
def batch_norm_relu(x, weight, bias, z, *, eps):
    out = np.empty(x.shape, x.dtype), np.empty(x.shape[1]), np.empty(x.shape[1])
    batch_norm_relu_into(out, x, weight, bias, z, eps=eps)
    return out


@register_into("cpu", "BatchNormReluInference")
def batch_norm_relu_inference_into(y, x, mean, var, weight, bias, z, *, eps) -> None:
    mean, var = (np.ascontiguousarray(statistic, np.float64) for statistic in (mean, var))
    normalize(y, x, mean, var, weight, bias, z, eps, False)


@register("cpu", "BatchNormReluInference")
def batch_norm_relu_inference(x, mean, var, weight, bias, z, *, eps):
    y = np.empty(x.shape, x.dtype)
    batch_norm_relu_inference_into(y, x, mean, var, weight, bias, z, eps=eps)
    return y


@register_into("cpu", "BatchNormReluGrad")
def batch_norm_relu_grad_into(out, dy, y, x, weight, mean, var, *, eps, training) -> None:
    differentiate(out, dy, y, x, weight, mean, var, eps, training)


@register("cpu", "BatchNormReluGrad")
def batch_norm_relu_grad(dy, y, x, weight, mean, var, *, eps, training):
    out = np.empty(x.shape, x.dtype), np.empty(x.shape[1], x.dtype), np.empty(x.shape[1], x.dtype)
    batch_norm_relu_grad_into(out, dy, y, x, weight, mean, var, eps=eps, training=training)
    return out
