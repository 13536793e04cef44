"""Layer norm of the rows of x (rows, width), and its gradients.

As in OneFlow's well-known kernel, three ways to hold a row between reading it and writing the result:

    warp_rows(n)  width <= 32 n. Each of a block's eight warps owns a row; lane l keeps the elements l, l + 32, ... in n
                  registers.
    cached_rows   a block of whole warps owns a row and keeps it in dynamic shared memory, `width * itemsize` bytes.
    long_rows     a block owns a row and reads it again.

The mean comes first and then the sum of squared deviations from it, which does not cancel as sum(x^2) - mean^2 does:
to go over a row again that is kept costs little, while one pass for both (Welford 1962) divides for each element. Of
global memory, x is read once (three times by `long_rows`) and y written once. What is kept costs occupancy: a
multiprocessor has 65,536 registers, 32 for each of 2,048 threads, so that fewer of them run at once with the 32 values
of `warp_rows(32)` beside what else a thread needs. Wider rows go to shared memory.

The gradient of x goes the same ways, with two sums over the row instead. The parameters' gradients are sums over the
rows: in `parameter_grad_parts` thread j of a block walks down column j of one part of the rows, so that a warp reads
neighbours; a second launch, of `reduce.SUM`, adds the parts: no atomics.
"""

import functools
import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import WARP, WARPS, warp_sum
from miniflow.kernels.softmax import block_sum

LANE_VALUES = 32  # at most, in registers


@functools.cache
def warp_rows(values_per_lane):
    """`warp_rows(n)[(rows + 7) // 8, 256](x, weight, bias, eps, y, mean, rstd)`.

    mean and rstd are (rows,) float64; weight and bias (width,).
    """

    @cuda.jit
    def layer_norm_warp_rows(x, weight, bias, eps, y, mean, rstd):
        values = cuda.local.array(values_per_lane, x.dtype)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        row = cuda.blockIdx.x * WARPS + warp
        width = x.shape[1] if row < x.shape[0] else 0
        total = squares = x.dtype.type(0)
        for k in range(values_per_lane):
            j = k * WARP + lane
            if j < width:
                values[k] = x[row, j]
                total += values[k]
        center = warp_sum(total) / x.dtype.type(x.shape[1])
        for k in range(values_per_lane):
            if k * WARP + lane < width:
                values[k] -= center
                squares += values[k] * values[k]
        row_rstd = 1.0 / math.sqrt(np.float64(warp_sum(squares)) / x.shape[1] + eps)
        scale = x.dtype.type(row_rstd)
        for k in range(values_per_lane):
            j = k * WARP + lane
            if j < width:
                y[row, j] = values[k] * scale * weight[j] + bias[j]
        if lane == 0 and row < x.shape[0]:
            mean[row] = center
            rstd[row] = row_rstd

    return layer_norm_warp_rows


def make_block_rows(is_cached):
    """`cached_rows[rows, threads, stream, width * itemsize](x, weight, bias, eps, y, mean, rstd)`, and
    `long_rows[rows, threads]` of the same arguments."""

    @cuda.jit
    def layer_norm_block_rows(x, weight, bias, eps, y, mean, rstd):
        values = cuda.shared.array(0, x.dtype)  # dynamic: as long as the row; a thread reads only what it wrote
        partial = cuda.shared.array(WARPS, x.dtype)
        thread, row = cuda.threadIdx.x, cuda.blockIdx.x
        total = squares = x.dtype.type(0)
        for j in range(thread, x.shape[1], cuda.blockDim.x):
            value = x[row, j]
            if is_cached:
                values[j] = value
            total += value
        center = block_sum(total, partial) / x.dtype.type(x.shape[1])
        for j in range(thread, x.shape[1], cuda.blockDim.x):
            deviation = (values[j] if is_cached else x[row, j]) - center
            squares += deviation * deviation
        row_rstd = 1.0 / math.sqrt(np.float64(block_sum(squares, partial)) / x.shape[1] + eps)
        scale = x.dtype.type(row_rstd)
        for j in range(thread, x.shape[1], cuda.blockDim.x):
            value = values[j] if is_cached else x[row, j]
            y[row, j] = (value - center) * scale * weight[j] + bias[j]
        if thread == 0:
            mean[row] = center
            rstd[row] = row_rstd

    return layer_norm_block_rows


