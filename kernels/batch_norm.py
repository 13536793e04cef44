"""Batch norm of x (images * channels, size): each channel by mean and variance over all its planes.

A *plane* is a row of x: plane n * channels + c is channel c of image n. A *segment* is a run of up to `SEGMENT`
elements of a plane: planes are long in the first layers of a network and short in the last. A block owns a segment,
blockIdx = (plane, segment), with one warp for short ones, up to eight; thread i takes the elements i, i + blockDim.x,
and so on.

    channel_statistics   the mean of each segment, then the sum of its squared deviations from that.
    merge_statistics     one warp a channel merges those of its segments: mean and biased variance, in float64.
    normalize            y = (x - mean) * rstd * weight + bias.
    products, merge_products, gradient   the same three steps for the gradients: sum dy and sum dy (x - mean), their
                         sums over a channel, then dx.

Training reads x twice, a third time while a segment lies in the cache, and writes y once; the statistics of segments
are (channels, images * segments) float64, a few per plane. No atomics: the segments of a channel are added in the same
order every time.

A sum with a shortcut z and ReLU can be part of the pass: as single ops they would have one or two more arrays to write
and read. The gradient of ReLU, g = dy where y > 0, else 0, is then part of both passes over dy. Where `z` or `y` has no
part in it, it is any array of the same shape, and not read.
"""

import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import FULL, WARP, WARPS, warp_sum
from miniflow.kernels.softmax import block_sum

SEGMENT = 4096  # elements


@cuda.jit(device=True)
def merged(count, mean, squares, other_count, other_mean, other_squares):
    """Count, mean and sum of squared deviations of two sets together: Chan, Golub and LeVeque 1979. Counts are floats,
    and may be 0."""
    total = count + other_count
    share = other_count / total if total > 0 else total
    delta = other_mean - mean
    return total, mean + delta * share, squares + other_squares + delta * delta * count * share


@cuda.jit
def channel_statistics(x, counts, means, squares):
    """`channel_statistics[(planes, segments), threads]`, segments = ceil(size / SEGMENT); the results are (channels,
    images * segments) float64."""
    partial = cuda.shared.array(WARPS, x.dtype)
    plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % counts.shape[0]
    start = cuda.blockIdx.y * SEGMENT
    stop = min(start + SEGMENT, x.shape[1])
    total = square = x.dtype.type(0)
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        total += x[plane, j]
    mean = block_sum(total, partial) / x.dtype.type(stop - start)
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        deviation = x[plane, j] - mean
        square += deviation * deviation
    square = block_sum(square, partial)
    if cuda.threadIdx.x == 0:
        at = plane // counts.shape[0] * cuda.gridDim.y + cuda.blockIdx.y
        counts[channel, at] = stop - start
        means[channel, at] = mean
        squares[channel, at] = square


@cuda.jit
def merge_statistics(counts, means, squares, mean, var):
    """`merge_statistics[channels, 32]`: lanes take every 32nd segment; mean and var are (channels,) float64."""
    channel = cuda.blockIdx.x
    count = total_mean = square = 0.0
    for i in range(cuda.threadIdx.x, counts.shape[1], WARP):
        segment_mean, segment_square = means[channel, i], squares[channel, i]
        count, total_mean, square = merged(count, total_mean, square, counts[channel, i], segment_mean, segment_square)
    for k in range(5):
        other_count = cuda.shfl_xor_sync(FULL, count, 16 >> k)
        other_mean = cuda.shfl_xor_sync(FULL, total_mean, 16 >> k)
        other_square = cuda.shfl_xor_sync(FULL, square, 16 >> k)
        count, total_mean, square = merged(count, total_mean, square, other_count, other_mean, other_square)
    if cuda.threadIdx.x == 0:
        mean[channel] = total_mean
        var[channel] = square / max(count, 1.0)


