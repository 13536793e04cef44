"""Matrix products through NumPy's BLAS.

OpenBLAS distributes all but the smallest products over its own threads. If the inner dimension is short, these threads
wait for each other longer than they compute, and so do threads that call OpenBLAS at the same time: `by_columns` keeps
such a product in the calling thread, unless it is large.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from miniflow.backends.cpu.threads import SERIAL_PRODUCT, share, unlocked
from miniflow.backends.registry import kernel

STEP = 16  # columns: a cache line of float32
SHORT, SHORT_PRODUCT = 32, 8_000_000  # inner dimension and multiplications up to which sharing a product does not pay
FEW_ROWS, LARGE_WEIGHT = range(2, 97), 32_768
LARGE_OUTER = 4096  # elements


@kernel("cpu")
def matmul(out, x, y, *, transpose_x, transpose_y):
    x = x.swapaxes(-1, -2) if transpose_x else x
    y = y.swapaxes(-1, -2) if transpose_y else y
    if x.shape[-1] == 1:  # an outer product is bound by memory, and a BLAS takes ten times as long for it
        if x.ndim == 2 == y.ndim and out.size >= LARGE_OUTER and out.dtype.char in "fd":
            outer(*(np.ascontiguousarray(a.reshape(-1)) for a in (x, y)), out)
        else:
            np.multiply(x, y, out=out)
    elif y.ndim == 2 and (x.ndim == 2 or not transpose_x):  # one product of a tall matrix, not many small ones
        _multiply(_as_rows(x), y, _as_rows(out))
    else:
        _batched(x, y, out)


@unlocked()
def outer(x, y, out):
    """out[i, j] = x[i] y[j], in a third of the time of NumPy's broadcast product."""
    for i in range(x.size):
        row, factor = out[i], x[i]
        for j in range(y.size):
            row[j] = factor * y[j]


@kernel("cpu")
def linear(out, x, weight, bias):
    _multiply(_as_rows(x), weight.T, _as_rows(out))
    if bias is not None:
        np.add(out, bias, out=out)


@kernel("cpu")
def summed_product(out, a, b):
    matmul(out, _as_rows(a), _as_rows(b), transpose_x=True, transpose_y=False)


def _as_rows(x: np.ndarray) -> np.ndarray:
    """All dims but the last as one."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _multiply(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """x (M, K) times y (K, N)"""
    (m, k), n = x.shape, y.shape[1]
    if m in FEW_ROWS and y.size >= LARGE_WEIGHT and y.flags.f_contiguous:
        # a BLAS would first copy y in another order, but not y^T: (y^T x^T)^T takes half the time
        np.copyto(out, np.matmul(y.T, x.T).T)
    elif k <= SHORT and SERIAL_PRODUCT < m * k * n <= SHORT_PRODUCT and x.dtype.char == "f":
        by_columns(x, y, out)
    else:
        np.matmul(x, y, out=out)


def by_columns(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """x (..., M, K) times y (..., K, N), in blocks of so few columns that OpenBLAS computes them in this thread.

    If STEP columns are already too many, the whole product goes to OpenBLAS: its threads synchronize once.
    """
    columns = n = y.shape[-1]
    if numba.get_num_threads() > 1 and x.shape[-2] * x.shape[-1] * STEP <= SERIAL_PRODUCT:
        columns = max(STEP, SERIAL_PRODUCT // (x.shape[-2] * x.shape[-1]) // STEP * STEP)
    for first in range(0, n, columns):
        np.matmul(x, y[..., first : first + columns], out=out[..., first : first + columns])


def _batched(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """Batched products. OpenBLAS computes small ones in the calling thread, so our threads share the batch."""
    batch, size = out.shape[:-2], x.shape[-2] * x.shape[-1] * y.shape[-1]
    if size > SERIAL_PRODUCT or not x.shape[:-2] == y.shape[:-2] == batch:
        np.matmul(x, y, out=out)
        return

    def multiply(start: int, stop: int) -> None:  # OpenBLAS is slow for small products with y transposed
        np.matmul(x[start:stop], np.ascontiguousarray(y[start:stop]), out=out[start:stop])

    share(multiply, len(out), out.size * x.shape[-1] // 16)
