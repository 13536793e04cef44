"""Matrix products: whatever the operands' layout, the kernel sees contiguous stacks of matrices."""

from __future__ import annotations

from math import prod

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.launch import launch
from miniflow.backends.registry import kernel
from miniflow.kernels.matmul import SIDE, THREADS, register_tiled

BOOL = np.dtype(np.bool_)


@kernel("cuda")
def matmul(out, x, y, *, transpose_x, transpose_y):
    if x.dtype == BOOL:  # "any of both": the number of them, as a bool
        numbers = empty(out.shape, np.dtype(np.int32), out.device_index)
        matmul(numbers, *[a.astype(np.int32) for a in (x, y)], transpose_x=transpose_x, transpose_y=transpose_y)
        copy_into(out, numbers.astype(BOOL))
        return
    if x.ndim > 2 == y.ndim and not transpose_x:  # one product of a tall matrix, not many small ones
        x, out = as_rows(x), as_rows(out)
    batch = out.shape[:-2]
    x, x_transposed = stack(x, batch, transpose_x)
    y, y_transposed = stack(y, batch, transpose_y)
    multiply(x, y, None, out.reshape(prod(batch), *out.shape[-2:]), x_transposed, y_transposed)


@kernel("cuda")
def linear(out, x, weight, bias):
    x, x_transposed = stack(as_rows(x), (), False)
    out = as_rows(out)
    weight, weight_transposed = stack(weight, (), True)
    multiply(x, weight, bias, out.reshape(1, *out.shape), x_transposed, weight_transposed)


@kernel("cuda")
def summed_product(out, a, b):
    matmul(out, as_rows(a), as_rows(b), transpose_x=True, transpose_y=False)


def as_rows(x: DeviceArray) -> DeviceArray:
    """All dims but the last as one."""
    return x if x.ndim == 2 else contiguous(x).reshape(prod(x.shape[:-1]), x.shape[-1])


def stack(x: DeviceArray, batch: tuple[int, ...], transposed: bool) -> tuple[DeviceArray, bool]:
    """Matrices (..., m, k) as a contiguous stack (B or 1, m, k), or (B or 1, k, m), and whether they are transposed.

    A transposed view costs nothing: it is transposed back. Other layouts are copied, and so are batches that are
    broadcast in part.
    """
    if not x.flags.c_contiguous:
        back = x.view(lambda a: a.swapaxes(-1, -2))
        if back.flags.c_contiguous:
            x, transposed = back, not transposed
    if prod(x.shape[:-2]) != 1 and x.shape[:-2] != batch:
        x = x.view(lambda a: np.broadcast_to(a, (*batch, *a.shape[-2:])))
    x = contiguous(x)
    return x.reshape(prod(x.shape[:-2]), *x.shape[-2:]), transposed


def multiply(
    x: DeviceArray, y: DeviceArray, bias: DeviceArray | None, out: DeviceArray, x_transposed: bool, y_transposed: bool
) -> None:
    """out (B, m, n) = x @ y + bias; x and y are (B or 1, ...)."""
    batches, rows, columns = out.shape
    bias = no_bias(out) if bias is None else contiguous(bias)
    grid = -(-columns // SIDE), -(-rows // SIDE), batches
    cut = [a for a in (x, y, out) if a.shape[0] == batches]
    launch(register_tiled, grid, THREADS, x, y, bias, out, x_transposed, y_transposed, cut=cut)


def no_bias(out: DeviceArray) -> DeviceArray:
    """An array without elements, for kernels that take a bias."""
    return out.view(lambda a: a.reshape(-1)[:0])
