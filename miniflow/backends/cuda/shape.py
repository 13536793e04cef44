"""Shape kernels: the views are NumPy's, taken of the layout; the others move each element once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.cpu import shape as cpu
from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.rows import launch_over_box
from miniflow.backends.registry import kernel
from miniflow.kernels import pad as kernels


def view_kernel(take: Callable[..., np.ndarray]) -> Callable[..., DeviceArray]:
    """The kernel that applies a view function for NumPy arrays to the layout of a `DeviceArray`."""

    @functools.wraps(take)
    def view(x: DeviceArray, **attrs: Any) -> DeviceArray:
        return x.view(lambda layout: take(layout, **attrs))

    return view


for _take in cpu.VIEWS:
    kernel("cuda", returns=True)(view_kernel(_take))
for _copy in cpu.COPIES:
    kernel("cuda", half="native")(_copy)


@kernel("cuda", half="native")
def view_scatter(y, x, values, *, steps):
    copy_into(y, x)
    memory.write_through(y, values, steps)


@kernel("cuda", half="native")
def diagonal_into_zeros(dx, y, *, shape, **dims):
    dx[...] = 0
    dx.view(lambda a: cpu.diagonal(a, **dims))[...] = y


@kernel("cuda")
def fold_add(dx, y, *, shape, dim, size, step):
    outer, inner = prod(shape[:dim]), prod(shape[dim + 1 :])
    out = empty(dx.shape, np.int32, dx.device_index) if dx.dtype == np.bool_ else dx  # the sum of bools is their "or"
    terms = contiguous(y, out.dtype).reshape(outer, y.shape[dim], inner, size)
    launch_over_box(kernels.fold_add, (outer, shape[dim], inner), terms, step, out.reshape(outer, shape[dim], inner))
    if out is not dx:
        copy_into(dx, out)


@kernel("cuda", half="native")
def one_hot(y, x, *, num_classes):
    classes = contiguous(x).reshape(-1)
    launch_over_box(kernels.one_hot, (1, x.size, num_classes), classes, y.reshape(x.size, num_classes))
