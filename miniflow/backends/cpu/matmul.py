"""Matrix products through NumPy's BLAS.

OpenBLAS shares products out among its own threads, all but the smallest. For those with a short inner dimension its
threads wait for each other longer than they compute, and threads that call it at the same time wait for each other too:
`by_columns` keeps a product in the calling thread, unless it is large.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from miniflow.backends.cpu.threads import SERIAL_PRODUCT, share, unlocked
from miniflow.backends.registry import kernel

STEP = 16  # columns: a cache line of float32
SHORT, SHORT_PRODUCT = 32, 8_000_000  # inner dimension and multiplications, up to which products are not worth sharing
FEW_ROWS, LARGE_WEIGHT = range(2, 97), 32_768
LARGE_OUTER = 4096  # elements


@kernel("cpu")
def matmul(out, x, y, *, transpose_x, transpose_y):
    x = x.swapaxes(-1, -2) if transpose_x else x
    y = y.swapaxes(-1, -2) if transpose_y else y
    if x.shape[-1] == 1:  # an outer product moves memory, for which a BLAS takes ten times as long
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
    """out[i, j] = x[i] y[j]; NumPy's broadcast product takes three times as long."""
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
        # a BLAS first copies y, whose order it has to change: it does not for y^T, so (y^T x^T)^T takes half the time
        np.copyto(out, np.matmul(y.T, x.T).T)
    elif k <= SHORT and SERIAL_PRODUCT < m * k * n <= SHORT_PRODUCT and x.dtype.char == "f":
        by_columns(x, y, out)
    else:
        np.matmul(x, y, out=out)


def by_columns(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """x (..., M, K) times y (..., K, N), by columns so few that OpenBLAS leaves them to this thread.

    Where even STEP columns are too many for that, the product goes to OpenBLAS whole: its threads meet once.
    """
    columns = n = y.shape[-1]
    if numba.get_num_threads() > 1 and x.shape[-2] * x.shape[-1] * STEP <= SERIAL_PRODUCT:
        columns = max(STEP, SERIAL_PRODUCT // (x.shape[-2] * x.shape[-1]) // STEP * STEP)
    for first in range(0, n, columns):
        np.matmul(x, y[..., first : first + columns], out=out[..., first : first + columns])


def _batched(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """Many products. Small ones OpenBLAS leaves to the calling thread: threads share them out."""
    batch, size = out.shape[:-2], x.shape[-2] * x.shape[-1] * y.shape[-1]
    if size > SERIAL_PRODUCT or not x.shape[:-2] == y.shape[:-2] == batch:
        np.matmul(x, y, out=out)
        return

    def multiply(start: int, stop: int) -> None:  # OpenBLAS is slow at small products with y transposed
        np.matmul(x[start:stop], np.ascontiguousarray(y[start:stop]), out=out[start:stop])

    share(multiply, len(out), out.size * x.shape[-1] // 16)
