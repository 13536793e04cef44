"""Batch norm of x (images * channels, size): each channel by mean and variance over all its planes.

A *plane* is a row of x: plane n * channels + c is channel c of image n. A *segment* is a run of up to `SEGMENT`
elements of a plane: planes are long in the first layers of a network and short in the last. A block owns a segment,
blockIdx = (plane, segment), with one warp for short ones, up to eight; thread i takes the elements i, i + blockDim.x,
and so on.

    channel_statistics   Welford in each thread, merged by shuffles: mean and sum of squared deviations of each segment.
    merge_statistics     one warp a channel merges those of its segments: mean and biased variance, in float64.
    normalize_planes     y = (x - mean) * rstd * weight + bias.
    channel_products, merge_products, normalize_planes_grad   the same three steps for the gradients: sum dy and
                         sum dy (x - mean), their sums over a channel, then dx.

Training reads x twice and writes y once; the statistics of segments are (channels, images * segments) float64, a few
per plane. No atomics: the segments of a channel are added in the same order every time.
"""

import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.layer_norm import block_welford, warp_welford
from miniflow.kernels.reduce import WARP, WARPS, warp_sum
from miniflow.kernels.softmax import block_sum

SEGMENT = 4096  # elements


@cuda.jit
def channel_statistics(x, counts, means, squares):
    """`channel_statistics[(planes, segments), threads]`, segments = ceil(size / SEGMENT); the results are (channels,
    images * segments) float64."""
    partial = cuda.shared.array((3, WARPS), x.dtype)
    plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % counts.shape[0]
    start = cuda.blockIdx.y * SEGMENT
    stop = min(start + SEGMENT, x.shape[1])
    count = mean = square = x.dtype.type(0)
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        value = x[plane, j]
        count += x.dtype.type(1)
        delta = value - mean
        mean += delta / count
        square += delta * (value - mean)
    count, mean, square = block_welford(count, mean, square, partial)
    if cuda.threadIdx.x == 0:
        at = plane // counts.shape[0] * cuda.gridDim.y + cuda.blockIdx.y
        counts[channel, at] = count
        means[channel, at] = mean
        squares[channel, at] = square


@cuda.jit
def merge_statistics(counts, means, squares, mean, var):
    """`merge_statistics[channels, 32]`: lanes take every 32nd segment; mean and var are (channels,) float64."""
    channel = cuda.blockIdx.x
    count = total_mean = square = 0.0
    for i in range(cuda.threadIdx.x, counts.shape[1], WARP):
        total = count + counts[channel, i]
        delta = means[channel, i] - total_mean
        square += squares[channel, i] + delta * delta * count * counts[channel, i] / total
        total_mean += delta * counts[channel, i] / total
        count = total
    count, total_mean, square = warp_welford(count, total_mean, square)
    if cuda.threadIdx.x == 0:
        mean[channel] = total_mean
        var[channel] = square / max(count, 1.0)


@cuda.jit
def normalize_planes(x, mean, var, weight, bias, eps, y):
    """`normalize_planes[(planes, segments), threads]`; mean and var are (channels,) float64."""
    plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
    start = cuda.blockIdx.y * SEGMENT
    stop = min(start + SEGMENT, x.shape[1])
    center, shift = x.dtype.type(mean[channel]), bias[channel]
    scale = x.dtype.type(weight[channel] / math.sqrt(var[channel] + eps))
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        y[plane, j] = (x[plane, j] - center) * scale + shift


@cuda.jit
def channel_products(dy, x, mean, sums, products):
    """sum dy and sum dy (x - mean) of each segment; the results are (channels, images * segments) float64."""
    partial = cuda.shared.array(WARPS, x.dtype)
    plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
    start = cuda.blockIdx.y * SEGMENT
    stop = min(start + SEGMENT, x.shape[1])
    center = x.dtype.type(mean[channel])
    total = product = x.dtype.type(0)
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        total += dy[plane, j]
        product += dy[plane, j] * (x[plane, j] - center)
    total = block_sum(total, partial)
    product = block_sum(product, partial)
    if cuda.threadIdx.x == 0:
        at = plane // mean.shape[0] * cuda.gridDim.y + cuda.blockIdx.y
        sums[channel, at] = total
        products[channel, at] = product


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


@cuda.jit
def normalize_planes_grad(dy, x, mean, var, weight, eps, training, dweight, dbias, dx):
    """dx = weight rstd (dy - (dbias + xhat dweight) / count); outside of training the mean and the variance do not
    depend on x, and dx = weight rstd dy."""
    plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
    start = cuda.blockIdx.y * SEGMENT
    stop = min(start + SEGMENT, x.shape[1])
    rstd = 1.0 / math.sqrt(var[channel] + eps)
    count = np.float64(x.shape[0] // mean.shape[0] * x.shape[1])
    center, scale = x.dtype.type(mean[channel]), x.dtype.type(weight[channel] * rstd)
    dy_mean = x.dtype.type(dbias[channel] / count if training else 0.0)
    slope = x.dtype.type(dweight[channel] * rstd / count if training else 0.0)
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        dx[plane, j] = scale * (dy[plane, j] - dy_mean - (x[plane, j] - center) * slope)
