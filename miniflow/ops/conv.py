"""Convolution over images.

y = conv(x, w) is linear in x and in w, so that its two gradients are again linear in two things, and the gradients of
all three are made of the three:

    Conv2d(x, w) -> y           dx = DataGrad(dy, w)      dw = WeightGrad(dy, x)
    DataGrad(dy, w) -> dx       ddy = Conv2d(g, w)        dw = WeightGrad(dy, g)
    WeightGrad(dy, x) -> dw     ddy = Conv2d(x, g)        dx = DataGrad(dy, g)

where g is the cotangent of a gradient. Derivatives of any order follow.
"""

from __future__ import annotations

from typing import Any

from miniflow.composite import composite
from miniflow.dispatch import Op, call
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.ops.join import stack
from miniflow.ops.pad import pad
from miniflow.ops.promotion import require_floating, require_one_dtype
from miniflow.ops.shape import input_shape
from miniflow.ops.windows import Sizes, check_image, check_signal, per_dim, window_counts
from miniflow.sbp import signatures
from miniflow.tensor import Tensor


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
        plus = [] if bias is None else [2]
        given = ["nc..", "oc..", "o"] if groups == 1 else ["n...", "....", "."]
        result = ["no.."] if groups == 1 else ["n..."]
        return signatures([*given[:2], given[2] if plus else None], result, linear=[[0, *plus], [1, *plus]], added=[2])

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
        given, result = (["no..", "oc.."], "nc..") if groups == 1 else (["n...", "...."], "n...")
        return signatures(given, [result], linear=[[0], [1]])

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
        given, result = (["no..", "nc.."], "oc..") if groups == 1 else (["n...", "n..."], "....")
        return signatures(given, [result], linear=[[0], [1]])

    def backward(ctx, ddweight):
        dy, x = ctx.saved
        attrs = _without_size(ctx.attrs)
        ddy = call(Conv2d, x, ddweight, None, **attrs) if ctx.needs[0] else None
        dx = call(Conv2dDataGrad, dy, ddweight, size=input_shape(ctx, 1)[2:], **attrs) if ctx.needs[1] else None
        return ddy, dx


def _without_size(attrs: dict) -> dict:
    return {name: value for name, value in attrs.items() if name != "size"}


def _check_operands(x: Any, weight: Any, bias: Any, groups: int) -> None:
    """Raises an error unless x (N, C, H, W), weight (O, C / groups, KH, KW) and bias (O,) fit together."""
    check_image("conv2d", x)
    if weight.ndim != 4 or 0 in weight.shape[1:]:
        raise refusal(ShapeError, "conv2d", "(O, C / groups, KH, KW), none zero but O", weight=weight)
    _check_channels("conv2d", x, weight, bias, groups)
    require_one_dtype("conv2d", x, weight, bias)
    require_floating("conv2d", x)


def _check_channels(op: str, x: Any, weight: Any, bias: Any, groups: int) -> None:
    """Raises ShapeError unless the channels of x (N, C, *) or (C, *), weight (O, C / groups, *) and bias fit."""
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
    """Raises an error unless a convolution of these shapes has the cotangent `dy`: kernels read as far as it says."""
    require_one_dtype("conv2d", dy, other)
    shape = (x[0], weight[0], *window_counts("conv2d", x, weight[2:], *windows))
    if dy.shape != shape or x[1] != weight[1] * groups or weight[0] % groups:
        of = f"input {x} and weight {weight} with groups={groups}"
        raise ShapeError(f"conv2d: got a cotangent of shape {dy.shape} of {of}")


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
            wanted = "stride 1: give the padding in numbers"
            raise ArgumentError(f"{op}: got padding='same' with stride {stride}; expected {wanted}")
        total = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple([(n // 2, n - n // 2) for n in total])
    if isinstance(padding, str):
        raise ArgumentError(f"{op}: got padding={padding!r}; expected 'same', 'valid', or integers")
    widths = per_dim(op, "padding", padding, len(kernel), least=0)
    return tuple(zip(widths, widths, strict=True))


def check_weight(op: str, weight: Tensor, dims: int) -> None:
    """Refuse a weight of another number of dims.

    Raises:
        ShapeError: if it has.
    """
    if weight.ndim != dims + 2 or 0 in weight.shape[1:]:
        raise refusal(ShapeError, op, f"{dims + 2} dims, none zero but the first", weight=weight)


def _conv(dims, input, weight, bias, stride, padding, dilation, groups) -> Tensor:
    """The convolution over `dims` dims: a sequence is an image of one row; for volumes see `_conv_volume`."""
    op = f"conv{dims}d"
    if type(groups) is not int or groups < 1:
        raise ArgumentError(f"{op}: got groups={groups!r}; expected an integer of at least 1")
    shape, kernel = input._array.shape, weight._array.shape[2:]
    if dims != 2 or len(shape) != 4 or len(kernel) != 2:  # of a batch of images the operator does this
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
    """The planes under the taps of the kernel become channels, of which `Conv2d` adds up the products."""
    if any(border[0]):
        input = pad(input, (0, 0, 0, 0, *border[0]))
    (n, c, depth, *size), (o, per_group, taps, *kernel) = input.shape, weight.shape
    count = (depth - dilation[0] * (taps - 1) - 1) // stride[0] + 1
    if count < 1:
        wanted = f"a depth of at least {dilation[0] * (taps - 1) + 1} with its border: pad more"
        raise refusal(ShapeError, op, wanted, input=input, weight=weight, dilation=dilation)
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
