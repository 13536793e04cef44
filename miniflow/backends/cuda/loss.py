"""Loss kernels.

Class indices and probabilities are checked where the device is emulated. On a GPU the host would have to wait for the
answer in every training step: there a target that is not a class makes the loss NaN.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu import loss as cpu
from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.cuda.softmax import threads_for
from miniflow.backends.registry import register
from miniflow.kernels import cross_entropy as kernels


def class_indices(op: str, target: DeviceArray, ignore_index: int, classes: int) -> DeviceArray:
    """The targets as contiguous int64.

    Raises:
        IndexRangeError: on an emulated device, with the first target that is not a class, and its position.
    """
    target = contiguous(target if target.dtype == np.int64 else target.astype(np.int64))
    if driver().emulated:
        cpu.class_indices(op, target.numpy(), ignore_index, classes)
    return target


def class_weights(weight: DeviceArray | None, device_index: int) -> DeviceArray:
    """Class weights in float64, empty for none: one compiled variant serves both."""
    if weight is None:
        return empty((0,), np.float64, device_index)
    return contiguous(weight if weight.dtype == np.float64 else weight.astype(np.float64))


def reduce_rows(
    loss: DeviceArray, factor: DeviceArray, reduction: str, dtype: np.dtype
) -> tuple[DeviceArray, DeviceArray]:
    """Reduce the losses of the rows; also the weight by which "mean" divided."""
    reduced, total = empty((1,), dtype, loss.device_index), empty((1,), np.float64, loss.device_index)
    launch(kernels.reduce_losses, 1, kernels.THREADS, loss, factor, reduction == "mean", reduced, total)
    return loss.astype(dtype) if reduction == "none" else reduced.reshape(()), total.reshape(())


@register("cuda", "CrossEntropy")
def cross_entropy(
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    *,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> tuple[DeviceArray, ...]:
    rows, classes = x.shape
    target = class_indices("cross_entropy", target, ignore_index, classes)
    loss, lse, factor = (empty((rows,), np.float64, x.device_index) for _ in range(3))
    options = class_weights(weight, x.device_index), ignore_index, float(label_smoothing)
    launch(kernels.cross_entropy_rows, rows, threads_for(classes), contiguous(x), target, *options, loss, lse, factor)
    reduced, total = reduce_rows(loss, factor, reduction, x.dtype)
    return reduced, lse, total


@register("cuda", "CrossEntropyGrad")
def cross_entropy_grad(
    dy: DeviceArray,
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    lse: DeviceArray,
    total: DeviceArray,
    *,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> DeviceArray:
    target = contiguous(target if target.dtype == np.int64 else target.astype(np.int64))
    dx = empty(x.shape, x.dtype, x.device_index)
    dy, total = contiguous(dy).reshape((dy.size,)), total.reshape((1,))
    row_terms = dy, contiguous(x), target, class_weights(weight, x.device_index), contiguous(lse), total
    flags = reduction == "none", reduction == "mean"
    options = ignore_index, *flags, float(label_smoothing)
    launch(kernels.cross_entropy_grad_rows, x.shape[0], threads_for(x.shape[1]), *row_terms, *options, dx)
    return dx


@register("cuda", "NllLoss")
def nll_loss(
    x: DeviceArray, target: DeviceArray, weight: DeviceArray | None, *, ignore_index: int, reduction: str
) -> tuple[DeviceArray, DeviceArray]:
    rows, classes = x.shape
    target = class_indices("nll_loss", target, ignore_index, classes)
    loss, factor = (empty((rows,), np.float64, x.device_index) for _ in range(2))
    weight = class_weights(weight, x.device_index)
    each(kernels.nll_rows, rows, contiguous(x), target, weight, ignore_index, loss, factor)
    return reduce_rows(loss, factor, reduction, x.dtype)


@register("cuda", "TargetWeights")
def target_weights(
    x: DeviceArray, target: DeviceArray, weight: DeviceArray | None, *, ignore_index: int, label_smoothing: float
) -> DeviceArray:
    q = empty(x.shape, x.dtype, x.device_index)
    target = contiguous(target if target.dtype == np.int64 else target.astype(np.int64))
    options = class_weights(weight, x.device_index), ignore_index, float(label_smoothing)
    launch(kernels.target_weight_rows, x.shape[0], threads_for(x.shape[1]), target, *options, q)
    return q


@register("cuda", "BinaryCrossEntropy")
def binary_cross_entropy(x: DeviceArray, target: DeviceArray) -> DeviceArray:
    if driver().emulated and x.size:
        values = x.numpy()
        if not (values.min() >= 0 and values.max() <= 1):
            cpu.binary_cross_entropy(values, values)  # raises
    y = empty(x.shape, x.dtype, x.device_index)
    flat = [contiguous(a).reshape((a.size,)) for a in (x, target)]
    each(kernels.binary_cross_entropy, x.size, *flat, y.reshape((y.size,)))
    return y
