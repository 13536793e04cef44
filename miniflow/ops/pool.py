"""Pooling: one number for each window of each channel, the largest or the mean.

An average is linear in x, so its gradient is a second linear op and the gradient of that is the average again. The
maximum keeps which element it took: its gradient sends cotangents there (a scatter), and the gradient of that fetches
them (a gather).
"""

from __future__ import annotations

import numpy as np

from miniflow.dispatch import Op, call
from miniflow.errors import ArgumentError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.piecewise import where
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.shape import input_shape
from miniflow.ops.windows import Pair, check_image, pair, window_counts
from miniflow.sbp import signatures
from miniflow.tensor import Tensor


class MaxPool2d(Op):
    """y = max over the window, NaN if one is seen, and where in its plane (H, W) it was found. The border is -inf."""

    amp = "clear"
    outputs = ("y", "index")
    nondifferentiable = ("index",)
    saves = ("index",)

    def infer(x, *, kernel, stride, padding, dilation, ceil_mode):
        check_image("max_pool2d", x)
        require_floating("max_pool2d", x)
        counts = window_counts("max_pool2d", x.shape, kernel, stride, padding, dilation, ceil_mode)
        return [((*x.shape[:2], *counts), x.dtype), ((*x.shape[:2], *counts), np.dtype(np.int32))]

    def sbp(x, *, ranks, **windows):
        return signatures(["nc.."], ["nc..", "nc.."])

    def backward(ctx, dy):
        (index,) = ctx.saved
        return call(MaxPool2dGrad, dy, index, size=input_shape(ctx)[2:])


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
        place = cast(index, np.int64).flatten(2)
        taken = ddx.flatten(2).gather(2, place.maximum(0))
        return where(place >= 0, taken, 0).reshape(index.shape), None  # -1 stands for a window that saw nothing


class AvgPool2d(Op):
    """y = sum over the window / divisor, which is the number of its elements unless given."""

    amp = "gray"

    def infer(x, *, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):
        check_image("avg_pool2d", x)
        require_floating("avg_pool2d", x)
        counts = window_counts("avg_pool2d", x.shape, kernel, stride, padding, ceil_mode=ceil_mode)
        return (*x.shape[:2], *counts), x.dtype

    def sbp(x, *, ranks, **windows):
        return signatures(["nc.."], ["nc.."], linear=[[0]])

    def backward(ctx, dy):
        return call(AvgPool2dGrad, dy, size=input_shape(ctx)[2:], **ctx.attrs)


class AvgPool2dGrad(Op):
    """dx: each cotangent, divided as in the forward, added to every element of its window."""

    amp = "gray"

    def infer(dy, *, size, **windows):
        return (*dy.shape[:2], *size), dy.dtype

    def sbp(dy, *, ranks, **windows):
        return signatures(["nc.."], ["nc.."], linear=[[0]])

    def backward(ctx, ddx):
        return call(AvgPool2d, ddx, **{name: value for name, value in ctx.attrs.items() if name != "size"})


class AdaptiveAvgPool2d(Op):
    """y[i] = mean of x[floor(i H / OH)] to x[ceil((i + 1) H / OH) - 1], for rows and columns alike."""

    amp = "gray"

    def infer(x, *, output_size):
        check_image("adaptive_avg_pool2d", x)
        require_floating("adaptive_avg_pool2d", x)
        if 0 in x.shape[1:]:
            raise ShapeError(f"adaptive_avg_pool2d: got input of shape {x.shape}; expected non-zero C, H and W")
        return (*x.shape[:2], *output_size), x.dtype

    def sbp(x, *, ranks, output_size):
        return signatures(["nc.."], ["nc.."], linear=[[0]])

    def backward(ctx, dy):
        return call(AdaptiveAvgPool2dGrad, dy, size=input_shape(ctx)[2:])


class AdaptiveAvgPool2dGrad(Op):
    """dx: each cotangent, divided by the size of its window, added to every element of it."""

    amp = "gray"

    def infer(dy, *, size):
        return (*dy.shape[:2], *size), dy.dtype

    def sbp(dy, *, ranks, size):
        return signatures(["nc.."], ["nc.."], linear=[[0]])

    def backward(ctx, ddx):
        return call(AdaptiveAvgPool2d, ddx, output_size=input_shape(ctx)[2:])


def _windows(
    op: str, kernel_size: int | Pair, stride: int | Pair | None, padding: int | Pair, dilation: int | Pair
) -> dict:
    """The attributes that both pools share.

    Raises:
        ArgumentError: for a border wider than half a window: a window could then see nothing but border.
    """
    kernel, spread = pair(op, "kernel_size", kernel_size), pair(op, "dilation", dilation)
    border = pair(op, "padding", padding, least=0)
    if any(2 * p > d * (k - 1) + 1 for p, k, d in zip(border, kernel, spread, strict=True)):
        raise ArgumentError(
            f"{op}: got padding={border} for kernel_size={kernel}, dilation={spread}; expected at most half of the "
            "window: pad the input itself instead"
        )
    step = kernel if stride is None else pair(op, "stride", stride)
    rows, columns = border
    return {"kernel": kernel, "stride": step, "padding": ((rows, rows), (columns, columns)), "dilation": spread}


@takes_tensors
def max_pool2d(
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The largest element of each window. As `torch.nn.functional.max_pool2d`.

    Args:
        input: (N, C, H, W), or (C, H, W) for one image; floating.
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
        DTypeError: for integers.

    >>> import miniflow as flow
    >>> x = flow.arange(16).reshape(1, 1, 4, 4).float()
    >>> y, index = max_pool2d(x, 2, return_indices=True)
    >>> y.tolist(), index.tolist()
    ([[[[5.0, 7.0], [13.0, 15.0]]]], [[[[5, 7], [13, 15]]]])

    Source: `torch.nn.functional.max_pool2d`.
    """
    attrs = _windows("max_pool2d", kernel_size, stride, padding, dilation)
    single = input.ndim == 3
    y, index = call(MaxPool2d, input.unsqueeze(0) if single else input, ceil_mode=bool(ceil_mode), **attrs)
    if single:
        y = y.squeeze(0)
    if not return_indices:
        return y
    index = cast(index, np.dtype(np.int64))
    return y, index.squeeze(0) if single else index


@takes_tensors
def avg_pool2d(
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
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
    attrs = _windows("avg_pool2d", kernel_size, stride, padding, 1)
    del attrs["dilation"]
    if divisor_override is not None and (type(divisor_override) is not int or divisor_override == 0):
        raise ArgumentError(
            f"avg_pool2d: got divisor_override={divisor_override!r}; expected a non-zero integer, or None"
        )
    attrs.update(
        ceil_mode=bool(ceil_mode), count_include_pad=bool(count_include_pad), divisor_override=divisor_override
    )
    if input.ndim == 3:
        return call(AvgPool2d, input.unsqueeze(0), **attrs).squeeze(0)
    return call(AvgPool2d, input, **attrs)


@takes_tensors
def adaptive_avg_pool2d(input: Tensor, output_size: int | None | tuple[int | None, int | None]) -> Tensor:
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
    if input.ndim == 3:
        return adaptive_avg_pool2d(input.unsqueeze(0), output_size).squeeze(0)
    check_image("adaptive_avg_pool2d", input)
    sizes = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size, output_size)
    if len(sizes) == 2:
        sizes = tuple([n if wanted is None else wanted for n, wanted in zip(input.shape[2:], sizes, strict=True)])
    return call(AdaptiveAvgPool2d, input, output_size=pair("adaptive_avg_pool2d", "output_size", sizes, least=0))
