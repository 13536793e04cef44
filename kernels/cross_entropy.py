"""Cross-entropy between logits x (rows, classes) and class indices, forward and backward.

    cross_entropy_rows, cross_entropy_grad_rows
                     a block owns a row, one warp for few classes, up to eight for many: the row's
                     maximum and its sum of exponentials come by shuffles; thread 0 writes the row's loss. The logits
                     are read from global memory once forward and once backward (again from the cache), the gradient is
                     written once; of the softmax only the logarithm of its denominator is kept.
    reduce_losses    one block of 256 threads adds up the losses of all rows, and their weights.

Losses and their weights are float64 whatever the dtype of x: there is one for each row, and a sum of many rows.
A target that is not a class makes the row's loss NaN; nothing outside of the row is read.
"""

import math

import numpy as np

from miniflow.hostcuda import cuda
from miniflow.kernels.reduce import SUM, THREADS, WARPS
from miniflow.kernels.softmax import block_sum, row_max

add_up = SUM.tree


@cuda.jit(device=True)
def class_weight(weight, c):
    """w_c; 1 where no weights are given: then `weight` is empty."""
    return weight[c] if weight.size > 0 else 1.0


@cuda.jit
def cross_entropy_rows(x, target, weight, ignore_index, smoothing, loss, lse, factor):
    """loss_i = (1 - s) w[t] (lse - x[t]) + s / C sum_c w[c] (lse - x[c]), lse = log sum_c exp(x[c]); factor_i = w[t].

    `cross_entropy_rows[rows, threads]`; target (rows,) int64; weight (classes,) or (0,) float64; loss, lse
    and factor (rows,) float64.
    """
    partial = cuda.shared.array(WARPS, x.dtype)
    wide_partial = cuda.shared.array(WARPS, np.float64)
    thread = cuda.threadIdx.x
    row, classes = cuda.blockIdx.x, x.shape[1]
    largest = row_max(x, row, partial)
    total = x.dtype.type(0)
    for c in range(thread, classes, cuda.blockDim.x):
        total += math.exp(x[row, c] - largest)
    total = block_sum(total, partial)
    distance, total_weight = 0.0, 0.0  # sum_c w[c] (max - x[c]) and sum_c w[c]
    if smoothing > 0:
        for c in range(thread, classes, cuda.blockDim.x):
            distance += (np.float64(largest) - x[row, c]) * class_weight(weight, c)
            total_weight += class_weight(weight, c)
        distance = block_sum(distance, wide_partial)
        total_weight = block_sum(total_weight, wide_partial)
    if thread == 0:
        t = target[row]
        log_total = math.log(np.float64(total))
        row_lse = np.float64(largest) + log_total
        lse[row] = row_lse
        if t == ignore_index:
            loss[row], factor[row] = 0.0, 0.0
        elif t >= 0 and t < classes:
            w = class_weight(weight, t)
            factor[row] = w
            spread = smoothing / classes * (distance + log_total * total_weight)
            loss[row] = (1.0 - smoothing) * w * (row_lse - x[row, t]) + spread
        else:
            loss[row], factor[row] = math.nan, math.nan


@cuda.jit(device=True)
def row_cotangent(dy, total, per_row, mean, row):
    """The cotangent of a row's loss: dy of the row, or that of the sum, or that of the mean over the weights."""
    value = np.float64(dy[row if per_row else 0])
    if mean:
        return value / total[0] if total[0] != 0 else math.nan
    return value


@cuda.jit
def cross_entropy_grad_rows(dy, x, target, weight, lse, total, ignore_index, per_row, mean, smoothing, dx):
    """dx_ij = dloss_i (p_ij sum_c q_ic - q_ij), where q_ic = w[c] ((1 - s) [c = t_i] + s / C) and p = softmax(x).

    `cross_entropy_grad_rows[rows, threads]`; dy (rows,) if per_row, else (1,); total (1,): the sum of the factors,
    by which the mean divides.
    """
    wide_partial = cuda.shared.array(WARPS, np.float64)
    thread = cuda.threadIdx.x
    row = cuda.blockIdx.x
    total_weight = np.float64(x.shape[1])
    if smoothing > 0 and weight.size > 0:
        total_weight = 0.0
        for c in range(thread, weight.size, cuda.blockDim.x):
            total_weight += weight[c]
        total_weight = block_sum(total_weight, wide_partial)
    t = target[row]
    if t == ignore_index or t < 0 or t >= x.shape[1]:
        fill = x.dtype.type(0 if t == ignore_index else math.nan)
        for c in range(thread, x.shape[1], cuda.blockDim.x):
            dx[row, c] = fill
    else:
        dloss = row_cotangent(dy, total, per_row, mean, row)
        share = dloss * smoothing / x.shape[1]
        at_target = dloss * (1.0 - smoothing) * class_weight(weight, t)
        scale = x.dtype.type(at_target + share * total_weight)
        shift = x.dtype.type(lse[row])
        rest = x.dtype.type(lse[row] - shift)  # so that the rounding of lse does not multiply every p
        for c in range(thread, x.shape[1], cuda.blockDim.x):
            q = at_target if c == t else 0.0
            if smoothing > 0:
                q += share * class_weight(weight, c)
            dx[row, c] = scale * math.exp((x[row, c] - shift) - rest) - x.dtype.type(q)


@cuda.jit
def reduce_losses(loss, factor, mean, reduced, total):
    """total = sum factor; reduced = sum loss, divided by total for the mean. `reduce_losses[1, THREADS]`.

    Thread t adds every 256th element, then a tree in shared memory adds the threads' sums.
    """
    sums = cuda.shared.array(THREADS, np.float64)
    totals = cuda.shared.array(THREADS, np.float64)
    thread = cuda.threadIdx.x
    own_sum = 0.0
    own_total = 0.0
    for i in range(thread, loss.size, THREADS):
        own_sum += loss[i]
        own_total += factor[i]
    sums[thread] = own_sum
    totals[thread] = own_total
    add_up(sums, thread, 1)
    add_up(totals, thread, 1)
    if thread == 0:
        total[0] = totals[0]
        if mean:
            reduced[0] = sums[0] / totals[0] if totals[0] != 0 else math.nan
        else:
            reduced[0] = sums[0]
