"""Batch norm, sum and ReLU in the launches of batch norm alone."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, empty
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.norm import as_planes, from_planes, of_segments, over_segments, parameter, statistic
from miniflow.backends.registry import register
from miniflow.kernels import batch_norm as planes_kernels
from miniflow.kernels import norm_activation as kernels
from miniflow.kernels.reduce import WARP

Parameter = DeviceArray | None


@register("cuda", "BatchNormRelu")
def batch_norm_relu(
    x: DeviceArray, weight: Parameter, bias: Parameter, z: Parameter, *, eps: float
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    planes, channels = as_planes(x), x.shape[1]
    mean, var = (empty((channels,), np.float64, x.device_index) for _ in range(2))
    parts = [of_segments(planes, channels) for _ in range(3)]
    launch(planes_kernels.channel_statistics, *over_segments(planes), planes, *parts)
    launch(planes_kernels.merge_statistics, channels, WARP, *parts, mean, var)
    return normalize(planes, mean, var, weight, bias, z, eps, x.shape), mean, var


@register("cuda", "BatchNormReluInference")
def batch_norm_relu_inference(
    x: DeviceArray, mean: DeviceArray, var: DeviceArray, weight: Parameter, bias: Parameter, z: Parameter, *, eps: float
) -> DeviceArray:
    return normalize(as_planes(x), statistic(mean), statistic(var), weight, bias, z, eps, x.shape)


def normalize(planes, mean, var, weight, bias, z, eps, shape) -> DeviceArray:
    """relu((planes - mean) / sqrt(var + eps) * weight + bias + z), in the shape of the images."""
    given = mean, var, parameter(weight, 1, mean.size, planes), parameter(bias, 0, mean.size, planes), eps
    y = empty(planes.shape, planes.dtype, planes.device_index)
    if z is None:
        launch(kernels.normalize_relu_planes, *over_segments(planes), planes, *given, y)
    else:
        launch(kernels.normalize_add_relu_planes, *over_segments(planes), planes, as_planes(z), *given, y)
    return from_planes(y, shape)


@register("cuda", "BatchNormReluGrad")
def batch_norm_relu_grad(
    dy: DeviceArray,
    y: DeviceArray,
    x: DeviceArray,
    weight: Parameter,
    mean: DeviceArray,
    var: DeviceArray,
    *,
    eps: float,
    training: bool,
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    shape, channels = x.shape, x.shape[1]
    dy, y, x, mean, var = as_planes(dy), as_planes(y), as_planes(x), statistic(mean), statistic(var)
    sums, products = (of_segments(x, channels) for _ in range(2))
    dweight, dbias = (empty((channels,), x.dtype, x.device_index) for _ in range(2))
    dx = empty(x.shape, x.dtype, x.device_index)
    launch(kernels.masked_channel_products, *over_segments(x), dy, y, x, mean, sums, products)
    launch(planes_kernels.merge_products, channels, WARP, sums, products, var, eps, dweight, dbias)
    given = mean, var, parameter(weight, 1, channels, x), eps, training, dweight, dbias
    launch(kernels.normalize_relu_planes_grad, *over_segments(x), dy, y, x, *given, dx)
    return from_planes(dx, shape), dweight, dbias
