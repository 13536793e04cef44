"""Softmax kernels. A dim that is not the last is moved there first, and the result is seen through the same move."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.launch import launch
from miniflow.backends.registry import register
from miniflow.kernels import softmax as kernels
from miniflow.kernels.reduce import THREADS, WARP


def threads_for(width: int) -> int:
    """How many threads a block gets to work on a row of `width` elements: whole warps, about eight elements a thread.

    An emulated device takes one warp: to exchange values between threads costs it more than to loop over elements.
    """
    return WARP if driver().emulated else max(WARP, min(THREADS, 1 << (width // 8).bit_length()))


def by_rows(kernel: Any, *arrays: DeviceArray, dim: int) -> DeviceArray:
    """Run a kernel over contiguous rows along `dim`."""
    moved = [contiguous(x if x.ndim == 0 else x.view(lambda a: np.moveaxis(a, dim, -1))) for x in arrays]
    out = empty(moved[0].shape, moved[0].dtype, moved[0].device_index)
    if out.size:
        width = out.shape[-1] if out.ndim else 1
        shape = (out.size // width, width)
        launch(kernel, shape[0], threads_for(width), *[x.reshape(shape) for x in (*moved, out)])
    return out if out.ndim == 0 else out.view(lambda a: np.moveaxis(a, -1, dim))


@register("cuda", "Softmax")
def softmax(x: DeviceArray, *, dim: int) -> DeviceArray:
    return by_rows(kernels.softmax_rows, x, dim=dim)


@register("cuda", "SoftmaxGrad")
def softmax_grad(dy: DeviceArray, y: DeviceArray, *, dim: int) -> DeviceArray:
    return by_rows(kernels.softmax_grad_rows, dy, y, dim=dim)


@register("cuda", "LogSoftmax")
def log_softmax(x: DeviceArray, *, dim: int) -> DeviceArray:
    return by_rows(kernels.log_softmax_rows, x, dim=dim)


@register("cuda", "LogSoftmaxGrad")
def log_softmax_grad(dy: DeviceArray, y: DeviceArray, *, dim: int) -> DeviceArray:
    return by_rows(kernels.log_softmax_grad_rows, dy, y, dim=dim)
