"""Loss kernels.

Cross-entropy reads the logits once forward and once backward; of the softmax only the normalizer of each row is kept,
in float64, so that half-precision logits do not round it.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.softmax import row_exp_sum, row_max
from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.ranges import first_outside
from miniflow.backends.registry import kernel
from miniflow.errors import IndexRangeError
from miniflow.hostcuda.transcendental import exp_nonpositive


def class_indices(target: np.ndarray, ignore_index: int, classes: int) -> np.ndarray:
    """The targets as contiguous int64, checked.

    Raises:
        IndexRangeError: with the first target that is not a class, and its position.
    """
    target = np.ascontiguousarray(target, np.int64)
    bad = first_outside(target, 0, classes, ignore_index)
    if bad >= 0:
        raise IndexRangeError(
            f"cross_entropy: got class {target[bad]} as target {bad}; expected 0 to {classes - 1} for {classes} "
            f"classes, or ignore_index={ignore_index}: check the labels, or the size of the last layer"
        )
    return target


NO_WEIGHTS = np.empty(0)


def class_weights(weight: np.ndarray | None) -> np.ndarray:
    """Class weights in float64, empty for none: one compiled variant serves both."""
    return NO_WEIGHTS if weight is None else np.ascontiguousarray(weight, np.float64)


@unlocked()
def sums(loss, factor):
    """The sums of two vectors."""
    summed = total = 0.0
    for i in range(loss.size):
        summed += loss[i]
        total += factor[i]
    return summed, total


@unlocked()
def cross_entropy_rows(start, stop, x, target, weight, ignore_index, smoothing, loss, lse, factor):
    """loss_i = (1 - s) w[t] (lse - x[t]) + s / C * sum_c w[c] (lse - x[c]), lse = log sum_c exp(x[c])."""
    for i in range(start, stop):
        row, t = x[i], target[i]
        largest = row_max(row)
        lse[i] = np.float64(largest) + np.log(np.float64(row_exp_sum(row, largest)))
        if t == ignore_index:
            factor[i] = loss[i] = 0.0
        else:
            factor[i] = weight[t] if weight.size else 1.0
            loss[i] = (1.0 - smoothing) * factor[i] * (lse[i] - row[t])
            if smoothing > 0:
                total = 0.0
                for j in range(row.size):
                    total += (lse[i] - row[j]) * (weight[j] if weight.size else 1.0)
                loss[i] += smoothing / row.size * total


@unlocked()
def cross_entropy_grad_rows(start, stop, x, target, weight, ignore_index, smoothing, total_weight, dloss, lse, dx):
    """dx_ij = dloss_i (p_ij sum_c q_ic - q_ij), where q_ic = w[c] ((1 - s) [c = t_i] + s / C) and p = softmax(x)."""
    share = smoothing / x.shape[1]
    for i in range(start, stop):
        row, out, t = x[i], dx[i], target[i]
        if t == ignore_index:
            out[:] = 0
        else:
            at_target = (1.0 - smoothing) * dloss[i] * (weight[t] if weight.size else 1.0)
            scale = x.dtype.type(at_target + share * dloss[i] * total_weight)
            shift = x.dtype.type(lse[i])
            remainder = x.dtype.type(lse[i] - shift)  # so that the rounding of lse does not multiply every p
            for j in range(row.size):
                out[j] = scale * exp_nonpositive((row[j] - shift) - remainder)
            if smoothing > 0:
                for j in range(row.size):
                    out[j] -= x.dtype.type(share * dloss[i] * (weight[j] if weight.size else 1.0))
            out[t] -= x.dtype.type(at_target)


def reduce_rows(reduced: np.ndarray, total: np.ndarray, loss: np.ndarray, factor: np.ndarray, reduction: str) -> None:
    """Reduce the losses of the rows; `total` is the weight by which "mean" divides."""
    summed, weight = sums(loss, factor)
    total[...] = weight
    if reduction == "none":
        reduced[...] = loss
    else:
        reduced[...] = summed if reduction == "sum" else summed / weight if weight else np.nan


def row_cotangents(dy: np.ndarray, total: np.ndarray, rows: int, reduction: str) -> np.ndarray:
    """The cotangent of each row's loss, in float64."""
    if reduction == "none":
        return dy.astype(np.float64)
    divisor = float(total) if reduction == "mean" else 1.0
    return np.full(rows, dy.item() / divisor if divisor else np.nan)


@kernel("cpu")
def cross_entropy(out, x, target, weight, *, ignore_index, reduction, label_smoothing):
    reduced, lse, total = out
    x = np.ascontiguousarray(x).reshape(lse.size, x.shape[-1])
    target = class_indices(target.reshape(-1), ignore_index, x.shape[1])
    loss, factor = np.empty(lse.size), np.empty(lse.size)
    arguments = x, target, class_weights(weight), ignore_index, label_smoothing
    share(cross_entropy_rows, lse.size, x.size, *arguments, loss, lse.reshape(-1), factor)
    reduce_rows(reduced.reshape(-1), total, loss, factor, reduction)


@kernel("cpu")
def cross_entropy_grad(dx, dy, x, target, weight, lse, total, *, ignore_index, reduction, label_smoothing):
    rows = lse.size, x.shape[-1]
    x, weight = np.ascontiguousarray(x).reshape(rows), class_weights(weight)
    target, lse = (np.ascontiguousarray(a, dtype).reshape(-1) for a, dtype in ((target, np.int64), (lse, np.float64)))
    dloss = np.ascontiguousarray(row_cotangents(dy.reshape(-1), total, lse.size, reduction))
    total_weight = float(weight.sum()) if weight.size else float(x.shape[1])
    arguments = x, target, weight, ignore_index, label_smoothing, total_weight, dloss, lse
    share(cross_entropy_grad_rows, lse.size, x.size, *arguments, dx.reshape(rows))
