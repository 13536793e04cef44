"""Matrix products through NumPy's BLAS, or for few rows by loops."""

import numpy as np

from miniflow.backends.cpu import few_rows
from miniflow.backends.registry import register, register_into


@register("cpu", "Matmul")
def matmul(x, y, *, transpose_x, transpose_y):
    if transpose_x:
        x = x.swapaxes(-1, -2)
    if transpose_y:
        if few_rows.suits(x, y):
            return few_rows.product(x, y, np.empty((len(x), len(y)), x.dtype))
        y = y.swapaxes(-1, -2)
    if x.shape[-1] == 1 == y.shape[-2]:  # an outer product moves memory, for which the BLAS takes four times as long
        return x * y
    return np.matmul(x, y)


@register_into("cpu", "Matmul")
def matmul_into(out, x, y, *, transpose_x, transpose_y):
    if transpose_x:
        x = x.swapaxes(-1, -2)
    if transpose_y:
        if few_rows.suits(x, y):
            few_rows.product(x, y, out)
            return
        y = y.swapaxes(-1, -2)
    if x.shape[-1] == 1 == y.shape[-2]:
        np.multiply(x, y, out=out)
    else:
        np.matmul(x, y, out=out)


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
