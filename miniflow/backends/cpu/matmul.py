"""Matrix products through NumPy's BLAS."""

import numpy as np

from miniflow.backends.registry import register


@register("cpu", "MatMul")
def matmul(x, y, *, transpose_x, transpose_y):
    return np.matmul(x.swapaxes(-1, -2) if transpose_x else x, y.swapaxes(-1, -2) if transpose_y else y)


@register("cpu", "Linear")
def linear(x, weight, bias):
    y = np.matmul(x, weight.T)
    if bias is not None:
        y += bias
    return y
