"""Loss kernels.

Class indices and probabilities are checked where the device is emulated. On a GPU the host would have to wait for the
answer in every training step: there a target that is not a class makes the loss NaN.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu import loss as cpu
from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.launch import launch
from miniflow.backends.cuda.softmax import threads_for
from miniflow.backends.registry import kernel
from miniflow.kernels import cross_entropy as kernels


def class_indices(target: DeviceArray, ignore_index: int, classes: int) -> DeviceArray:
    """The targets as contiguous int64.

    Raises:
        IndexRangeError: on an emulated device, with the first target that is not a class, and its position.
    """
    target = contiguous(target, np.int64)
    if driver().emulated:
        cpu.class_indices(target.numpy(), ignore_index, classes)
    return target


def class_weights(weight: DeviceArray | None, device_index: int) -> DeviceArray:
    """Class weights in float64, empty for none: one compiled variant serves both."""
    if weight is None:
        return empty((0,), np.float64, device_index)
    return contiguous(weight, np.float64)


def reduce_rows(
    reduced: DeviceArray, total: DeviceArray, loss: DeviceArray, factor: DeviceArray, reduction: str
) -> None:
    """Reduce the losses of the rows; `total` is the weight by which "mean" divides."""
    is_none = reduction == "none"
    results = (empty((1,), loss.dtype, loss.device_index) if is_none else reduced.reshape((1,))), total.reshape((1,))
    launch(kernels.reduce_losses, 1, kernels.THREADS, loss, factor, reduction == "mean", *results)
    if is_none:
        copy_into(reduced.reshape(loss.shape), loss)


@kernel("cuda")
def cross_entropy(out, x, target, weight, *, ignore_index, reduction, label_smoothing):
    reduced, lse, total = out
    rows, classes = lse.size, x.shape[-1]
    x, lse = contiguous(x).reshape((rows, classes)), lse.reshape((rows,))
    target = class_indices(contiguous(target).reshape((rows,)), ignore_index, classes)
    loss, factor = (empty((rows,), np.float64, x.device_index) for _ in range(2))
    options = class_weights(weight, x.device_index), ignore_index, float(label_smoothing)
    launch(kernels.cross_entropy_rows, rows, threads_for(classes), x, target, *options, loss, lse, factor)
    reduce_rows(reduced, total, loss, factor, reduction)


@kernel("cuda")
def cross_entropy_grad(dx, dy, x, target, weight, lse, total, *, ignore_index, reduction, label_smoothing):
    dy, total = contiguous(dy).reshape((dy.size,)), total.reshape((1,))
    x, dx = (contiguous(a).reshape((lse.size, x.shape[-1])) for a in (x, dx))
    target, lse = (contiguous(a, dtype).reshape((lse.size,)) for a, dtype in ((target, np.int64), (lse, np.float64)))
    row_terms = dy, x, target, class_weights(weight, x.device_index), lse, total
    options = ignore_index, reduction == "none", reduction == "mean", float(label_smoothing)
    launch(kernels.cross_entropy_grad_rows, x.shape[0], threads_for(x.shape[1]), *row_terms, *options, dx)
