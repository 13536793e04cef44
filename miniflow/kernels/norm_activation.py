"""Batch norm, the sum with a shortcut, and ReLU in one pass; the gradient of ReLU within those of batch norm.

The index picture is that of `batch_norm`: blockIdx = (plane, segment), a block owns a segment of a plane.

    normalize_relu_planes        y = relu((x - mean) rstd weight + bias): one read, one write.
    normalize_add_relu_planes    the same of the sum with z: two reads, one write.
    masked_channel_products      sum g and sum g (x - mean), with g = dy where y > 0, else 0: three reads.
    normalize_relu_planes_grad   dx from g: three reads, one write.

As single ops the forward has one or two more arrays to write and read, the backward has g.
"""

import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.batch_norm import SEGMENT
from miniflow.kernels.reduce import WARPS
from miniflow.kernels.softmax import block_sum


@cuda.jit
def normalize_relu_planes(x, mean, var, weight, bias, eps, y):
    """`normalize_relu_planes[(planes, segments), threads]`; mean and var are (channels,) float64."""
    plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
    start = cuda.blockIdx.y * SEGMENT
    stop = min(start + SEGMENT, x.shape[1])
    center, shift = x.dtype.type(mean[channel]), bias[channel]
    scale = x.dtype.type(weight[channel] / math.sqrt(var[channel] + eps))
    zero = x.dtype.type(0)
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        value = (x[plane, j] - center) * scale + shift
        y[plane, j] = zero if value <= zero else value


@cuda.jit
def normalize_add_relu_planes(x, z, mean, var, weight, bias, eps, y):
    """As `normalize_relu_planes`, with z (planes, size) added before ReLU."""
    plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
    start = cuda.blockIdx.y * SEGMENT
    stop = min(start + SEGMENT, x.shape[1])
    center, shift = x.dtype.type(mean[channel]), bias[channel]
    scale = x.dtype.type(weight[channel] / math.sqrt(var[channel] + eps))
    zero = x.dtype.type(0)
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        value = (x[plane, j] - center) * scale + shift + z[plane, j]
        y[plane, j] = zero if value <= zero else value


@cuda.jit
def masked_channel_products(dy, y, x, mean, sums, products):
    """sum g and sum g (x - mean) of each segment; the results are (channels, images * segments) float64."""
    partial = cuda.shared.array(WARPS, x.dtype)
    plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
    start = cuda.blockIdx.y * SEGMENT
    stop = min(start + SEGMENT, x.shape[1])
    center = x.dtype.type(mean[channel])
    zero = x.dtype.type(0)
    total = product = x.dtype.type(0)
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        cotangent = dy[plane, j]
        g = zero if y[plane, j] <= zero else cotangent
        total += g
        product += g * (x[plane, j] - center)
    total = block_sum(total, partial)
    product = block_sum(product, partial)
    if cuda.threadIdx.x == 0:
        at = plane // mean.shape[0] * cuda.gridDim.y + cuda.blockIdx.y
        sums[channel, at] = total
        products[channel, at] = product


@cuda.jit
def normalize_relu_planes_grad(dy, y, x, mean, var, weight, eps, training, dweight, dbias, dx):
    """dx as of `batch_norm.normalize_planes_grad`, for g in place of dy."""
    plane, channel = cuda.blockIdx.x, cuda.blockIdx.x % mean.shape[0]
    start = cuda.blockIdx.y * SEGMENT
    stop = min(start + SEGMENT, x.shape[1])
    rstd = 1.0 / math.sqrt(var[channel] + eps)
    count = np.float64(x.shape[0] // mean.shape[0] * x.shape[1])
    center, scale = x.dtype.type(mean[channel]), x.dtype.type(weight[channel] * rstd)
    dy_mean = x.dtype.type(dbias[channel] / count if training else 0.0)
    slope = x.dtype.type(dweight[channel] * rstd / count if training else 0.0)
    zero = x.dtype.type(0)
    for j in range(start + cuda.threadIdx.x, stop, cuda.blockDim.x):
        cotangent = dy[plane, j]
        g = zero if y[plane, j] <= zero else cotangent
        dx[plane, j] = scale * (g - dy_mean - (x[plane, j] - center) * slope)
