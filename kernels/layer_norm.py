"""Layer norm of the rows of x (rows, width), and its gradients.

As in OneFlow's well-known kernel, three ways to hold a row between reading it and writing the result:

    warp_rows(n)  width <= 32 n. Each of a block's eight warps owns a row; lane l keeps the elements l, l + 32, ... in n
                  registers.
    cached_rows   a block of whole warps owns a row and keeps it in dynamic shared memory, `width * itemsize` bytes.
    long_rows     a block owns a row and reads it again.

Each thread follows mean and sum of squared deviations of its elements (Welford, "Note on a Method for Calculating
Corrected Sums of Squares and Products", 1962); lanes, then warps, merge theirs by the formula of Chan, Golub and
LeVeque (1979), which does not cancel as sum(x^2) - mean^2 does. Of global memory, x is read once (twice by `long_rows`)
and y written once.

The gradient of x goes the same ways, with two sums over the row instead. The parameters' gradients are sums over the
rows: in `parameter_grad_parts` thread j of a block walks down column j of one part of the rows, so that a warp reads
neighbours; a second launch, of `reduce.SUM`, adds the parts: no atomics.
"""

import functools
import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import FULL, WARP, WARPS, warp_sum
from miniflow.kernels.softmax import block_sum

SHARED_BYTES = 47 * 1024  # of dynamic shared memory: 48 KB are there on every GPU, `partial` takes a little
LANE_VALUES = 32  # at most, in registers


@cuda.jit(device=True)
def merged(count, mean, squares, other_count, other_mean, other_squares):
    """Count, mean and sum of squared deviations of two sets together; counts are floats, and may be 0."""
    total = count + other_count
    share = other_count / total if total > 0 else total
    delta = other_mean - mean
    return total, mean + delta * share, squares + other_squares + delta * delta * count * share


@cuda.jit(device=True)
def followed(count, mean, squares, value):
    """`merged` with a set of one value."""
    count += type(value)(1)
    delta = value - mean
    mean += delta / count
    return count, mean, squares + delta * (value - mean)


@cuda.jit(device=True)
def warp_welford(count, mean, squares):
    """Count, mean and sum of squared deviations of all lanes' elements, in every lane."""
    for k in range(5):
        other_count = cuda.shfl_xor_sync(FULL, count, 16 >> k)
        other_mean = cuda.shfl_xor_sync(FULL, mean, 16 >> k)
        other_squares = cuda.shfl_xor_sync(FULL, squares, 16 >> k)
        count, mean, squares = merged(count, mean, squares, other_count, other_mean, other_squares)
    return count, mean, squares


@cuda.jit(device=True)
def block_welford(count, mean, squares, partial):
    """The same of all threads of a one-dimensional block; `partial` is shared memory, (3, warps)."""
    count, mean, squares = warp_welford(count, mean, squares)
    if cuda.blockDim.x > WARP:
        if cuda.threadIdx.x % WARP == 0:
            warp = cuda.threadIdx.x // WARP
            partial[0, warp] = count
            partial[1, warp] = mean
            partial[2, warp] = squares
        cuda.syncthreads()
        count = partial[0, 0]
        mean = partial[1, 0]
        squares = partial[2, 0]
        for w in range(1, cuda.blockDim.x // WARP):
            count, mean, squares = merged(count, mean, squares, partial[0, w], partial[1, w], partial[2, w])
    return count, mean, squares


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
        count = own_mean = squares = x.dtype.type(0)
        for k in range(values_per_lane):
            j = k * WARP + lane
            if j < width:
                values[k] = x[row, j]
                count, own_mean, squares = followed(count, own_mean, squares, values[k])
        count, center, squares = warp_welford(count, own_mean, squares)
        row_rstd = 1.0 / math.sqrt(np.float64(squares) / x.shape[1] + eps)
        scale = x.dtype.type(row_rstd)
        for k in range(values_per_lane):
            j = k * WARP + lane
            if j < width:
                y[row, j] = (values[k] - center) * scale * weight[j] + bias[j]
        if lane == 0 and row < x.shape[0]:
            mean[row] = center
            rstd[row] = row_rstd

    return layer_norm_warp_rows


def make_block_rows(is_cached):
    """`cached_rows[rows, threads, stream, width * itemsize](x, weight, bias, eps, y, mean, rstd)`, and
    `long_rows[rows, threads]` of the same arguments."""

    @cuda.jit
    def layer_norm_block_rows(x, weight, bias, eps, y, mean, rstd):
        values = cuda.shared.array(0, x.dtype)  # dynamic: as long as the row
        partial = cuda.shared.array((3, WARPS), x.dtype)
        thread, row = cuda.threadIdx.x, cuda.blockIdx.x
        count = own_mean = squares = x.dtype.type(0)
        for j in range(thread, x.shape[1], cuda.blockDim.x):
            value = x[row, j]
            if is_cached:
                values[j] = value
            count, own_mean, squares = followed(count, own_mean, squares, value)
        count, center, squares = block_welford(count, own_mean, squares, partial)
        row_rstd = 1.0 / math.sqrt(np.float64(squares) / x.shape[1] + eps)
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
