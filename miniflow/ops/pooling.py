"""Pooling: the maximum, mean or p-norm of each window of each channel; and the reverse of max pooling.

An average is linear in x, so its gradient is a second linear op, whose gradient is the average again. The maximum keeps
the index of the element it took: its gradient scatters cotangents there, and the gradient of that gathers them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite
from miniflow.dispatch.dispatcher import Op, call
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.ops.creation import zeros
from miniflow.ops.indexing import Index, where
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.views import input_shape
from miniflow.ops.windows import Sizes, check_image, check_signal, per_dim, window_counts
from miniflow.sbp import signatures
from miniflow.tensor import Tensor, constant_like


class MaxPool2d(Op):
    """y = max over the window, NaN if one is seen, and where in its plane (H, W) it was found.

    The border is -inf, or the smallest integer.
    """

    amp = "clear"
    outputs = ("y", "index")
    nondifferentiable = ("index",)
    saves = ("index",)

    def infer(x, *, kernel, stride, padding, dilation, ceil_mode):
        check_image("max_pool2d", x)
        if x.dtype.kind == "b":
            raise DTypeError("max_pool2d: got bool; expected numbers: use x.float()")
        counts = window_counts("max_pool2d", x.shape, kernel, stride, padding, dilation, ceil_mode)
        return [((*x.shape[:2], *counts), x.dtype), ((*x.shape[:2], *counts), np.dtype(np.int32))]

    def sbp(x, *, ranks, **windows):
        return signatures(["nc.."], ["nc..", "nc.."])

    def backward(ctx, dy):
        return call(MaxPool2dGrad, dy, *ctx.saved, size=input_shape(ctx)[2:])


class MaxPool2dGrad(Op):
    """dx, zero but for dx[index] += dy in each plane; `size` is that of the image."""

    amp = "clear"
    saves = ("index",)

    def infer(dy, index, *, size):
        return (*dy.shape[:2], *size), dy.dtype

    def sbp(dy, index, *, ranks, size):
        return signatures(["nchw", "nchw"], ["nc.."], linear=[[0]])  # parts of the windows add up

    def backward(ctx, ddx):
        (index,) = ctx.saved
        positions = cast(index, np.int64).flatten(2)
        picked = ddx.flatten(2).gather(2, positions.maximum(0))
        return where(positions >= 0, picked, 0).reshape(index.shape), None  # -1 stands for a window that saw nothing


class MeanPool(Op):
    """An op that is linear in each image."""

    amp = "gray"

    def sbp(x, *, ranks, **attrs):
        return signatures(["nc.."], ["nc.."], linear=[[0]])


class AvgPool2d(MeanPool):
    """y = sum over the window / divisor, which is the number of its elements unless given."""

    def infer(x, *, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
        check_image("avg_pool2d", x)
        require_floating("avg_pool2d", x)
        counts = window_counts("avg_pool2d", x.shape, kernel, stride, padding, ceil_mode=ceil_mode)
        return (*x.shape[:2], *counts), x.dtype

    def backward(ctx, dy):
        return call(AvgPool2dGrad, dy, size=input_shape(ctx)[2:], **ctx.attrs)


class AvgPool2dGrad(MeanPool):
    """dx: each cotangent, divided as in the forward, added to every element of its window."""

    def infer(dy, *, size, **windows):
        return (*dy.shape[:2], *size), dy.dtype

    def backward(ctx, ddx):
        return call(AvgPool2d, ddx, **{name: value for name, value in ctx.attrs.items() if name != "size"})


class AdaptiveAvgPool2d(MeanPool):
    """y[i] = mean of x[floor(i H / OH)] to x[ceil((i + 1) H / OH) - 1], for rows and columns alike."""

    def infer(x, *, output_size):
        check_image("adaptive_avg_pool2d", x)
        require_floating("adaptive_avg_pool2d", x)
        if any(n == 0 < count for n, count in zip(x.shape[2:], output_size, strict=True)):
            raise ShapeError(f"adaptive_avg_pool2d: got input of shape {x.shape}; expected non-zero H and W")
        return (*x.shape[:2], *output_size), x.dtype

    def backward(ctx, dy):
        return call(AdaptiveAvgPool2dGrad, dy, size=input_shape(ctx)[2:])


class AdaptiveAvgPool2dGrad(MeanPool):
    """dx: each cotangent, divided by the size of its window, added to every element of it."""

    def infer(dy, *, size):
        return (*dy.shape[:2], *size), dy.dtype

    def backward(ctx, ddx):
        return call(AdaptiveAvgPool2d, ddx, output_size=input_shape(ctx)[2:])


Pooled = Tensor | tuple[Tensor, Tensor]
OutputSize = int | None | Sequence[int | None]
Window = tuple[int, int, int, int]  # along one dim: the size, the stride, the padding, the dilation
ALONE = 1, 1, 0, 1  # each element by itself


def windows_of(
    op: str, dims: int, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes = 1
) -> list[Window]:
    """The windows along each dim.

    Raises:
        ArgumentError: for numbers out of range.
    """
    kernel, dilation = per_dim(op, "kernel_size", kernel_size, dims), per_dim(op, "dilation", dilation, dims)
    stride = kernel if stride is None else per_dim(op, "stride", stride, dims)
    return list(zip(kernel, stride, per_dim(op, "padding", padding, dims, minimum=0), dilation, strict=True))


def check_border(op: str, windows: list[Window]) -> None:
    """Refuse a border wider than half a window, which could then see nothing but border.

    Raises:
        ArgumentError: for such a border.
    """
    kernel, _, paddings, dilations = zip(*windows, strict=True)
    if any(2 * p > d * (k - 1) + 1 for p, k, d in zip(paddings, kernel, dilations, strict=True)):
        got = f"padding={paddings} for kernel_size={kernel}, dilation={dilations}"
        raise ArgumentError(f"{op}: got {got}; expected at most half of the window: pad the input itself instead")


def as_attributes(*windows: Window) -> dict[str, tuple]:
    """The windows along rows and columns as attributes of `MaxPool2d`."""
    kernel, stride, padding, dilation = zip(*windows, strict=True)
    return {"kernel": kernel, "stride": stride, "padding": tuple([(p, p) for p in padding]), "dilation": dilation}


def pool_signal(
    dims: int, x: Tensor, sides: Sequence[Any], identity: Any, pool: Callable[..., Tensor | tuple]
) -> list[tuple[Tensor, ...]]:
    """Pool sequences (a row of an image), images, or volumes (their planes, and then the columns through the planes).

    Args:
        x: (N, C, *) or (C, *) with `dims` dims for *.
        sides: of each dim, what `pool` takes for rows and for columns.
        identity: the same for a dim whose elements are left alone.
        pool: from images (N, C, H, W), and from what it takes for rows and columns, to its results.

    Returns:
        the results, with the leading dims of x; of a volume those of the planes, flat, and those through the planes.
    """
    outer, size = tuple(x.shape[:-dims]), tuple(x.shape[-dims:])
    if dims == 3:
        planes = _several(pool(x.reshape((prod(outer), *size)), *sides[1:]))
        plane = tuple(planes[0].shape[2:])
        through = _several(pool(planes[0].reshape((1, prod(outer), size[0], prod(plane))), sides[0], identity))
        return [planes, tuple([y.reshape((*outer, y.shape[2], *plane)) for y in through])]
    if dims == 2 and len(outer) == 2:
        return [_several(pool(x, *sides))]
    images = x.reshape((*(1,) * (2 - len(outer)), *outer, *(1,) * (2 - dims), *size))
    pooled = _several(pool(images, *[identity, *sides][-2:]))
    return [tuple([y.reshape((*outer, *y.shape[4 - dims :])) for y in pooled])]


def _several(result: Tensor | tuple) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def max_pool(dims, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices) -> Pooled:
    """`max_pool2d` and its siblings."""
    op = f"max_pool{dims}d"
    check_signal(op, input, dims)
    windows = windows_of(op, dims, kernel_size, stride, padding, dilation)
    check_border(op, windows)

    def pool(images: Tensor, *sides: Window) -> tuple[Tensor, Tensor]:
        return call(MaxPool2d, images, ceil_mode=bool(ceil_mode), **as_attributes(*sides))

    *planes, (y, index) = pool_signal(dims, input, windows, ALONE, pool)
    if not return_indices:
        return y
    index = cast(index, np.dtype(np.int64))
    if planes:  # of a volume the index counts among the largest of each plane
        ((_, indices),), rows = planes, prod(input.shape[:-3])
        indices, positions = (i.reshape((rows, prod(i.shape[-3:]))) for i in (cast(indices, index.dtype), index))
        indices = indices.gather(1, positions)
        index = index // prod(y.shape[-2:]) * prod(input.shape[-2:]) + indices.reshape(y.shape)
    return y, index


@takes_tensors
def max_pool2d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Pooled:  # fmt: skip
    """The largest element of each window. As `torch.nn.functional.max_pool2d`.

    Args:
        input: (N, C, H, W), or (C, H, W) for one image; floating or integer.
        kernel_size: the size of a window, for rows and columns.
        stride: the distance between windows; that of their size if None.
        padding: the width of a border of -inf on each side, at most half of a window.
        dilation: the distance between the taps of a window.
        ceil_mode: round the number of windows up: the last may hang over the edge.
        return_indices: also say where the maxima were found.

    Returns:
        (N, C, OH, OW) with OH = floor((H + 2p - d (k - 1) - 1) / s) + 1; a NaN in a window comes out. With
        `return_indices` also int64 positions in the flat plane (H * W), of the first of equal maxima.

    Raises:
        ShapeError: if no window fits on the images.
        ArgumentError: for numbers out of range.
        DTypeError: for bool.

    >>> import miniflow as flow
    >>> x = flow.arange(16).reshape(1, 1, 4, 4).float()
    >>> y, index = max_pool2d(x, 2, return_indices=True)
    >>> y.tolist(), index.tolist()
    ([[[[5.0, 7.0], [13.0, 15.0]]]], [[[[5, 7], [13, 15]]]])

    Source: `torch.nn.functional.max_pool2d`.
    """
    return max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite
def max_pool1d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Pooled:  # fmt: skip
    """`max_pool2d` of sequences: (N, C, L) -> (N, C, L').

    >>> import miniflow as flow
    >>> max_pool1d(flow.tensor([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[3.0, 2.0]]

    Source: `torch.nn.functional.max_pool1d`.
    """
    return max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@composite
def max_pool3d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Pooled:  # fmt: skip
    """`max_pool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'); an index counts in a volume (D, H, W).

    Source: `torch.nn.functional.max_pool3d`.
    """
    return max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def avg_pool(dims, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) -> Tensor:
    """`avg_pool2d` and its siblings."""
    op = f"avg_pool{dims}d"
    check_signal(op, input, dims)
    windows = windows_of(op, dims, kernel_size, stride, padding)
    check_border(op, windows)
    if divisor_override is not None and (type(divisor_override) is not int or divisor_override == 0):
        raise ArgumentError(f"{op}: got divisor_override={divisor_override!r}; expected a non-zero integer, or None")
    divisors = [divisor_override, divisor_override and 1]  # of a volume, for its planes and through them
    options = {"ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}

    def pool(images: Tensor, *sides: Window) -> Tensor:
        attrs = as_attributes(*sides) | options | {"divisor_override": divisors.pop(0)}
        del attrs["dilation"]
        return call(AvgPool2d, images, **attrs)

    return pool_signal(dims, input, windows, ALONE, pool)[-1][0]


@takes_tensors
def avg_pool2d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window. As `torch.nn.functional.avg_pool2d`.

    Args:
        input: (N, C, H, W), or (C, H, W) for one image; floating.
        kernel_size: the size of a window, for rows and columns.
        stride: the distance between windows; that of their size if None.
        padding: the width of a border of zeros on each side, at most half of a window.
        ceil_mode: round the number of windows up: the last may hang over the edge, and what hangs over is not counted.
        count_include_pad: whether the zeros of the border count in the mean.
        divisor_override: divide by this number instead of the number of elements.

    Returns:
        (N, C, OH, OW) with OH = floor((H + 2p - k) / s) + 1.

    Raises:
        ShapeError: if no window fits on the images.
        ArgumentError: for numbers out of range.
        DTypeError: for integers.

    >>> import miniflow as flow
    >>> avg_pool2d(flow.arange(16).reshape(1, 4, 4).float(), 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]

    Source: `torch.nn.functional.avg_pool2d`.
    """
    return avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite
def avg_pool1d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """`avg_pool2d` of sequences: (N, C, L) -> (N, C, L').

    >>> import miniflow as flow
    >>> avg_pool1d(flow.tensor([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[2.0, 1.0]]

    Source: `torch.nn.functional.avg_pool1d`.
    """
    return avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite
def avg_pool3d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """`avg_pool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W').

    Source: `torch.nn.functional.avg_pool3d`.
    """
    return avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def adaptive_sizes(op: str, dims: int, input: Tensor, output_size: Any) -> tuple[int, ...]:
    """The output sizes of an adaptive pool; None keeps that of the input."""
    check_signal(op, input, dims)
    sizes = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size,) * dims
    if len(sizes) == dims:
        sizes = tuple([n if size is None else size for n, size in zip(input.shape[-dims:], sizes, strict=True)])
    return per_dim(op, "output_size", sizes, dims, minimum=0)


def adaptive_avg_pool(dims: int, input: Tensor, output_size: OutputSize) -> Tensor:
    """`adaptive_avg_pool2d` and its siblings."""
    sizes = adaptive_sizes(f"adaptive_avg_pool{dims}d", dims, input, output_size)

    def pool(images: Tensor, *sides: int | None) -> Tensor:
        sides = tuple([n if side is None else side for n, side in zip(images.shape[2:], sides, strict=True)])
        return call(AdaptiveAvgPool2d, images, output_size=sides)

    return pool_signal(dims, input, sizes, None, pool)[-1][0]


@takes_tensors
def adaptive_avg_pool2d(input: Tensor, output_size: OutputSize) -> Tensor:
    """The means of windows that cover the image evenly. As `torch.nn.functional.adaptive_avg_pool2d`.

    y[i] = mean of x[floor(i H / OH)] to x[ceil((i + 1) H / OH) - 1], for rows and columns alike; windows may overlap.

    Args:
        input: (N, C, H, W), or (C, H, W) for one image; floating.
        output_size: (OH, OW), or one number for both; None keeps the size of the input.

    Returns:
        (N, C, OH, OW)

    Raises:
        ShapeError: for images without elements.
        ArgumentError: for negative sizes.
        DTypeError: for integers.

    >>> import miniflow as flow
    >>> adaptive_avg_pool2d(flow.arange(12).reshape(1, 3, 4).float(), (1, 2)).tolist()
    [[[4.5, 6.5]]]

    Source: `torch.nn.functional.adaptive_avg_pool2d`.
    """
    return adaptive_avg_pool(2, input, output_size)


@composite
def adaptive_avg_pool1d(input: Tensor, output_size: OutputSize) -> Tensor:
    """`adaptive_avg_pool2d` of sequences: (N, C, L) -> (N, C, output_size).

    Source: `torch.nn.functional.adaptive_avg_pool1d`.
    """
    return adaptive_avg_pool(1, input, output_size)


@composite
def adaptive_avg_pool3d(input: Tensor, output_size: OutputSize) -> Tensor:
    """`adaptive_avg_pool2d` of volumes: (N, C, D, H, W) -> (N, C, *output_size).

    Source: `torch.nn.functional.adaptive_avg_pool3d`.
    """
    return adaptive_avg_pool(3, input, output_size)


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
    y, positions = pooled
    index, span = 0, 1
    for n, source in zip(size[::-1], sources[::-1], strict=True):  # the place among the windows, dim by dim
        along = positions % len(source)
        positions = positions // len(source)
        origin = constant_like(positions, source).index_select(0, along.reshape(-1))
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
    kernels, strides, paddings, _ = zip(*windows, strict=True)
    along = zip(input.shape[-dims:], strides, paddings, kernels, strict=True)
    sizes = tuple([(n - 1) * s - 2 * p + k for n, s, p, k in along])
    if output_size is not None:
        requested = tuple(output_size)[-dims:]
        if len(requested) != dims or any(abs(m - n) >= s for n, s, m in zip(sizes, strides, requested, strict=True)):
            raise ArgumentError(f"{op}: got output_size={tuple(output_size)}; expected {sizes}, give or take a stride")
        sizes = requested
    outer = tuple(input.shape[:-dims])
    flat = zeros(prod(outer), prod(sizes), dtype=input.dtype, device=input._device)
    rows = (prod(outer), prod(input.shape[-dims:]))
    return flat.scatter(1, indices.reshape(rows), input.reshape(rows)).reshape((*outer, *sizes))


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
