"""Matrix products through NumPy's BLAS, or for few rows by loops."""

import numpy as np

from miniflow.backends.cpu import few_rows
from miniflow.backends.cpu.products import product
from miniflow.backends.cpu.threads import SERIAL_PRODUCT, share, unlocked
from miniflow.backends.cpu.transpose import transpose
from miniflow.backends.registry import register, register_into


@register("cpu", "Matmul")
def matmul(x, y, *, transpose_x, transpose_y):
    if transpose_x:
        x = x.swapaxes(-1, -2)
    y = y.swapaxes(-1, -2) if transpose_y else y
    if y.flags.f_contiguous and few_rows.suits(x, y.T):
        return few_rows.product(x, y.T, np.empty((len(x), y.shape[1]), x.dtype))
    if x.shape[-1] == 1 == y.shape[-2]:  # an outer product moves memory, for which the BLAS takes four times as long
        return x * y
    if x.ndim == 2 == y.ndim:
        out = np.empty((len(x), y.shape[1]), x.dtype)
        product(x, y, out)
        return out
    if x.ndim < 3 or y.ndim < 3:
        return np.matmul(x, y)
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    out = np.empty((*batch, x.shape[-2], y.shape[-1]), x.dtype)
    _batched(x, y, out)
    return out


@register_into("cpu", "Matmul")
def matmul_into(out, x, y, *, transpose_x, transpose_y):
    if transpose_x:
        x = x.swapaxes(-1, -2)
    y = y.swapaxes(-1, -2) if transpose_y else y
    if y.flags.f_contiguous and few_rows.suits(x, y.T):
        few_rows.product(x, y.T, out)
    elif x.shape[-1] == 1 == y.shape[-2]:
        np.multiply(x, y, out=out)
    elif x.ndim == 2 == y.ndim:
        product(x, y, out)
    elif x.ndim < 3 or y.ndim < 3:
        np.matmul(x, y, out=out)
    else:
        _batched(x, y, out)


def _batched(x, y, out):
    """Many products. Small ones OpenBLAS leaves to the calling thread: threads share them out.

    It is slow at small products with y transposed, and waits then for other threads: y is copied to its own order.
    """
    batch, size = out.shape[:-2], x.shape[-2] * x.shape[-1] * y.shape[-1]
    if size > SERIAL_PRODUCT or x.shape[:-2] != batch or y.shape[:-2] != batch:
        np.matmul(x, y, out=out)
        return
    turned = None
    if out.ndim <= 4 and y.dtype == np.float32 and y.strides[-2] == y.itemsize and y.shape[-1] > 1:
        turned = np.empty(y.shape, y.dtype)

    def multiply(start, stop):
        right = y[start:stop]
        if turned is not None:
            right = turned[start:stop]
            source, target = (
                a.reshape(1, *a.shape) if a.ndim == 3 else a for a in (y[start:stop].swapaxes(-1, -2), right)
            )
            _transpose_matrices(source, target)
        np.matmul(x[start:stop], right, out=out[start:stop])

    share(multiply, len(out), out.size * x.shape[-1] // 16)


@unlocked()
def _transpose_matrices(x, y):
    """x (A, B, R, C) -> y (A, B, C, R)"""
    for a in range(x.shape[0]):
        for b in range(x.shape[1]):
            transpose(x[a, b], y[a, b])


@register("cpu", "Linear")
def linear(x, weight, bias):
    if few_rows.suits(x, weight):
        y = few_rows.product(x, weight, np.empty((len(x), len(weight)), x.dtype))
    else:
        y = np.matmul(x, weight.T)
    if bias is not None:
        y += bias
    return y


@register_into("cpu", "Linear")
def linear_into(out, x, weight, bias):
    if few_rows.suits(x, weight):
        few_rows.product(x, weight, out)
    else:
        np.matmul(x, weight.T, out=out)
    if bias is not None:
        np.add(out, bias, out=out)
