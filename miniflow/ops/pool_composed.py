"""Pooling that is composed of other operators: adaptive maxima, p-norms of windows, and the reverse of max pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from miniflow.composite import composite
from miniflow.dispatch import call
from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.creation import zeros
from miniflow.ops.index import Index
from miniflow.ops.pool import OutputSize, Pooled, adaptive_sizes, avg_pool, max_pool, windows_of
from miniflow.ops.windows import Sizes, check_signal
from miniflow.tensor import Tensor, constant_like


def _adaptive_max_pool(dims: int, input: Tensor, output_size: OutputSize, return_indices: bool) -> Pooled:
    """The largest of windows that cover the input evenly: max pooling after overlapping windows are laid side by side.

    A window that is shorter than the longest repeats its last element.
    """
    op = f"adaptive_max_pool{dims}d"
    target = adaptive_sizes(op, dims, input, output_size)
    size, kernel, sources = tuple(input.shape[-dims:]), [], []
    if 0 in size:
        raise ShapeError(f"{op}: got input {tuple(input.shape)}; expected sizes above 0")
    if 0 in target:
        y = input.narrow(-1, 0, 0).reshape((*input.shape[:-dims], *target))
        return (y, y.long()) if return_indices else y
    for dim, (n, count) in enumerate(zip(size, target, strict=True), start=input.ndim - dims):
        start, stop = np.arange(count) * n // count, -(-np.arange(1, count + 1) * n // count)
        kernel.append(int((stop - start).max()))
        source = np.minimum(start[:, None] + np.arange(kernel[-1]), stop[:, None] - 1).reshape(1, -1)
        sources.append(source[0])
        if n % count:
            input = call(Index, input, constant_like(input, source), dims=(dim,))
    pooled = max_pool(dims, input, tuple(kernel), None, 0, 1, False, return_indices)
    if not return_indices:
        return pooled
    y, place = pooled
    index, span = 0, 1
    for n, source in zip(size[::-1], sources[::-1], strict=True):  # the place among the windows, dim by dim
        along = place % len(source)
        place = place // len(source)
        origin = constant_like(place, source).index_select(0, along.reshape(-1))
        index = origin * span + index
        span *= n
    return y, index.reshape(tuple(y.shape))


@composite
def adaptive_max_pool2d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Pooled:
    """The largest elements of windows that cover the image evenly, as those of `adaptive_avg_pool2d`.

    Args:
        input: (N, C, H, W), or (C, H, W) for one image; floating.
        output_size: (OH, OW), or one number for both; None keeps the size of the input.
        return_indices: also return where in its plane each largest element lies.

    >>> import miniflow as flow
    >>> adaptive_max_pool2d(flow.arange(12).reshape(1, 3, 4).float(), (1, 2)).tolist()
    [[[9.0, 11.0]]]

    Source: `torch.nn.functional.adaptive_max_pool2d`.
    """
    return _adaptive_max_pool(2, input, output_size, return_indices)


@composite
def adaptive_max_pool1d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Pooled:
    """`adaptive_max_pool2d` of sequences: (N, C, L) -> (N, C, output_size).

    Source: `torch.nn.functional.adaptive_max_pool1d`.
    """
    return _adaptive_max_pool(1, input, output_size, return_indices)


@composite
def adaptive_max_pool3d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Pooled:
    """`adaptive_max_pool2d` of volumes: (N, C, D, H, W) -> (N, C, *output_size).

    Source: `torch.nn.functional.adaptive_max_pool3d`.
    """
    return _adaptive_max_pool(3, input, output_size, return_indices)


def _lp_pool(dims, input, norm_type, kernel_size, stride, ceil_mode) -> Tensor:
    """The p-norm of each window: of its mean power, times the number of elements, as PyTorch's."""
    count = prod([kernel for kernel, *_ in windows_of(f"lp_pool{dims}d", dims, kernel_size, stride, 0)])
    mean = avg_pool(dims, input**norm_type, kernel_size, stride, 0, ceil_mode, True, None)
    return (mean.relu() * count) ** (1.0 / norm_type)


@composite
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) of each window, with p = norm_type; a sum below 0 counts as 0.

    >>> import miniflow as flow
    >>> lp_pool2d(flow.tensor([[[3.0, 4.0], [0.0, 0.0]]]), 2, 2).tolist()
    [[[5.0]]]

    Source: `torch.nn.functional.lp_pool2d`.
    """
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@composite
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """`lp_pool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.functional.lp_pool1d`."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@composite
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """`lp_pool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.functional.lp_pool3d`."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _max_unpool(dims, input, indices, kernel_size, stride, padding, output_size) -> Tensor:
    """Zeros but for the elements of the input, at their indices."""
    op = f"max_unpool{dims}d"
    check_signal(op, input, dims)
    windows = windows_of(op, dims, kernel_size, stride, padding)
    if tuple(indices.shape) != tuple(input.shape):
        raise ShapeError(f"{op}: got input {tuple(input.shape)} and indices {tuple(indices.shape)}; expected one shape")
    kernel, step, border, _ = zip(*windows, strict=True)
    along = zip(input.shape[-dims:], step, border, kernel, strict=True)
    size = tuple([(n - 1) * s - 2 * p + k for n, s, p, k in along])
    if output_size is not None:
        wanted = tuple(output_size)[-dims:]
        if len(wanted) != dims or any(not n - s < w < n + s for n, s, w in zip(size, step, wanted, strict=True)):
            raise ArgumentError(f"{op}: got output_size={tuple(output_size)}; expected {size}, give or take a stride")
        size = wanted
    outer = tuple(input.shape[:-dims])
    flat = zeros(prod(outer), prod(size), dtype=input.dtype, device=input._place)
    rows = (prod(outer), prod(input.shape[-dims:]))
    return flat.scatter(1, indices.reshape(rows), input.reshape(rows)).reshape((*outer, *size))


@composite
def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The reverse of `max_pool2d`: zeros but for its results, where they were found.

    Args:
        input, indices: what `max_pool2d` returned with return_indices=True.
        kernel_size, stride, padding: what it was given.
        output_size: the last dims of its input, where windows of other images lead to this size too.

    Raises:
        ShapeError: if input and indices differ in shape.
        ArgumentError: for an output size that these windows cannot have come from.
        IndexRangeError: for an index outside the plane.

    >>> import miniflow as flow
    >>> pooled = flow.nn.functional.max_pool2d(flow.tensor([[[1.0, 2.0], [4.0, 3.0]]]), 2, return_indices=True)
    >>> max_unpool2d(*pooled, 2).tolist()
    [[[0.0, 0.0], [4.0, 0.0]]]

    Source: `torch.nn.functional.max_unpool2d`.
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@composite
def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """`max_unpool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.functional.max_unpool1d`."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@composite
def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """`max_unpool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.functional.max_unpool3d`."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
