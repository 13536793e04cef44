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


def scan(rows: Any, y: DeviceArray, x: DeviceArray, identity: Any, dim: int, reverse: bool) -> None:
    """Run a kernel over contiguous rows along `dim`, and put its results into `y`."""
    if y.size == 0:
        return
    y, x = numbers(y), contiguous(numbers(x).view(lambda a: np.moveaxis(a, dim, -1)))
    result = empty(x.shape, y.dtype, y.device_index)
    shape = (y.size // x.shape[-1], x.shape[-1])
    launch(
        rows, shape[0], THREADS, x.reshape(shape), as_number(identity, y.dtype), False, reverse, result.reshape(shape)
    )
    copy_into(y, result.view(lambda a: np.moveaxis(a, -1, dim)))


@kernel("cuda")
def cumsum(y, x, *, dim, reverse):
    scan(kernels.cumulative_sum, y, x, 0, dim, reverse)


@kernel("cuda")
def cumprod(y, x, *, dim, reverse):
    scan(kernels.cumulative_product, y, x, 1, dim, reverse)


@kernel("cuda")
def cumulative_max(y, x, *, dim, reverse):
    scan(kernels.cumulative_max, y, x, end_of(numbers(x).dtype, -1), dim, reverse)


@kernel("cuda")
def cumulative_min(y, x, *, dim, reverse):
    scan(kernels.cumulative_min, y, x, end_of(numbers(x).dtype, 1), dim, reverse)


@kernel("cuda")
def logcumsumexp(y, x, *, dim, reverse):
    scan(kernels.cumulative_logsumexp, y, x, -np.inf, dim, reverse)
