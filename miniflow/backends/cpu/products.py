"""Matrix products that the calling thread computes alone.

OpenBLAS shares products out among its own threads, all but the smallest. For those with a short inner dimension its
threads wait for each other longer than they compute, and threads that call it at the same time wait for each other too.
"""

from __future__ import annotations

import numba
import numpy as np

from miniflow.backends.cpu.threads import SERIAL_PRODUCT

STEP = 16  # columns: a cache line of float32
SHORT, SHORT_PRODUCT = 32, 8_000_000  # inner dimension and multiplications, up to which products are not worth sharing


def product(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """x (M, K) times y (K, N), with the threads of the BLAS if that is faster"""
    (m, k), n = x.shape, y.shape[1]
    if k <= SHORT and SERIAL_PRODUCT < m * k * n <= SHORT_PRODUCT and x.dtype.char == "f":
        by_columns(x, y, out)
    else:
        np.matmul(x, y, out=out)


def by_columns(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """x (..., M, K) times y (..., K, N), by columns so few that OpenBLAS leaves them to this thread"""
    columns = n = y.shape[-1]
    if numba.get_num_threads() > 1:
        columns = max(STEP, SERIAL_PRODUCT // (x.shape[-2] * x.shape[-1]) // STEP * STEP)
    for first in range(0, n, columns):
        np.matmul(x, y[..., first : first + columns], out=out[..., first : first + columns])
