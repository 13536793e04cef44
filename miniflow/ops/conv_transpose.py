"""Transposed convolution: the gradient of a convolution with respect to its input, as a layer that enlarges.

That of images is the op which `conv2d` has as its gradient. A sequence is an image of one row; of a volume, each plane
is enlarged for all taps along the depth at once, and what lands on one plane of the result is added up.
"""

from __future__ import annotations

from miniflow.composite import composite
from miniflow.dispatch import call
from miniflow.dtype import float32
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.ops.conv import Conv2dDataGrad, check_weight
from miniflow.ops.pad import pad
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.windows import Sizes, check_signal, per_dim
from miniflow.tensor import Tensor


def _conv_transpose(dims, input, weight, bias, stride, padding, output_padding, groups, dilation) -> Tensor:
    """The transposed convolution over `dims` dims."""
    op = f"conv_transpose{dims}d"
    check_signal(op, input, dims)
    check_weight(op, weight, dims)
    if input.ndim == dims + 1:
        options = (stride, padding, output_padding, groups, dilation)
        return _conv_transpose(dims, input.unsqueeze(0), weight, bias, *options).squeeze(0)
    _check_operands(op, input, weight, bias, groups)
    step, spread = per_dim(op, "stride", stride, dims), per_dim(op, "dilation", dilation, dims)
    border, extra = per_dim(op, "padding", padding, dims, 0), per_dim(op, "output_padding", output_padding, dims, 0)
    if any(e >= max(s, d) for e, s, d in zip(extra, step, spread, strict=True)):
        given = f"output_padding={extra} with stride {step} and dilation {spread}"
        raise ArgumentError(f"{op}: got {given}; expected less than the stride or the dilation")
    along = zip(input.shape[2:], weight.shape[2:], step, border, extra, spread, strict=True)
    size = tuple([(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, e, d in along])
    if min(size) < 1:
        raise ShapeError(f"{op}: got input {tuple(input.shape)} and padding {border}: no output is left of size {size}")
    if any(e >= s for e, s in zip(extra, step, strict=True)):  # more than windows can reach: zeros
        y = _conv_transpose(dims, input, weight, None, stride, 0, 0, groups, dilation)
        y = pad(y, [n for p, e in zip(border[::-1], extra[::-1], strict=True) for n in (-p, e - p)])
    elif dims == 3:
        y = _enlarge_volume(input, weight, size, step, border, spread, groups)
    else:
        row = (0,) * (2 - dims)  # a sequence is an image of one row
        x, kernel = (input.unsqueeze(-2), weight.unsqueeze(-2)) if dims == 1 else (input, weight)
        y = call(
            Conv2dDataGrad, x, kernel, size=(1,) * len(row) + size, stride=(1,) * len(row) + step,
            padding=tuple([(p, p) for p in row + border]), dilation=(1,) * len(row) + spread, groups=groups,
        )  # fmt: skip
        y = y.squeeze(-2) if dims == 1 else y
    return y if bias is None else y + cast(bias, y.dtype).reshape((-1,) + (1,) * dims)


def _enlarge_volume(input, weight, size, step, border, spread, groups) -> Tensor:
    """(N, C, D, H, W) -> (N, O, *size); the sums over the taps of half-precision volumes are in float32."""
    if input._array.dtype.itemsize == 2:
        y = _enlarge_volume(cast(input, float32), cast(weight, float32), size, step, border, spread, groups)
        return cast(y, input.dtype)
    (n, c, depth, *plane), (_, per_group, taps, *kernel) = input.shape, weight.shape
    y = call(
        Conv2dDataGrad, input.transpose(1, 2).reshape((n * depth, c, *plane)),
        weight.reshape((c, per_group * taps, *kernel)), size=size[1:], stride=step[1:],
        padding=tuple([(p, p) for p in border[1:]]), dilation=spread[1:], groups=groups,
    )  # fmt: skip
    y = y.reshape((n, depth, per_group * groups, taps, *size[1:])).transpose(1, 2)  # (N, O, D, KD, H', W')
    whole = max((depth - 1) * step[0] + spread[0] * (taps - 1) + 1, border[0] + size[0])
    total = None
    for tap in range(taps):
        planes = y[:, :, :, tap]
        if step[0] > 1:  # zeros between the planes
            planes = pad(planes.unsqueeze(3), (0, 0, 0, 0, 0, step[0] - 1))
            planes = planes.reshape((n, per_group * groups, depth * step[0], *size[1:]))
        before = tap * spread[0]
        planes = pad(planes, (0, 0, 0, 0, before, whole - before - depth * step[0]))
        total = planes if total is None else total + planes
    return total.narrow(2, border[0], size[0]).contiguous()


def _check_operands(op: str, input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    """Raises an error unless input (N, C, *), weight (C, O / groups, *) and bias (O,) fit together."""
    if type(groups) is not int or groups < 1:
        raise ArgumentError(f"{op}: got groups={groups!r}; expected an integer of at least 1")
    if input.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        wanted = "weight (C, O / groups, *) for an input (N, C, *), and groups to divide C"
        raise refusal(ShapeError, op, wanted, input=input, weight=weight, groups=groups)
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
