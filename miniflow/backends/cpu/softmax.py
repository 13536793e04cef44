"""Softmax kernels: a loop over the rows, with passes over each row while it is in the cache.

Another dim than the last is moved there first. Rows are independent, so that the result does not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import types
from numba.extending import overload

from miniflow.backends.cpu.threads import SUMS, share, unlocked
from miniflow.backends.registry import kernel
from miniflow.hostcuda.transcendental import exp_nonpositive

APART = 64
"""Elements between memory that a loop with a sum writes to and what it reads: where they are closer, LLVM's loop does
not use vector instructions, and adds up in another order."""


def row_max(x: np.ndarray) -> float:
    """The largest element, -inf for an empty row; where NaN occurs the row's softmax is NaN with any maximum.

    LLVM vectorizes a maximum of integers, not one of floats. Read as integers, floats are in order once the magnitude
    bits of the negative ones are flipped.
    """
    return np.max(x, initial=-np.inf)


@overload(row_max, jit_options={"fastmath": SUMS})
def _row_max(x):
    float_type, int_type = (np.float32, np.int32) if x.dtype == types.float32 else (np.float64, np.int64)
    sign_shift, magnitude = int_type(8 * int_type().itemsize - 1), int_type(np.iinfo(int_type).max)
    lowest = order_of(float_type(-np.inf), int_type)

    def implementation(x):
        bits = x.view(int_type)
        largest = lowest
        for j in range(bits.size):
            largest = max(largest, int_type(bits[j] ^ ((bits[j] >> sign_shift) & magnitude)))
        return int_type(largest ^ ((largest >> sign_shift) & magnitude)).view(float_type)

    return implementation


def order_of(x: np.floating, int_type: type) -> np.integer:
    """The integer whose order among integers is that of `x` among floats."""
    bits = x.view(int_type)
    return bits ^ (bits >> int_type(8 * bits.itemsize - 1) & int_type(np.iinfo(int_type).max))


@unlocked(SUMS)
def row_exp_sum(x, shift):
    """sum_j exp(x_j - shift), shift being the row's maximum."""
    total = x.dtype.type(0)
    for j in range(x.size):
        total += exp_nonpositive(x[j] - shift)
    return total


@unlocked(SUMS)
def softmax_rows(start, stop, x, y):
    one = x.dtype.type(1)
    powers = np.empty(x.shape[1] + 2 * APART, x.dtype)[APART : APART + x.shape[1]]
    for i in range(start, stop):
        row, out = x[i], y[i]
        largest = row_max(row)
        total = x.dtype.type(0)
        for j in range(row.size):
            value = exp_nonpositive(row[j] - largest)
            powers[j] = value
            total += value
        scale = one / total
        for j in range(row.size):
            out[j] = powers[j] * scale


@unlocked(SUMS)
def softmax_grad_rows(start, stop, dy, y, dx):
    for i in range(start, stop):
        cotangent, row, out = dy[i], y[i], dx[i]
        dot = y.dtype.type(0)
        for j in range(row.size):
            dot += cotangent[j] * row[j]
        for j in range(row.size):
            out[j] = row[j] * (cotangent[j] - dot)


@unlocked()  # not SUMS: (x - largest) - log_total must not become x - (largest + log_total), which rounds
def log_softmax_rows(start, stop, x, y):
    for i in range(start, stop):
        row, out = x[i], y[i]
        largest = row_max(row)
        log_total = np.log(row_exp_sum(row, largest))
        for j in range(row.size):
            out[j] = (row[j] - largest) - log_total


@unlocked(SUMS)
def log_softmax_grad_rows(start, stop, dy, y, dx):
    for i in range(start, stop):
        cotangent, row, out = dy[i], y[i], dx[i]
        total = y.dtype.type(0)
        for j in range(row.size):
            total += cotangent[j]
        for j in range(row.size):
            out[j] = cotangent[j] - exp_nonpositive(row[j]) * total


def by_rows(loop: Callable, out: np.ndarray, *arrays: np.ndarray, dim: int) -> None:
    """Run a loop over contiguous rows along `dim`, and put its results into `out`."""
    if out.size == 0:
        return
    is_last = out.ndim == 0 or dim in (-1, out.ndim - 1)
    moved = [np.ascontiguousarray(x if is_last else np.moveaxis(x, dim, -1)) for x in arrays]
    width = moved[0].shape[-1] if out.ndim else 1
    rows = out.reshape(-1, width) if is_last else np.empty((out.size // width, width), out.dtype)
    share(loop, len(rows), out.size, *[x.reshape(-1, width) for x in moved], rows)
    if not is_last:
        out[...] = np.moveaxis(rows.reshape(moved[0].shape), -1, dim)


@kernel("cpu")
def softmax(y, x, *, dim):
    by_rows(softmax_rows, y, x, dim=dim)


@kernel("cpu")
def softmax_grad(dx, dy, y, *, dim):
    by_rows(softmax_grad_rows, dx, dy, y, dim=dim)


@kernel("cpu")
def log_softmax(y, x, *, dim):
    by_rows(log_softmax_rows, y, x, dim=dim)


@kernel("cpu")
def log_softmax_grad(dx, dy, y, *, dim):
    by_rows(log_softmax_grad_rows, dx, dy, y, dim=dim)
