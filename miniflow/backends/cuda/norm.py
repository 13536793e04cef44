"""Normalization kernels: layer norm works on rows, batch norm on the planes x[n, c] of a channel."""

from __future__ import annotations

from math import prod

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty, full
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.reduce import total
from miniflow.backends.cuda.softmax import threads_for
from miniflow.backends.registry import register
from miniflow.kernels import batch_norm as planes_kernels
from miniflow.kernels import layer_norm as rows_kernels
from miniflow.kernels.reduce import THREADS, WARP, WARPS

PART_ROWS, PARTS = 64, 256  # rows of a part at least, and parts at most, in the sums for the parameters' gradients
SHORT_PLANE = 8  # elements


def parameter(values: DeviceArray | None, default: float, size: int, x: DeviceArray) -> DeviceArray:
    """A weight or bias as a contiguous vector in the dtype of x, filled with its neutral value if there is none."""
    if values is None:
        return full((size,), default, x.dtype, x.device_index)
    return contiguous(values if values.dtype == x.dtype else values.astype(x.dtype)).reshape((size,))


def statistic(values: DeviceArray) -> DeviceArray:
    """A mean or variance as a contiguous float64 vector."""
    return contiguous(values if values.dtype == np.float64 else values.astype(np.float64))


def as_rows(x: DeviceArray, dims: int) -> DeviceArray:
    """The last `dims` dimensions as one, all before them as another."""
    return contiguous(x).reshape((prod(x.shape[: x.ndim - dims]), prod(x.shape[x.ndim - dims :])))