cached_rows, long_rows = make_block_rows(True), make_block_rows(False)


@functools.cache
def warp_rows_grad(values_per_lane):
    """`warp_rows_grad(n)[(rows + 7) // 8, 256](dy, x, weight, mean, rstd, dx)`

    dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy weight, xhat = (x - mean) rstd.
    """

    @cuda.jit
    def layer_norm_warp_rows_grad(dy, x, weight, mean, rstd, dx):
        g = cuda.local.array(values_per_lane, x.dtype)
        xhat = cuda.local.array(values_per_lane, x.dtype)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        row = cuda.blockIdx.x * WARPS + warp
        width = x.shape[1] if row < x.shape[0] else 0
        center = x.dtype.type(mean[row] if row < x.shape[0] else 0.0)
        scale = x.dtype.type(rstd[row] if row < x.shape[0] else 0.0)
        total = product = x.dtype.type(0)
        for k in range(values_per_lane):
            j = k * WARP + lane
            if j < width:
                g[k] = dy[row, j] * weight[j]
                xhat[k] = (x[row, j] - center) * scale
                total += g[k]
                product += g[k] * xhat[k]
        g_mean = warp_sum(total) / x.dtype.type(x.shape[1])
        slope = warp_sum(product) / x.dtype.type(x.shape[1])
        for k in range(values_per_lane):
            j = k * WARP + lane
            if j < width:
                dx[row, j] = scale * (g[k] - g_mean - xhat[k] * slope)

    return layer_norm_warp_rows_grad


@cuda.jit
def long_rows_grad(dy, x, weight, mean, rstd, dx):
    """`long_rows_grad[rows, threads](dy, x, weight, mean, rstd, dx)`: as `warp_rows_grad`, one block a row."""
    partial = cuda.shared.array(WARPS, x.dtype)
    thread, row = cuda.threadIdx.x, cuda.blockIdx.x
    center, scale = x.dtype.type(mean[row]), x.dtype.type(rstd[row])
    total = product = x.dtype.type(0)
    for j in range(thread, x.shape[1], cuda.blockDim.x):
        g = dy[row, j] * weight[j]
        total += g
        product += g * ((x[row, j] - center) * scale)
    g_mean = block_sum(total, partial) / x.dtype.type(x.shape[1])
    slope = block_sum(product, partial) / x.dtype.type(x.shape[1])
    for j in range(thread, x.shape[1], cuda.blockDim.x):
        dx[row, j] = scale * (dy[row, j] * weight[j] - g_mean - (x[row, j] - center) * scale * slope)


@cuda.jit
def parameter_grad_parts(dy, x, mean, rstd, chunk, dweight, dbias):
    """dweight = sum dy xhat and dbias = sum dy over the rows of each part; both are (parts, width). A row of x may have
    several equally long parts with a mean and a rstd each.

    `parameter_grad_parts[(tiles, parts), threads]`, tiles = ceil(width / threads), parts = ceil(rows / chunk).
    """
    j, part = cuda.grid(1), cuda.blockIdx.y
    if j < x.shape[1]:
        groups = mean.shape[0] // max(x.shape[0], 1)
        group = j * groups // x.shape[1]
        product = total = x.dtype.type(0)
        for row in range(part * chunk, min((part + 1) * chunk, x.shape[0])):
            center, scale = x.dtype.type(mean[row * groups + group]), x.dtype.type(rstd[row * groups + group])
            product += dy[row, j] * ((x[row, j] - center) * scale)
            total += dy[row, j]
        dweight[part, j] = product
        dbias[part, j] = total
