"""Convolution over sequences, images and volumes, its transpose, and windows as columns.

y = conv(x, w) is linear in x and in w, so each of its two gradients is bilinear as well, and all their gradients are
composed of the same three ops:

    Conv2d(x, w) -> y           dx = DataGrad(dy, w)      dw = WeightGrad(dy, x)
    DataGrad(dy, w) -> dx       ddy = Conv2d(g, w)        dw = WeightGrad(dy, g)
    WeightGrad(dy, x) -> dw     ddy = Conv2d(x, g)        dx = DataGrad(dy, g)

where g is the cotangent of a gradient. Derivatives of any order follow.

The transposed convolution is the op that computes the gradient of `conv2d` with respect to x. A sequence is an image of
one row. The planes of a volume become channels of images, one for each tap along the depth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dtype import float32
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.ops.indexing import Index, IndexIntoZeros
from miniflow.ops.joining import stack
from miniflow.ops.padding import pad
from miniflow.ops.promotion import cast, require_floating, require_one_dtype
from miniflow.ops.views import input_shape
from miniflow.ops.windows import Sizes, check_image, check_signal, per_dim, window_counts
from miniflow.sbp import signatures
from miniflow.tensor import Tensor, constant_like


class Conv2d(Op):
    """y[n, o, i, j] = bias[o] + sum over c, a, b of weight[o, c, a, b] * x[n, c, i s - p + a d, j s - p + b d]

    with stride s, padding p and dilation d; with groups, c runs over the channels of the group that o belongs to.
    """

    amp = "white"
    saves = ("x", "weight")
    saved_if_needed = {"x": 1, "weight": 0}

    def infer(x, weight, bias, *, stride, padding, dilation, groups):
        _check_operands(x, weight, bias, groups)
        counts = window_counts("conv2d", x.shape, tuple(weight.shape[2:]), stride, padding, dilation)
        return (x.shape[0], weight.shape[0], *counts), x.dtype

    def sbp(x, weight, bias, *, ranks, groups, **windows):
        bias_position = [] if bias is None else [2]
        operands = ["nc..", "oc..", "o"] if groups == 1 else ["n...", "....", "."]
        if bias is None:
            operands[2] = None
        linear = [[0, *bias_position], [1, *bias_position]]
        return signatures(operands, ["no.." if groups == 1 else "n..."], linear=linear, added=[2])

    def backward(ctx, dy):
        x, weight = ctx.saved
        dx = dweight = dbias = None
        if ctx.needs[0]:
            dx = call(Conv2dDataGrad, dy, weight, size=input_shape(ctx, 0)[2:], **ctx.attrs)
        if ctx.needs[1]:
            dweight = call(Conv2dWeightGrad, dy, x, size=input_shape(ctx, 1)[2:], **ctx.attrs)
        if ctx.needs[2]:
            dbias = dy.sum((0, 2, 3))
        return dx, dweight, dbias


class Conv2dDataGrad(Op):
    """dx: each cotangent dy[n, o, i, j] times weight[o], added to where its window lay; `size` is that of the image."""

    amp = "white"
    saves = ("dy", "weight")
    saved_if_needed = {"dy": 1, "weight": 0}

    def infer(dy, weight, *, size, stride, padding, dilation, groups):
        shape = (dy.shape[0], weight.shape[1] * groups, *size)
        _check_cotangent(dy, weight, shape, weight.shape, (stride, padding, dilation), groups)
        return shape, dy.dtype

    def sbp(dy, weight, *, ranks, groups, **windows):
        operands, result = (["no..", "oc.."], "nc..") if groups == 1 else (["n...", "...."], "n...")
        return signatures(operands, [result], linear=[[0], [1]])

    def backward(ctx, ddx):
        dy, weight = ctx.saved
        attrs = _without_size(ctx.attrs)
        ddy = call(Conv2d, ddx, weight, None, **attrs) if ctx.needs[0] else None
        dweight = call(Conv2dWeightGrad, dy, ddx, size=input_shape(ctx, 1)[2:], **attrs) if ctx.needs[1] else None
        return ddy, dweight


class Conv2dWeightGrad(Op):
    """dweight[o, c, a, b] = sum over n, i, j of dy[n, o, i, j] * x[n, c, i s - p + a d, j s - p + b d]"""

    amp = "white"
    saves = ("dy", "x")
    saved_if_needed = {"dy": 1, "x": 0}

    def infer(dy, x, *, size, stride, padding, dilation, groups):
        shape = (dy.shape[1], x.shape[1] // groups, *size)
        _check_cotangent(dy, x, x.shape, shape, (stride, padding, dilation), groups)
        return shape, dy.dtype

    def sbp(dy, x, *, ranks, groups, **windows):
        operands, result = (["no..", "nc.."], "oc..") if groups == 1 else (["n...", "n..."], "....")
        return signatures(operands, [result], linear=[[0], [1]])

    def backward(ctx, ddweight):
        dy, x = ctx.saved
        attrs = _without_size(ctx.attrs)
        ddy = call(Conv2d, x, ddweight, None, **attrs) if ctx.needs[0] else None
        dx = call(Conv2dDataGrad, dy, ddweight, size=input_shape(ctx, 1)[2:], **attrs) if ctx.needs[1] else None
        return ddy, dx


def _without_size(attrs: dict) -> dict:
    return {name: value for name, value in attrs.items() if name != "size"}


def _check_operands(x: Any, weight: Any, bias: Any, groups: int) -> None:
    """Raise an error unless x (N, C, H, W), weight (O, C / groups, KH, KW) and bias (O,) fit together."""
    check_image("conv2d", x)
    if weight.ndim != 4 or 0 in weight.shape[1:]:
        raise refusal(ShapeError, "conv2d", "(O, C / groups, KH, KW), none zero but O", weight=weight)
    _check_channels("conv2d", x, weight, bias, groups)
    require_one_dtype("conv2d", x, weight, bias)
    require_floating("conv2d", x)


def _check_channels(op: str, x: Any, weight: Any, bias: Any, groups: int) -> None:
    """Raise ShapeError unless the channels of x (N, C, *) or (C, *), weight (O, C / groups, *) and bias fit."""
    (o, c), channels = weight.shape[:2], x.shape[1 - weight.ndim]
    operands = f"input {tuple(x.shape)} and weight {tuple(weight.shape)} with groups={groups}"
    if channels != c * groups:
        remedy = f": did you mean groups={channels // c}?" if channels and channels % c == 0 else ""
        if x.ndim < weight.ndim and c * groups == 1:
            remedy = ": if these are samples of one channel, use x.unsqueeze(1)"
        elif x.shape[-1] == c * groups:
            remedy = ": if the channels come last, use x.movedim(-1, 1)" if x.ndim == weight.ndim else ""
        raise ShapeError(f"{op}: got {operands}; expected {c * groups} input channels, {c} for each group{remedy}")
    if o % groups:
        raise ShapeError(f"{op}: got {operands}; expected groups to divide the {o} output channels")
    if bias is not None and bias.shape != (o,):
        raise ShapeError(f"{op}: got bias of shape {tuple(bias.shape)}; expected ({o},), one for each output channel")


def _check_cotangent(
    dy: Any, other: Any, x: tuple[int, ...], weight: tuple[int, ...], windows: tuple, groups: int
) -> None:
    """Raise an error unless `dy` is a cotangent of a convolution of these shapes: kernels rely on its shape."""
    require_one_dtype("conv2d", dy, other)
    shape = (x[0], weight[0], *window_counts("conv2d", x, weight[2:], *windows))
    if dy.shape != shape or x[1] != weight[1] * groups or weight[0] % groups:
        operands = f"input {x} and weight {weight} with groups={groups}"
        raise ShapeError(f"conv2d: got a cotangent of shape {dy.shape} of {operands}")


def borders(
    op: str, padding: Sizes | str, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """The widths (before, after) of the border along each dim.

    Raises:
        ArgumentError: for a negative number, an unknown word, or "same" with a stride.
    """
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding == "same":
        if set(stride) != {1}:
            expected = "stride 1: give the padding in numbers"
            raise ArgumentError(f"{op}: got padding='same' with stride {stride}; expected {expected}")
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple([(n // 2, n - n // 2) for n in total])
    if isinstance(padding, str):
        raise ArgumentError(f"{op}: got padding={padding!r}; expected 'same', 'valid', or integers")
    widths = per_dim(op, "padding", padding, len(kernel), minimum=0)
    return tuple(zip(widths, widths, strict=True))


def check_weight(op: str, weight: Tensor, dims: int) -> None:
    """Raise ShapeError for a weight of another number of dims, or without elements."""
    if weight.ndim != dims + 2 or 0 in weight.shape[1:]:
        raise refusal(ShapeError, op, f"{dims + 2} dims, none zero but the first", weight=weight)


def _conv(dims, input, weight, bias, stride, padding, dilation, groups) -> Tensor:
    """The convolution over `dims` dims: a sequence is an image of one row; for volumes see `_conv_volume`."""
    op = f"conv{dims}d"
    if type(groups) is not int or groups < 1:
        raise ArgumentError(f"{op}: got groups={groups!r}; expected an integer of at least 1")
    shape, kernel = input._array.shape, weight._array.shape[2:]
    if dims != 2 or len(shape) != 4 or len(kernel) != 2:  # for a batch of images, the operator checks this
        check_signal(op, input, dims)
        check_weight(op, weight, dims)
        _check_channels(op, input, weight, bias, groups)
    if len(shape) == dims + 1:
        return _conv(dims, input.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(0)
    stride, dilation = per_dim(op, "stride", stride, dims), per_dim(op, "dilation", dilation, dims)
    border = borders(op, padding, kernel, stride, dilation)
    if dims == 3:
        return _conv_volume(op, input, weight, bias, stride, border, dilation, groups)
    if dims == 2:
        return call(Conv2d, input, weight, bias, stride=stride, padding=border, dilation=dilation, groups=groups)
    attrs = {"stride": (1, *stride), "padding": ((0, 0), *border), "dilation": (1, *dilation)}
    return call(Conv2d, input.unsqueeze(-2), weight.unsqueeze(-2), bias, groups=groups, **attrs).squeeze(-2)


def _conv_volume(op, input, weight, bias, stride, border, dilation, groups) -> Tensor:
    """For each tap along the depth, the planes that it sees become channels of images, for one `Conv2d`."""
    if any(border[0]):
        input = pad(input, (0, 0, 0, 0, *border[0]))
    (n, c, depth, *size), (o, per_group, taps, *kernel) = input.shape, weight.shape
    count = (depth - dilation[0] * (taps - 1) - 1) // stride[0] + 1
    if count < 1:
        expected = f"a depth of at least {dilation[0] * (taps - 1) + 1} with its border: pad more"
        raise refusal(ShapeError, op, expected, input=input, weight=weight, dilation=dilation)
    planes, span = input.transpose(1, 2), stride[0] * (count - 1) + 1  # (N, D, C, H, W)
    starts = [tap * dilation[0] for tap in range(taps)]
    windows = stack([planes[:, start : start + span : stride[0]] for start in starts], 3)  # (N, D', C, KD, H, W)
    y = call(
        Conv2d, windows.reshape((n * count, c * taps, *size)), weight.reshape((o, per_group * taps, *kernel)), bias,
        stride=stride[1:], padding=border[1:], dilation=dilation[1:], groups=groups,
    )  # fmt: skip
    return y.reshape((n, count, *y.shape[1:])).transpose(1, 2).contiguous()


@composite
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes | str = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The convolution of images with kernels, which are not flipped: a cross-correlation.

    y[n, o, i, j] = bias[o] + sum over c, a, b of weight[o, c, a, b] * x[n, c, i s - p + a d, j s - p + b d]

    Args:
        input: (N, C, H, W), or (C, H, W) for one image; floating.
        weight: (O, C / groups, KH, KW), of the same dtype.
        bias: (O,) or None.
        stride: s, the distance between windows, for rows and columns.
        padding: p, the zeros on each side; "valid" for none, "same" for as many as keep the size at stride 1 (an odd
            one goes to the bottom, and to the right).
        dilation: d, the distance between the taps of a window.
        groups: channels are cut into so many groups; each group of output channels sees one group of input channels.

    Returns:
        (N, O, OH, OW) with OH = floor((H + 2p - d (KH - 1) - 1) / s) + 1; without N for one image.

    Raises:
        ShapeError: if the shapes do not fit together, or the image is smaller than the kernel.
        ArgumentError: for a number out of range, or an unknown word.
        DTypeError: for dtypes that differ or are not floating.

    >>> import miniflow as flow
    >>> conv2d(flow.ones(2, 3, 8, 8), flow.ones(4, 3, 3, 3), stride=2, padding=1).shape
    miniflow.Size([2, 4, 4, 4])
    >>> conv2d(flow.ones(1, 3, 3), flow.ones(1, 1, 3, 3), padding="same").tolist()
    [[[4.0, 6.0, 4.0], [6.0, 9.0, 6.0], [4.0, 6.0, 4.0]]]

    Source: `torch.nn.functional.conv2d`.
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@composite
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes | str = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The convolution of sequences with kernels, which are not flipped.

    Args:
        input: (N, C, L), or (C, L) for one sequence; floating.
        weight: (O, C / groups, K), of the same dtype.
        bias, stride, padding, dilation, groups: as `conv2d`.

    Returns:
        (N, O, L') with L' = floor((L + 2p - d (K - 1) - 1) / s) + 1; without N for one sequence.

    Raises:
        ShapeError, ArgumentError, DTypeError: as `conv2d`.

    >>> import miniflow as flow
    >>> conv1d(flow.ones(1, 4), flow.ones(1, 1, 3), padding=1).tolist()
    [[2.0, 3.0, 3.0, 2.0]]

    Source: `torch.nn.functional.conv1d`.
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@composite
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes | str = 0,
    dilation: Sizes = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The convolution of volumes with kernels, which are not flipped; takes KD times the memory of the input.

    Args:
        input: (N, C, D, H, W), or (C, D, H, W) for one volume; floating.
        weight: (O, C / groups, KD, KH, KW), of the same dtype.
        bias, stride, padding, dilation, groups: as `conv2d`; one number, or three for depth, rows and columns.

    Returns:
        (N, O, D', H', W') with D' = floor((D + 2p - d (KD - 1) - 1) / s) + 1, and H' and W' alike.

    Raises:
        ShapeError, ArgumentError, DTypeError: as `conv2d`.

    >>> import miniflow as flow
    >>> conv3d(flow.ones(2, 3, 5, 8, 8), flow.ones(4, 3, 3, 3, 3), padding=1).shape
    miniflow.Size([2, 4, 5, 8, 8])

    Source: `torch.nn.functional.conv3d`.
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(dims, input, weight, bias, stride, padding, output_padding, groups, dilation) -> Tensor:
    """The transposed convolution over `dims` dims."""
    op = f"conv_transpose{dims}d"
    check_signal(op, input, dims)
    check_weight(op, weight, dims)
    if input.ndim == dims + 1:
        options = (stride, padding, output_padding, groups, dilation)
        return _conv_transpose(dims, input.unsqueeze(0), weight, bias, *options).squeeze(0)
    _check_transposed(op, input, weight, bias, groups)
    strides, dilations = per_dim(op, "stride", stride, dims), per_dim(op, "dilation", dilation, dims)
    paddings = per_dim(op, "padding", padding, dims, 0)
    output_paddings = per_dim(op, "output_padding", output_padding, dims, 0)
    if any(e >= max(s, d) for e, s, d in zip(output_paddings, strides, dilations, strict=True)):
        got = f"output_padding={output_paddings} with stride {strides} and dilation {dilations}"
        raise ArgumentError(f"{op}: got {got}; expected less than the stride or the dilation")
    along = zip(input.shape[2:], weight.shape[2:], strides, paddings, output_paddings, dilations, strict=True)
    size = tuple([(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, e, d in along])
    if min(size) < 1:
        got = f"input {tuple(input.shape)} and padding {paddings}"
        raise ShapeError(f"{op}: got {got}: no output is left of size {size}")
    if any(e >= s for e, s in zip(output_paddings, strides, strict=True)):  # larger than the windows reach: zeros
        y = _conv_transpose(dims, input, weight, None, stride, 0, 0, groups, dilation)
        y = pad(y, [n for p, e in zip(paddings[::-1], output_paddings[::-1], strict=True) for n in (-p, e - p)])
    elif dims == 3:
        y = _enlarge_volume(input, weight, size, strides, paddings, dilations, groups)
    else:
        row = (0,) * (2 - dims)  # a sequence is an image of one row
        x, kernel = (input.unsqueeze(-2), weight.unsqueeze(-2)) if dims == 1 else (input, weight)
        y = call(
            Conv2dDataGrad, x, kernel, size=(1,) * len(row) + size, stride=(1,) * len(row) + strides,
            padding=tuple([(p, p) for p in row + paddings]), dilation=(1,) * len(row) + dilations, groups=groups,
        )  # fmt: skip
        y = y.squeeze(-2) if dims == 1 else y
    return y if bias is None else y + cast(bias, y.dtype).reshape((-1,) + (1,) * dims)


def _enlarge_volume(input, weight, size, stride, padding, dilation, groups) -> Tensor:
    """(N, C, D, H, W) -> (N, O, *size); for half precision, the sums over the taps are in float32."""
    if input._array.dtype.itemsize == 2:
        y = _enlarge_volume(cast(input, float32), cast(weight, float32), size, stride, padding, dilation, groups)
        return cast(y, input.dtype)
    (n, c, depth, *plane), (_, per_group, taps, *kernel) = input.shape, weight.shape
    y = call(
        Conv2dDataGrad, input.transpose(1, 2).reshape((n * depth, c, *plane)),
        weight.reshape((c, per_group * taps, *kernel)), size=size[1:], stride=stride[1:],
        padding=tuple([(p, p) for p in padding[1:]]), dilation=dilation[1:], groups=groups,
    )  # fmt: skip
    y = y.reshape((n, depth, per_group * groups, taps, *size[1:])).transpose(1, 2)  # (N, O, D, KD, H', W')
    full_depth = max((depth - 1) * stride[0] + dilation[0] * (taps - 1) + 1, padding[0] + size[0])
    total = None
    for tap in range(taps):
        planes = y[:, :, :, tap]
        if stride[0] > 1:  # zeros between the planes
            planes = pad(planes.unsqueeze(3), (0, 0, 0, 0, 0, stride[0] - 1))
            planes = planes.reshape((n, per_group * groups, depth * stride[0], *size[1:]))
        before = tap * dilation[0]
        planes = pad(planes, (0, 0, 0, 0, before, full_depth - before - depth * stride[0]))
        total = planes if total is None else total + planes
    return total.narrow(2, padding[0], size[0]).contiguous()


def _check_transposed(op: str, input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    """Raise an error unless input (N, C, *), weight (C, O / groups, *) and bias (O,) fit together."""
    if type(groups) is not int or groups < 1:
        raise ArgumentError(f"{op}: got groups={groups!r}; expected an integer of at least 1")
    if input.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        expected = "weight (C, O / groups, *) for an input (N, C, *), and groups to divide C"
        raise refusal(ShapeError, op, expected, input=input, weight=weight, groups=groups)
    outputs = weight.shape[1] * groups
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise ShapeError(f"{op}: got bias of shape {tuple(bias.shape)}; expected ({outputs},)")
    require_floating(op, input._array)


@composite
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0,
    output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> Tensor:  # fmt: skip
    """Each element of the input times the kernel, added to where the window of a convolution lies.

    Args:
        input: (N, C, H, W), or (C, H, W) for one image; floating.
        weight: (C, O / groups, KH, KW), of the same dtype.
        bias: (O,) or None.
        stride: s, the distance between the windows on the result.
        padding: p, how many rows and columns are cut off on each side of the result.
        output_padding: e, how many are added at its end; less than the stride or the dilation.
        groups: into how many groups the channels are divided.
        dilation: d, the distance between the taps of a window.

    Returns:
        (N, O, H', W') with H' = (H - 1) s - 2p + d (KH - 1) + e + 1, and W' alike.

    Raises:
        ShapeError: if the shapes do not fit together.
        ArgumentError: for a number out of range.
        DTypeError: for dtypes that are not floating.

    >>> import miniflow as flow
    >>> conv_transpose2d(flow.ones(1, 3, 4, 4), flow.ones(3, 2, 2, 2), stride=2).shape
    miniflow.Size([1, 2, 8, 8])

    Source: `torch.nn.functional.conv_transpose2d`.
    """
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0,
    output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> Tensor:  # fmt: skip
    """`conv_transpose2d` of sequences: (N, C, L) with a weight (C, O / groups, K) -> (N, O, L').

    >>> import miniflow as flow
    >>> conv_transpose1d(flow.ones(1, 3), flow.ones(1, 1, 2), stride=2).tolist()
    [[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]]

    Source: `torch.nn.functional.conv_transpose1d`.
    """
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@composite
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: Sizes = 0,
    output_padding: Sizes = 0, groups: int = 1, dilation: Sizes = 1,
) -> Tensor:  # fmt: skip
    """`conv_transpose2d` of volumes: (N, C, D, H, W) with a weight (C, O / groups, KD, KH, KW) -> (N, O, D', H', W').

    Source: `torch.nn.functional.conv_transpose3d`.
    """
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _windows(op, size, kernel_size, dilation, padding, stride) -> tuple:
    """Kernel, window counts, padding, and the indices (1, kernel * count) of rows and columns in the padded image."""
    kernel_size, dilation = per_dim(op, "kernel_size", kernel_size, 2), per_dim(op, "dilation", dilation, 2)
    padding, stride = per_dim(op, "padding", padding, 2, minimum=0), per_dim(op, "stride", stride, 2)
    borders = tuple([(p, p) for p in padding])
    counts = window_counts(op, (1, 1, *size), kernel_size, stride, borders, dilation)
    indices = [
        (np.arange(k)[:, None] * d + np.arange(n) * s).reshape(1, -1)
        for k, d, n, s in zip(kernel_size, dilation, counts, stride, strict=True)
    ]
    return kernel_size, counts, padding, indices


@takes_tensors
def unfold(input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """The windows of images as columns.

    Args:
        input: (N, C, H, W), or (C, H, W) for one image.
        kernel_size, dilation, padding, stride: of the windows, as those of `conv2d`.

    Returns:
        (N, C * KH * KW, L) for L windows.

    Raises:
        ShapeError: if no window fits.

    >>> import miniflow as flow
    >>> unfold(flow.arange(4).reshape(1, 1, 2, 2).float(), (1, 2)).tolist()
    [[[0.0, 2.0], [1.0, 3.0]]]

    Source: `torch.nn.functional.unfold`.
    """
    if input.ndim == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    check_image("unfold", input)
    n, c, *size = input.shape
    (kh, kw), (oh, ow), (top, left), indices = _windows("unfold", size, kernel_size, dilation, padding, stride)
    if top or left:
        input = pad(input, (left, left, top, top))
    for dim, index in enumerate(indices, start=2):
        input = call(Index, input, constant_like(input, index), dims=(dim,))
    columns = input.reshape((n, c, kh, oh, kw, ow)).permute((0, 1, 2, 4, 3, 5))
    return columns.reshape((n, c * kh * kw, oh * ow))


@takes_tensors
def fold(
    input: Tensor, output_size: Sizes, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Tensor:
    """Columns added to where their windows lie on images: the adjoint of `unfold`.

    Args:
        input: (N, C * KH * KW, L), or without N.
        output_size: (H, W), or one number for both.
        kernel_size, dilation, padding, stride: of the windows, as those of `unfold`.

    Returns:
        (N, C, H, W)

    Raises:
        ShapeError: for a number of columns or rows that does not fit.

    >>> import miniflow as flow
    >>> fold(flow.ones(1, 2, 2), (1, 3), (1, 2)).tolist()
    [[[[1.0, 2.0, 1.0]]]]

    Source: `torch.nn.functional.fold`.
    """
    if input.ndim == 2:
        return fold(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    height, width = size = per_dim("fold", "output_size", output_size, 2)
    (kh, kw), (oh, ow), (top, left), indices = _windows("fold", size, kernel_size, dilation, padding, stride)
    if input.ndim != 3 or input.shape[1] % (kh * kw) or input.shape[2] != oh * ow:
        expected = f"(N, C * {kh * kw}, {oh * ow}) for windows of {(kh, kw)} on images of {size}"
        raise refusal(ShapeError, "fold", expected, input=input)
    n, c = input.shape[0], input.shape[1] // (kh * kw)
    y = input.reshape((n, c, kh, kw, oh, ow)).permute((0, 1, 2, 4, 3, 5))
    y = y.reshape((n, c, kh * oh, kw * ow))
    padded_shape = (n, c, height + 2 * top, width + 2 * left)
    y = call(IndexIntoZeros, y, constant_like(y, indices[0]), dims=(2,), shape=(*padded_shape[:3], kw * ow))
    y = call(IndexIntoZeros, y, constant_like(y, indices[1]), dims=(3,), shape=padded_shape)
    return pad(y, (-left, -left, -top, -top)) if top or left else y