@cuda.jit
def merge_products(sums, products, var, eps, dweight, dbias):
    """dbias = sum dy and dweight = sum dy xhat; `merge_products[channels, 32]`; both are (channels,)."""
    channel = cuda.blockIdx.x
    total = product = 0.0
    for i in range(cuda.threadIdx.x, sums.shape[1], WARP):
        total += sums[channel, i]
        product += products[channel, i]
    total = warp_sum(total)
    product = warp_sum(product)
    if cuda.threadIdx.x == 0:
        dbias[channel] = total
        dweight[channel] = product / math.sqrt(var[channel] + eps)


class Planes:
    """The kernels for batch norm and what follows it.

    Args:
        finish: finish(value, z) is the result for a normalized value.
        cotangent: cotangent(dy, y) is that of the normalized value, from that of the result y.
    """

    def __init__(self, finish, cotangent):
        self.normalize = make_normalize(finish)
        self.products, self.gradient = make_products(cotangent), make_gradient(cotangent)


def make_normalize(finish):
    """`normalize[(planes, segments), threads](x, z, mean, var, weight, bias, eps, y)`; mean and var are (channels,)
    float64."""

    @cuda.jit
    def normalize(x, z, mean, var, weight, bias, eps, y):
        plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
        start = cuda.blockIdx.y * SEGMENT
        stop = min(start + SEGMENT, x.shape[1])
        center, shift = x.dtype.type(mean[channel]), bias[channel]
        scale = x.dtype.type(weight[channel] / math.sqrt(var[channel] + eps))
        for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
            y[plane, j] = finish((x[plane, j] - center) * scale + shift, z[plane, j])

    return normalize


def make_products(cotangent):
    """`products[(planes, segments), threads](dy, y, x, mean, sums, products)`: sum g and sum g (x - mean) of each
    segment, g being the cotangents; the results are (channels, images * segments) float64."""

    @cuda.jit
    def channel_products(dy, y, x, mean, sums, products):
        partial = cuda.shared.array(WARPS, x.dtype)
        plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
        start = cuda.blockIdx.y * SEGMENT
        stop = min(start + SEGMENT, x.shape[1])
        center = x.dtype.type(mean[channel])
        total = product = x.dtype.type(0)
        for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
            g = cotangent(dy[plane, j], y[plane, j])
            total += g
            product += g * (x[plane, j] - center)
        total = block_sum(total, partial)
        product = block_sum(product, partial)
        if cuda.threadIdx.x == 0:
            at = plane // mean.shape[0] * cuda.gridDim.y + cuda.blockIdx.y
            sums[channel, at] = total
            products[channel, at] = product

    return channel_products


def make_gradient(cotangent):
    """`gradient[(planes, segments), threads](dy, y, x, mean, var, weight, eps, training, dweight, dbias, dx)`

    dx = weight rstd (g - (dbias + xhat dweight) / count), g being the cotangents; outside of training the mean and the
    variance do not depend on x, and dx = weight rstd g.
    """

    @cuda.jit
    def gradient(dy, y, x, mean, var, weight, eps, training, dweight, dbias, dx):
        plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
        start = cuda.blockIdx.y * SEGMENT
        stop = min(start + SEGMENT, x.shape[1])
        rstd = 1.0 / math.sqrt(var[channel] + eps)
        count = np.float64(x.shape[0] // mean.shape[0] * x.shape[1])
        center, scale = x.dtype.type(mean[channel]), x.dtype.type(weight[channel] * rstd)
        dy_mean, slope = x.dtype.type(dbias[channel] / count), x.dtype.type(dweight[channel] * rstd / count)
        for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
            g = cotangent(dy[plane, j], y[plane, j])
            dx[plane, j] = scale * (g - dy_mean - (x[plane, j] - center) * slope if training else g)

    return gradient


@cuda.jit(device=True)
def first(value, other):
    return value


@cuda.jit(device=True)
def relu(value, z):
    return type(value)(0) if value <= 0 else value


@cuda.jit(device=True)
def relu_of_sum(value, z):
    return relu(value + z, z)


@cuda.jit(device=True)
def where_positive(dy, y):
    return type(dy)(0) if y <= 0 else dy


ALONE = Planes(first, first)
RELU = Planes(relu, where_positive)
ADD_RELU = Planes(relu_of_sum, where_positive)
