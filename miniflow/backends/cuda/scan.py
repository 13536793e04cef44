"""Scans: along the last dim, to which any other is moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.reduce import as_number, end_of, numbers
from miniflow.backends.registry import kernel
from miniflow.kernels import scan as kernels
from miniflow.kernels.reduce import THREADS

CHUNK = 16 * THREADS  # elements of a part of a long row
ENOUGH = 256  # blocks that keep a device busy: so many rows are not cut


def scan(scans: kernels.Scan, y: DeviceArray, x: DeviceArray, identity: Any, dim: int, reverse: bool) -> None:
    """Run the kernels of a scan over contiguous rows along `dim`, and put their results into `y`."""
    if y.size == 0:
        return
    y, x = numbers(y), contiguous(numbers(x).view(lambda a: np.moveaxis(a, dim, -1)))
    result = empty(x.shape, y.dtype, y.device_index)
    shape = rows, width = (y.size // x.shape[-1], x.shape[-1])
    x, number = x.reshape(shape), as_number(identity, y.dtype)
    parts = 1 if rows >= ENOUGH else -(-width // CHUNK)
    carries, no_carries = (empty(size, y.dtype, y.device_index) for size in ((rows, parts), (0, 1)))
    if parts > 1:
        launch(scans.totals.block_rows, rows * parts, THREADS, x, x.reshape(-1), number, CHUNK, carries)
        launch(scans.rows, rows, THREADS, carries, no_carries, number, parts, True, reverse, carries)
    chunk, carries = (CHUNK, carries) if parts > 1 else (width, no_carries)
    launch(scans.rows, rows * parts, THREADS, x, carries, number, chunk, False, reverse, result.reshape(shape))
    copy_into(y, result.view(lambda a: np.moveaxis(a, -1, dim)))


@kernel("cuda")
def cumsum(y, x, *, dim, reverse):
    scan(kernels.SUMS, y, x, 0, dim, reverse)


@kernel("cuda")
def cumprod(y, x, *, dim, reverse):
    scan(kernels.PRODUCTS, y, x, 1, dim, reverse)


@kernel("cuda")
def cumulative_max(y, x, *, dim, reverse):
    scan(kernels.MAXIMA, y, x, end_of(numbers(x).dtype, -1), dim, reverse)


@kernel("cuda")
def cumulative_min(y, x, *, dim, reverse):
    scan(kernels.MINIMA, y, x, end_of(numbers(x).dtype, 1), dim, reverse)


@kernel("cuda")
def logcumsumexp(y, x, *, dim, reverse):
    scan(kernels.LOGSUMEXPS, y, x, -np.inf, dim, reverse)