def values_per_lane(width: int) -> int:
    """The power of two of values that each lane of a warp keeps of a row."""
    return 1 << max(-(-width // WARP) - 1, 0).bit_length()


def in_registers(width: int) -> bool:
    """Whether lanes keep their part of a row; an emulated device has no registers, but a cache to read it again."""
    return width <= WARP * rows_kernels.LANE_VALUES and not driver().emulated


@register("cuda", "LayerNorm")
def layer_norm(
    x: DeviceArray, weight: DeviceArray | None, bias: DeviceArray | None, *, dims: int, eps: float
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    rows = as_rows(x, dims)
    count, width = rows.shape
    y = empty(x.shape, x.dtype, x.device_index)
    mean, rstd = (empty((count,), np.float64, x.device_index) for _ in range(2))
    weight, bias = parameter(weight, 1, width, x), parameter(bias, 0, width, x)
    arguments = rows, weight, bias, eps, y.reshape(rows.shape), mean, rstd
    if in_registers(width):
        launch(rows_kernels.warp_rows(values_per_lane(width)), -(-count // WARPS), THREADS, *arguments)
    elif width * x.itemsize <= rows_kernels.SHARED_BYTES and not driver().emulated:
        launch(rows_kernels.cached_rows, count, THREADS, *arguments, shared=width * x.itemsize)
    else:
        launch(rows_kernels.long_rows, count, threads_for(width), *arguments)
    return y, mean, rstd


@register("cuda", "LayerNormGrad")
def layer_norm_grad(
    dy: DeviceArray, x: DeviceArray, weight: DeviceArray | None, mean: DeviceArray, rstd: DeviceArray, *, dims: int
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    shape, normalized = x.shape, x.shape[x.ndim - dims :]
    dy, x = as_rows(dy, dims), as_rows(x, dims)
    count, width = x.shape
    dx = empty(x.shape, x.dtype, x.device_index)
    arguments = dy, x, parameter(weight, 1, width, x), mean, rstd, dx
    if in_registers(width):
        launch(rows_kernels.warp_rows_grad(values_per_lane(width)), -(-count // WARPS), THREADS, *arguments)
    else:
        launch(rows_kernels.long_rows_grad, count, threads_for(width), *arguments)
    dweight, dbias = (g.reshape(normalized) for g in parameter_gradients(dy, x, mean, rstd))
    return dx.reshape(shape), dweight, dbias


def parameter_gradients(
    dy: DeviceArray, x: DeviceArray, mean: DeviceArray, rstd: DeviceArray
) -> tuple[DeviceArray, DeviceArray]:
    """The sums of dy xhat and of dy over the rows: first over parts of the rows, then over the parts."""
    count, width = x.shape
    chunk = max(PART_ROWS, -(-count // PARTS))
    parts = max(1, -(-count // chunk))
    products, sums = (empty((parts, width), x.dtype, x.device_index) for _ in range(2))
    threads = min(THREADS, -(-width // WARP) * WARP)
    grid = (-(-width // max(threads, 1)), parts)
    launch(rows_kernels.parameter_grad_parts, grid, threads, dy, x, mean, rstd, chunk, products, sums)
    if parts == 1:
        return products, sums
    return total(products, 0, False), total(sums, 0, False)


def as_planes(x: DeviceArray) -> DeviceArray:
    """(N, C, ...) as contiguous (N * C, L); short planes as (C, N * L), since a block takes one plane at a time."""
    images, channels, size = x.shape[0], x.shape[1], prod(x.shape[2:])
    if size < SHORT_PLANE:
        return contiguous(x.view(lambda a: a.swapaxes(0, 1))).reshape((channels, images * size))
    return contiguous(x).reshape((images * channels, size))


def from_planes(y: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """The inverse of `as_planes`."""
    if prod(shape[2:]) < SHORT_PLANE:
        swapped = y.reshape((shape[1], shape[0], *shape[2:]))
        return contiguous(swapped.view(lambda a: a.swapaxes(0, 1)))
    return y.reshape(shape)


def over_segments(planes: DeviceArray) -> tuple[tuple[int, int], int]:
    """The grid that has a block for each segment of each plane, and the threads of a block."""
    count, size = planes.shape
    return (count, -(-size // planes_kernels.SEGMENT)), threads_for(min(size, planes_kernels.SEGMENT))


def of_segments(planes: DeviceArray, channels: int) -> DeviceArray:
    """Room for a number of each segment, by channels."""
    (count, segments), _ = over_segments(planes)
    return empty((channels, count // max(channels, 1) * segments), np.float64, planes.device_index)


@register("cuda", "BatchNorm")
def batch_norm(
    x: DeviceArray, weight: DeviceArray | None, bias: DeviceArray | None, *, eps: float
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    planes, channels = as_planes(x), x.shape[1]
    mean, var = (empty((channels,), np.float64, x.device_index) for _ in range(2))
    parts = [of_segments(planes, channels) for _ in range(3)]
    launch(planes_kernels.channel_statistics, *over_segments(planes), planes, *parts)
    launch(planes_kernels.merge_statistics, channels, WARP, *parts, mean, var)
    return from_planes(normalize(planes, mean, var, weight, bias, eps), x.shape), mean, var


@register("cuda", "BatchNormInference")
def batch_norm_inference(
    x: DeviceArray,
    mean: DeviceArray,
    var: DeviceArray,
    weight: DeviceArray | None,
    bias: DeviceArray | None,
    *,
    eps: float,
) -> DeviceArray:
    return from_planes(normalize(as_planes(x), statistic(mean), statistic(var), weight, bias, eps), x.shape)


def normalize(
    planes: DeviceArray,
    mean: DeviceArray,
    var: DeviceArray,
    weight: DeviceArray | None,
    bias: DeviceArray | None,
    eps: float,
) -> DeviceArray:
    """(planes - mean) / sqrt(var + eps) * weight + bias"""
    weight, bias = parameter(weight, 1, mean.size, planes), parameter(bias, 0, mean.size, planes)
    y = empty(planes.shape, planes.dtype, planes.device_index)
    launch(planes_kernels.normalize_planes, *over_segments(planes), planes, mean, var, weight, bias, eps, y)
    return y


@register("cuda", "BatchNormGrad")
def batch_norm_grad(
    dy: DeviceArray,
    x: DeviceArray,
    weight: DeviceArray | None,
    mean: DeviceArray,
    var: DeviceArray,
    *,
    eps: float,
    training: bool,
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    shape, channels = x.shape, x.shape[1]
    dy, x, mean, var = as_planes(dy), as_planes(x), statistic(mean), statistic(var)
    sums, products = (of_segments(x, channels) for _ in range(2))
    dweight, dbias = (empty((channels,), x.dtype, x.device_index) for _ in range(2))
    dx = empty(x.shape, x.dtype, x.device_index)
    launch(planes_kernels.channel_products, *over_segments(x), dy, x, mean, sums, products)
    launch(planes_kernels.merge_products, channels, WARP, sums, products, var, eps, dweight, dbias)
    given = mean, var, parameter(weight, 1, channels, x), eps, training, dweight, dbias
    launch(planes_kernels.normalize_planes_grad, *over_segments(x), dy, x, *given, dx)
    return from_planes(dx, shape), dweight, dbias
