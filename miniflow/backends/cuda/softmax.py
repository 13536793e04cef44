"""Softmax kernels. A dim that is not the last is moved there first, and the result is seen through the same move."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.launch import launch
from miniflow.backends.registry import kernel
from miniflow.kernels import softmax as kernels
from miniflow.kernels.reduce import THREADS, WARP


def threads_for(width: int) -> int:
    """How many threads a block gets to work on a row of `width` elements: whole warps, about eight elements a thread.

    An emulated device takes one warp: to exchange values between threads costs it more than to loop over elements.
    """
    return WARP if driver().emulated else max(WARP, min(THREADS, 1 << (width // 8).bit_length()))


def by_rows(rows: Any, out: DeviceArray, *arrays: DeviceArray, dim: int, cached: Any = None) -> None:
    """Run a kernel over contiguous rows along `dim`, and put its results into `out`.

    Args:
        rows: the kernel.
        cached: the one that keeps a row in shared memory, for those that fit.
    """
    if out.size == 0:
        return
    is_last = out.ndim == 0 or dim in (-1, out.ndim - 1)
    moved = [contiguous(x if is_last else x.view(lambda a: np.moveaxis(a, dim, -1))) for x in arrays]
    result = out if is_last else empty(moved[0].shape, out.dtype, out.device_index)
    width = moved[0].shape[-1] if out.ndim else 1
    shape = (out.size // width, width)
    arguments, size = [x.reshape(shape) for x in (*moved, result)], width * out.itemsize
    if cached is not None and size <= kernels.SHARED_BYTES:
        launch(cached, shape[0], threads_for(width), *arguments, shared=size)
    else:
        launch(rows, shape[0], threads_for(width), *arguments)
    if not is_last:
        copy_into(out, result.view(lambda a: np.moveaxis(a, -1, dim)))


@kernel("cuda")
def softmax(y, x, *, dim):
    by_rows(kernels.long_softmax_rows, y, x, dim=dim, cached=kernels.cached_softmax_rows)


@kernel("cuda")
def softmax_grad(dx, dy, y, *, dim):
    by_rows(kernels.softmax_grad_rows, dx, dy, y, dim=dim)


@kernel("cuda")
def log_softmax(y, x, *, dim):
    by_rows(kernels.long_log_softmax_rows, y, x, dim=dim, cached=kernels.cached_log_softmax_rows)


@kernel("cuda")
def log_softmax_grad(dx, dy, y, *, dim):
    by_rows(kernels.log_softmax_grad_rows, dx, dy, y, dim=dim)
