"""Reductions, softmax and LayerNorm as kernels. Fill in what raises Todo, then run: python -m tutorials check 7

All arrays are float32. Where a warp owns a row, a block has (WARP, WARPS) threads: threadIdx.x is the lane, 0 to 31,
and threadIdx.y the warp. The launch has enough blocks for all rows; the last one may have warps without a row.
"""

import math

import numpy as np

from miniflow.hostcuda import cuda
from tutorials import Todo  # noqa: F401

WARP = 32  # lanes of a warp
WARPS = 4  # of a block
EVERYONE = 0xFFFFFFFF  # a bit for each lane
BLOCK = 64  # the largest block of `row_sums`
STEPS = 6  # 2 ** STEPS is BLOCK


@cuda.jit(device=True)
def tree_sum(values, size):
    """Add up values[0] ... values[size - 1] in shared memory, for any size from 1 to BLOCK.

    All `size` threads of the block call it, after a barrier. At the end the sum is in values[0], and every thread may
    read it. In each of STEPS steps a thread adds at most one element to another.
    """
    t = cuda.threadIdx.x
    # task 7.1: a tree in shared memory
    for _ in range(STEPS):
        half = (size + 1) // 2
        if t < size - half:
            values[t] += values[t + half]
        cuda.syncthreads()
        size = half
    # end


@cuda.jit
def row_sums(x, out):
    """out[r] is the sum of row r of x (m, n). Launch: m blocks of at most BLOCK threads, one block for each row."""
    values = cuda.shared.array(BLOCK, np.float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    own = np.float32(0)
    for j in range(t, x.shape[1], cuda.blockDim.x):
        own += x[row, j]
    values[t] = own
    cuda.syncthreads()
    tree_sum(values, cuda.blockDim.x)
    if t == 0:
        out[row] = values[0]


@cuda.jit(device=True)
def warp_sum(value):
    """The sum of `value` over the 32 lanes of a warp, in every lane."""
    # task 7.2: a butterfly of shuffles
    for k in range(5):
        value += cuda.shfl_xor_sync(EVERYONE, value, 16 >> k)
    return value
    # end


@cuda.jit(device=True)
def warp_max(value):
    """The largest `value` of the 32 lanes of a warp, in every lane."""
    # task 7.2: a butterfly of shuffles
    for k in range(5):
        value = max(value, cuda.shfl_xor_sync(EVERYONE, value, 16 >> k))
    return value
    # end


@cuda.jit
def softmax(x, out):
    """Softmax of each row of x (m, n): out[r, j] = exp(x[r, j]) / (exp(x[r, 0]) + exp(x[r, 1]) + ...).

    Elements may be -inf, but not all of a row. Reads each element at most twice. Launch: a warp for each row.
    """
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    # task 7.3: softmax of rows
    rows, width = x.shape
    if row < rows:
        largest, total = np.float32(-math.inf), np.float32(0)
        for j in range(lane, width, WARP):
            value = x[row, j]
            if value > largest:
                total = total * math.exp(largest - value) + 1
                largest = value
            elif value > -math.inf:
                total += math.exp(value - largest)
        top = warp_max(largest)
        total = warp_sum(total * math.exp(largest - top))
        for j in range(lane, width, WARP):
            out[row, j] = math.exp(x[row, j] - top) / total
    # end


@cuda.jit
def layer_norm(x, weight, bias, eps, y, mean, rstd):
    """y[r, j] = (x[r, j] - mean[r]) * rstd[r] * weight[j] + bias[j], with rstd[r] = 1 / sqrt(variance of row r + eps).

    x and y are (m, n), weight and bias (n,), eps a number; mean and rstd, (m,), are written, too. The variance is the
    mean of the squared deviations. Reads each element of x at most three times. Launch: a warp for each row.
    """
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    # task 7.4: LayerNorm
    rows, width = x.shape
    if row < rows:
        total = squares = np.float32(0)
        for j in range(lane, width, WARP):
            total += x[row, j]
        center = warp_sum(total) / width
        for j in range(lane, width, WARP):
            squares += (x[row, j] - center) ** 2
        scale = 1 / math.sqrt(warp_sum(squares) / width + eps)
        for j in range(lane, width, WARP):
            y[row, j] = (x[row, j] - center) * scale * weight[j] + bias[j]
        if lane == 0:
            mean[row] = center
            rstd[row] = scale
    # end


@cuda.jit
def layer_norm_grad(dy, x, weight, mean, rstd, dx):
    """dx, the gradient of x, from dy, the gradient of y; shapes and launch as for `layer_norm`.

    Reads each element of dy and x at most twice, and weight twice for each row.
    """
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    # task 7.5: the gradient of x
    rows, width = x.shape
    if row < rows:
        center, scale = mean[row], rstd[row]
        total = slope = np.float32(0)
        for j in range(lane, width, WARP):
            g = dy[row, j] * weight[j]
            total += g
            slope += g * (x[row, j] - center) * scale
        total = warp_sum(total) / width
        slope = warp_sum(slope) / width
        for j in range(lane, width, WARP):
            xhat = (x[row, j] - center) * scale
            dx[row, j] = scale * (dy[row, j] * weight[j] - total - slope * xhat)
    # end


@cuda.jit
def parameter_grad(dy, x, mean, rstd, dweight, dbias):
    """dweight and dbias, the gradients of weight and bias, (n,). Launch: blocks of WARP threads, one for each column.

    Reads each element of dy and x once, and mean and rstd once for each element.
    """
    j = cuda.grid(1)
    # task 7.6: the gradients of weight and bias
    rows, width = x.shape
    if j < width:
        product = total = np.float32(0)
        for row in range(rows):
            g = dy[row, j]
            product += g * (x[row, j] - mean[row]) * rstd[row]
            total += g
        dweight[j] = product
        dbias[j] = total
    # end
