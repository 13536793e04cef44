"""Shape kernels: the views are NumPy's, taken of the layout; the others move each element once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.cpu import shape as cpu
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty
from miniflow.backends.cuda.copy import as_bits, copy_into, fill_into
from miniflow.backends.cuda.rows import over_rows
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


@kernel("cuda", half="native")
def view_scatter(y: DeviceArray, x: DeviceArray, values: DeviceArray, *, steps: tuple) -> None:
    copy_into(y, x)
    memory.write_through(y, values, steps)


@kernel("cuda", half="native")
def slice_into_zeros(dx: DeviceArray, y: DeviceArray, *, shape: tuple[int, ...], index: tuple) -> None:
    fill_into(dx, 0)
    copy_into(dx.view(lambda a: a[index]), y)


@kernel("cuda", half="native")
def diagonal_into_zeros(dx: DeviceArray, y: DeviceArray, *, shape: tuple[int, ...], **place: int) -> None:
    fill_into(dx, 0)
    copy_into(dx.view(lambda a: cpu.diagonal(a, **place)), y)


@kernel("cuda")
def fold_add(dx: DeviceArray, y: DeviceArray, *, shape: tuple[int, ...], dim: int, size: int, step: int) -> None:
    sizes = shape or (1,)
    outer, inner = prod(sizes[:dim]), prod(sizes[dim + 1 :])
    windows = y.shape[dim] if shape else 1
    out = empty(dx.shape, np.int32, dx.device_index) if dx.dtype == np.bool_ else dx  # the sum of bools is their "or"
    terms = contiguous(y if y.dtype == out.dtype else y.astype(out.dtype)).reshape(outer, windows, inner, size)
    over_rows(kernels.fold_add, outer * sizes[dim], inner, terms, step, out.reshape(outer, sizes[dim], inner))
    if out is not dx:
        copy_into(dx, out)


@kernel("cuda", half="native")
def clone(y: DeviceArray, x: DeviceArray) -> None:
    copy_into(y, x)


@kernel("cuda", half="native")
def flip(y: DeviceArray, x: DeviceArray, *, dims: tuple[int, ...]) -> None:
    copy_into(y, x.view(lambda a: np.flip(a, dims)))


@kernel("cuda", half="native")
def pad(y: DeviceArray, x: DeviceArray, *, widths: tuple[tuple[int, int], ...], value: float) -> None:
    if x.size == 0:  # there is nothing to read, and the kernel would not get an array with memory
        fill_into(y, value)
        return
    sizes, before, after = _merged(x.shape, widths)
    out_sizes = tuple([n + b + a for n, b, a in zip(sizes, before, after, strict=True)])
    source, target = bits(contiguous(x).reshape(-1)), bits(y.reshape(-1))
    arguments = source, sizes, before, as_bits(value, x.dtype), target, out_sizes
    over_rows(kernels.pad, prod(out_sizes[:-1]), out_sizes[-1], *arguments)


def _merged(shape: tuple[int, ...], widths: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], ...]:
    """Sizes and widths with every dim that gets no border merged into the one before it."""
    merged = [(1, 0, 0)]
    for n, (before, after) in zip(shape, widths, strict=True):
        if before == after == 0:
            last = merged.pop()
            merged.append(tuple([k * n for k in last]))
        else:
            merged.append((n, before, after))
    if merged[0] == (1, 0, 0) and len(merged) > 1:
        merged = merged[1:]
    return tuple(zip(*merged, strict=True))


@kernel("cuda", half="native")
def one_hot(y: DeviceArray, x: DeviceArray, *, num_classes: int) -> None:
    classes = contiguous(x).reshape(-1)
    over_rows(kernels.one_hot, x.size, num_classes, classes, y.reshape(x.size, num_classes))
