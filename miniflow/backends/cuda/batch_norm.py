"""Batch norm, alone or followed by a sum with z and ReLU: launches over the planes x[n, c] of a channel."""

from __future__ import annotations

from math import prod

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.layer_norm import parameter
from miniflow.backends.cuda.softmax import threads_for
from miniflow.backends.registry import kernel
from miniflow.kernels import batch_norm as kernels
from miniflow.kernels.reduce import WARP

SHORT_PLANE = 8  # elements


def as_planes(x: DeviceArray) -> DeviceArray:
    """(N, C, ...) as contiguous (N * C, L); short planes as (C, N * L), since a block takes one plane at a time."""
    images, channels, size = x.shape[0], x.shape[1], prod(x.shape[2:])
    if size < SHORT_PLANE:
        return contiguous(x.view(lambda a: a.swapaxes(0, 1))).reshape((channels, images * size))
    return contiguous(x).reshape((images * channels, size))


def planes_for(y: DeviceArray) -> DeviceArray:
    """Memory for the results of `y` (N, C, ...) in the form that `as_planes` gives: `y` itself for long planes."""
    images, channels, size = y.shape[0], y.shape[1], prod(y.shape[2:])
    if size < SHORT_PLANE:
        return empty((channels, images * size), y.dtype, y.device_index)
    return y.reshape((images * channels, size))


def from_planes(planes: DeviceArray, y: DeviceArray) -> None:
    """Bring results from the memory of `planes_for` to `y`."""
    if prod(y.shape[2:]) < SHORT_PLANE:
        copy_into(y, planes.reshape((y.shape[1], y.shape[0], *y.shape[2:])).view(lambda a: a.swapaxes(0, 1)))


def over_segments(planes: DeviceArray) -> tuple[tuple[int, int], int]:
    """The grid that has a block for each segment of each plane, and the threads of a block."""
    count, size = planes.shape
    return (count, -(-size // kernels.SEGMENT)), threads_for(min(size, kernels.SEGMENT))


def of_segments(planes: DeviceArray, channels: int) -> DeviceArray:
    """Room for a number of each segment, by channels."""
    (count, segments), _ = over_segments(planes)
    return empty((channels, count // max(channels, 1) * segments), np.float64, planes.device_index)


def batch_statistics(mean: DeviceArray, var: DeviceArray, planes: DeviceArray) -> None:
    """The mean and the biased variance of each channel; 0 for no elements."""
    parts = [of_segments(planes, mean.size) for _ in range(3)]
    launch(kernels.channel_statistics, *over_segments(planes), planes, *parts)
    launch(kernels.merge_statistics, mean.size, WARP, *parts, mean, var)


def normalize(y, planes, mean, var, weight, bias, z, *, relu, eps) -> None:
    """y = (planes - mean) / sqrt(var + eps) * weight + bias, or relu(that + z)."""
    results = planes_for(y)
    weight, bias = parameter(weight, 1, mean.size, planes), parameter(bias, 0, mean.size, planes)
    planes_kernels = kernels.ADD_RELU if z is not None else kernels.RELU if relu else kernels.ALONE
    mean, var = contiguous(mean, np.float64), contiguous(var, np.float64)
    arguments = planes if z is None else as_planes(z), mean, var, weight, bias, eps, results
    launch(planes_kernels.normalize, *over_segments(planes), planes, *arguments)
    from_planes(results, y)


@kernel("cuda")
def batch_norm_relu(out, x, weight, bias, z, *, eps, relu=True):
    y, mean, var = out
    planes = as_planes(x)
    batch_statistics(mean, var, planes)
    normalize(y, planes, mean, var, weight, bias, z, relu=relu, eps=eps)


@kernel("cuda")
def batch_norm(out, x, weight, bias, *, eps):
    batch_norm_relu(out, x, weight, bias, None, eps=eps, relu=False)


@kernel("cuda")
def batch_norm_inference(y, x, mean, var, weight, bias, *, eps):
    normalize(y, as_planes(x), mean, var, weight, bias, None, relu=False, eps=eps)


@kernel("cuda")
def batch_norm_relu_inference(y, x, mean, var, weight, bias, z, *, eps):
    normalize(y, as_planes(x), mean, var, weight, bias, z, relu=True, eps=eps)


@kernel("cuda")
def batch_norm_grad(out, dy, x, weight, mean, var, *, eps, training):
    batch_norm_relu_grad(out, dy, None, x, weight, mean, var, eps=eps, training=training)


@kernel("cuda")
def batch_norm_relu_grad(out, dy, y, x, weight, mean, var, *, eps, training):
    """From the cotangents of what follows batch norm, and from its result `y` if that is ReLU."""
    dx, dweight, dbias = out
    planes, dy = kernels.ALONE if y is None else kernels.RELU, as_planes(dy)
    cotangents = dy, dy if y is None else as_planes(y)
    x, mean, var, results = as_planes(x), contiguous(mean, np.float64), contiguous(var, np.float64), planes_for(dx)
    sums, products = (of_segments(x, mean.size) for _ in range(2))
    launch(planes.products, *over_segments(x), *cotangents, x, mean, sums, products)
    launch(kernels.merge_products, mean.size, WARP, sums, products, var, eps, dweight, dbias)
    arguments = mean, var, parameter(weight, 1, mean.size, x), eps, training, dweight, dbias
    launch(planes.gradient, *over_segments(x), *cotangents, x, *arguments, results)
    from_planes(results, dx)
