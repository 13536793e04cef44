"""Pooling of sequences and volumes, by the kernels for images, and what is made of pools.

A sequence is an image of one row. Maximum and mean are separable: a volume is pooled plane by plane, and then along its
depth, where the planes of the result are the columns of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from miniflow.dispatch import call
from miniflow.errors import ArgumentError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.activation import relu
from miniflow.ops.conv import Sizes
from miniflow.ops.creation import zeros
from miniflow.ops.index import Index
from miniflow.ops.pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from miniflow.ops.windows import check_signal, per_dim
from miniflow.tensor import Tensor, constant_like

Pooled = Tensor | tuple[Tensor, Tensor]


@takes_tensors
def max_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """`max_pool2d` of sequences: (N, C, L) -> (N, C, L').

    >>> import miniflow as flow
    >>> max_pool1d(flow.tensor([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[3.0, 2.0]]

    Source: `torch.nn.functional.max_pool1d`.
    """
    check_signal("max_pool1d", input, 1)
    kernel, border, spread = _window("max_pool1d", 1, kernel_size, padding, dilation)
    step = kernel if stride is None else per_dim("max_pool1d", "stride", stride, 1)
    windows = ((1, *kernel), (1, *step), (0, *border), (1, *spread))
    pooled = max_pool2d(input.unsqueeze(-2), *windows, ceil_mode, return_indices)
    return tuple([part.squeeze(-2) for part in pooled]) if return_indices else pooled.squeeze(-2)


@takes_tensors
def max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """`max_pool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'); an index counts in a volume (D, H, W).

    Source: `torch.nn.functional.max_pool3d`.
    """
    check_signal("max_pool3d", input, 3)
    kernel, border, spread = _window("max_pool3d", 3, kernel_size, padding, dilation)
    step = kernel if stride is None else per_dim("max_pool3d", "stride", stride, 3)
    *outer, depth, height, width = input.shape
    pool = partial(max_pool2d, ceil_mode=ceil_mode, return_indices=True)
    planes = input.reshape((prod(outer), depth, height, width))
    y, place = pool(planes, kernel[1:], step[1:], border[1:], spread[1:])
    size = tuple(y.shape[2:])
    columns = ((kernel[0], 1), (step[0], 1), (border[0], 0), (spread[0], 1))
    y, row = pool(y.reshape((prod(outer), 1, depth, prod(size))), *columns)
    shape = (*outer, y.shape[2], *size)
    if not return_indices:
        return y.reshape(shape)
    place = place.flatten(1).gather(1, row.flatten(1)).reshape(shape)
    plane = row.reshape(shape) // prod(size)
    return y.reshape(shape), plane * (height * width) + place


@takes_tensors
def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """`avg_pool2d` of sequences: (N, C, L) -> (N, C, L').

    >>> import miniflow as flow
    >>> avg_pool1d(flow.tensor([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[2.0, 1.0]]

    Source: `torch.nn.functional.avg_pool1d`.
    """
    check_signal("avg_pool1d", input, 1)
    kernel, border, _ = _window("avg_pool1d", 1, kernel_size, padding, 1)
    step = kernel if stride is None else per_dim("avg_pool1d", "stride", stride, 1)
    windows = ((1, *kernel), (1, *step), (0, *border))
    return avg_pool2d(input.unsqueeze(-2), *windows, ceil_mode, count_include_pad).squeeze(-2)


@takes_tensors
def avg_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """`avg_pool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W').

    Source: `torch.nn.functional.avg_pool3d`.
    """
    check_signal("avg_pool3d", input, 3)
    kernel, border, _ = _window("avg_pool3d", 3, kernel_size, padding, 1)
    step = kernel if stride is None else per_dim("avg_pool3d", "stride", stride, 3)
    *outer, depth, height, width = input.shape
    pool = partial(avg_pool2d, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    planes = input.reshape((prod(outer), depth, height, width))
    y = pool(planes, kernel[1:], step[1:], border[1:], divisor_override=divisor_override)
    size = tuple(y.shape[2:])
    columns = y.reshape((prod(outer), 1, depth, prod(size)))
    rest = None if divisor_override is None else 1
    y = pool(columns, (kernel[0], 1), (step[0], 1), (border[0], 0), divisor_override=rest)
    return y.reshape((*outer, y.shape[2], *size))


def _window(op: str, dims: int, kernel_size: Sizes, padding: Sizes, dilation: Sizes) -> list[tuple[int, ...]]:
    """Kernel size, padding and dilation as tuples."""
    return [
        per_dim(op, name, value, dims, least)
        for name, value, least in (("kernel_size", kernel_size, 1), ("padding", padding, 0), ("dilation", dilation, 1))
    ]


def _target(op: str, input: Tensor, dims: int, output_size: int | None | Sequence[int | None]) -> tuple[int, ...]:
    """The sizes that an adaptive pool makes; None keeps that of the input."""
    check_signal(op, input, dims)
    wanted = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size,) * dims
    if len(wanted) == dims:
        wanted = tuple([n if size is None else size for n, size in zip(input.shape[-dims:], wanted, strict=True)])
    return per_dim(op, "output_size", wanted, dims)


@takes_tensors
def adaptive_avg_pool1d(input: Tensor, output_size: int | Sequence[int]) -> Tensor:
    """`adaptive_avg_pool2d` of sequences: (N, C, L) -> (N, C, output_size).

    Source: `torch.nn.functional.adaptive_avg_pool1d`.
    """
    target = _target("adaptive_avg_pool1d", input, 1, output_size)
    return adaptive_avg_pool2d(input.unsqueeze(-2), (1, *target)).squeeze(-2)


@takes_tensors
def adaptive_avg_pool3d(input: Tensor, output_size: int | None | Sequence[int | None]) -> Tensor:
    """`adaptive_avg_pool2d` of volumes: (N, C, D, H, W) -> (N, C, *output_size).

    Source: `torch.nn.functional.adaptive_avg_pool3d`.
    """
    target = _target("adaptive_avg_pool3d", input, 3, output_size)
    *outer, depth, height, width = input.shape
    y = adaptive_avg_pool2d(input.reshape((prod(outer), depth, height, width)), target[1:])
    y = y.reshape((1, prod(outer), depth, prod(target[1:])))
    return adaptive_avg_pool2d(y, (target[0], prod(target[1:]))).reshape((*outer, *target))


def _adaptive_max(
    op: str, dims: int, input: Tensor, output_size: int | None | Sequence[int | None], return_indices: bool
) -> Pooled:
    """The largest of windows that cover the input evenly: max pooling after overlapping windows are laid side by side.

    A window that is shorter than the longest repeats its last element.
    """
    target = _target(op, input, dims, output_size)
    size, kernel, sources = tuple(input.shape[-dims:]), [], []
    if 0 in size:
        raise ShapeError(f"{op}: got input {tuple(input.shape)}; expected sizes above 0")
    for dim, (n, count) in enumerate(zip(size, target, strict=True), start=input.ndim - dims):
        start, stop = np.arange(count) * n // count, -(-np.arange(1, count + 1) * n // count)
        kernel.append(int((stop - start).max()))
        source = np.minimum(start[:, None] + np.arange(kernel[-1]), stop[:, None] - 1).reshape(1, -1)
        sources.append(source[0])
        if n % count:
            input = call(Index, input, constant_like(input, source), dims=(dim,))
    pool = (max_pool1d, max_pool2d, max_pool3d)[dims - 1]
    if not return_indices:
        return pool(input, tuple(kernel))
    y, place = pool(input, tuple(kernel), return_indices=True)
    index, span = 0, 1
    for n, source in zip(size[::-1], sources[::-1], strict=True):  # the place among the windows, dim by dim
        along = place % len(source)
        place = place // len(source)
        origin = constant_like(place, source).index_select(0, along.reshape(-1))
        index = origin * span + index
        span *= n
    return y, index.reshape(tuple(y.shape))


@takes_tensors
def adaptive_max_pool1d(input: Tensor, output_size: int | Sequence[int], return_indices: bool = False) -> Pooled:
    """`adaptive_max_pool2d` of sequences: (N, C, L) -> (N, C, output_size).

    Source: `torch.nn.functional.adaptive_max_pool1d`.
    """
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


@takes_tensors
def adaptive_max_pool2d(
    input: Tensor, output_size: int | None | Sequence[int | None], return_indices: bool = False
) -> Pooled:
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
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


@takes_tensors
def adaptive_max_pool3d(
    input: Tensor, output_size: int | None | Sequence[int | None], return_indices: bool = False
) -> Pooled:
    """`adaptive_max_pool2d` of volumes: (N, C, D, H, W) -> (N, C, *output_size).

    Source: `torch.nn.functional.adaptive_max_pool3d`.
    """
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


def _lp(
    dims: int, input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None, ceil_mode: bool
) -> Tensor:
    """The p-norm of each window: of its mean power, times the number of elements, as PyTorch's."""
    kernel = per_dim(f"lp_pool{dims}d", "kernel_size", kernel_size, dims)
    mean = (avg_pool1d, avg_pool2d, avg_pool3d)[dims - 1](input**norm_type, kernel, stride, 0, ceil_mode)
    return (relu(mean) * prod(kernel)) ** (1.0 / norm_type)


@takes_tensors
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """`lp_pool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.functional.lp_pool1d`."""
    return _lp(1, input, norm_type, kernel_size, stride, ceil_mode)


@takes_tensors
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) of each window, with p = norm_type; a sum below 0 counts as 0.

    >>> import miniflow as flow
    >>> lp_pool2d(flow.tensor([[[3.0, 4.0], [0.0, 0.0]]]), 2, 2).tolist()
    [[[5.0]]]

    Source: `torch.nn.functional.lp_pool2d`.
    """
    return _lp(2, input, norm_type, kernel_size, stride, ceil_mode)


@takes_tensors
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """`lp_pool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.functional.lp_pool3d`."""
    return _lp(3, input, norm_type, kernel_size, stride, ceil_mode)


def _unpool(dims, input, indices, kernel_size, stride, padding, output_size) -> Tensor:
    """Zeros but for the elements of the input, at their indices."""
    op = f"max_unpool{dims}d"
    check_signal(op, input, dims)
    kernel, border, _ = _window(op, dims, kernel_size, padding, 1)
    step = kernel if stride is None else per_dim(op, "stride", stride, dims)
    if tuple(indices.shape) != tuple(input.shape):
        raise ShapeError(f"{op}: got input {tuple(input.shape)} and indices {tuple(indices.shape)}; expected one shape")
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


@takes_tensors
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """`max_unpool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.functional.max_unpool1d`."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


@takes_tensors
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
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
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


@takes_tensors
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """`max_unpool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.functional.max_unpool3d`."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)
