"""Shape kernels: the views are NumPy's, taken of the layout; the others move each element once."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.cpu import shape as cpu
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty, full
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.rows import over_rows
from miniflow.backends.registry import register
from miniflow.kernels import pad as kernels

VIEWS = {
    "View": cpu.view,
    "Transpose": cpu.transpose,
    "Permute": cpu.permute,
    "Expand": cpu.expand,
    "Slice": cpu.basic_slice,
    "Diagonal": cpu.diagonal,
    "Unfold": cpu.unfold,
    "AmpBlackIdentity": cpu.identity,
}


def view_kernel(take: Callable[..., np.ndarray]) -> Callable[..., DeviceArray]:
    """The kernel that applies a view function for NumPy arrays to the layout of a `DeviceArray`."""

    def kernel(x: DeviceArray, **attrs: Any) -> DeviceArray:
        return x.view(lambda layout: take(layout, **attrs))

    return kernel


for _name, _take in VIEWS.items():
    register("cuda", _name, half="native")(view_kernel(_take))


@register("cuda", "SliceIntoZeros", half="native")
def slice_into_zeros(y: DeviceArray, *, shape: tuple[int, ...], index: tuple) -> DeviceArray:
    out = full(shape, 0, y.dtype, y.device_index)
    copy_into(out.view(lambda a: a[index]), y)
    return out


@register("cuda", "DiagonalIntoZeros", half="native")
def diagonal_into_zeros(y: DeviceArray, *, shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> DeviceArray:
    out = full(shape, 0, y.dtype, y.device_index)
    copy_into(out.view(lambda a: cpu.diagonal(a, offset=offset, dim1=dim1, dim2=dim2)), y)
    return out


@register("cuda", "FoldAdd")
def fold_add(y: DeviceArray, *, shape: tuple[int, ...], dim: int, size: int, step: int) -> DeviceArray:
    sizes = shape or (1,)
    outer, inner = prod(sizes[:dim]), prod(sizes[dim + 1 :])
    windows = y.shape[dim] if shape else 1
    terms = y.astype(np.int32) if y.dtype == np.bool_ else contiguous(y)  # the sum of bools is their "or"
    out = empty(shape, terms.dtype, y.device_index)
    folded = out.reshape(outer, sizes[dim], inner)
    over_rows(kernels.fold_add, outer * sizes[dim], inner, terms.reshape(outer, windows, inner, size), step, folded)
    return out.astype(np.bool_) if y.dtype == np.bool_ else out


@register("cuda", "Clone", half="native")
def clone(x: DeviceArray) -> DeviceArray:
    """A copy in the order of x's strides, the dim with the largest outermost."""
    order = sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))
    back = [order.index(d) for d in range(x.ndim)]
    return x.view(lambda a: a.transpose(order)).copy().view(lambda a: a.transpose(back))


@register("cuda", "Contiguous", half="native")
def contiguous_copy(x: DeviceArray) -> DeviceArray:
    return x.copy()


@register("cuda", "Flip", half="native")
def flip(x: DeviceArray, *, dims: tuple[int, ...]) -> DeviceArray:
    return x.view(lambda a: np.flip(a, dims)).copy()


@register("cuda", "Pad", half="native")
def pad(x: DeviceArray, *, widths: tuple[tuple[int, int], ...], value: float) -> DeviceArray:
    shape = tuple([n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)])
    out = empty(shape, x.dtype, x.device_index)
    if out.size == 0:
        return out
    if x.size == 0:  # there is nothing to read, and the kernel would not get an array with memory
        return full(shape, value, x.dtype, x.device_index)
    sizes, before, after = _merged(x.shape, widths)
    out_sizes = tuple([n + b + a for n, b, a in zip(sizes, before, after, strict=True)])
    over_rows(
        kernels.pad,
        prod(out_sizes[:-1]),
        out_sizes[-1],
        bits(contiguous(x).reshape(-1)),
        sizes,
        before,
        as_bits_of(value, x.dtype),
        bits(out.reshape(-1)),
        out_sizes,
    )
    return out


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


def as_bits_of(value: float, dtype: np.dtype) -> np.unsignedinteger:
    """A number in `dtype`, as the unsigned integer that kernels which only move elements take for it."""
    return np.asarray(value, dtype).view(f"u{dtype.itemsize}")[()]


@register("cuda", "OneHot", half="native")
def one_hot(x: DeviceArray, *, num_classes: int) -> DeviceArray:
    if num_classes == -1:  # the shape of the result depends on values: the host has to see them
        num_classes = int(x.numpy().max()) + 1
    out = empty((*x.shape, num_classes), np.int64, x.device_index)
    classes = contiguous(x).reshape(-1)
    over_rows(kernels.one_hot, x.size, num_classes, classes, out.reshape(x.size, num_classes))
    return out


@register("cuda", "ViewScatter", half="native")
def view_scatter(x: DeviceArray, values: DeviceArray, *, steps: tuple) -> DeviceArray:
    out = x.copy()
    memory.write_through(out, values, steps)
    return out
