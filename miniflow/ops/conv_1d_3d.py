"""Convolution over sequences and volumes, by the kernels for images.

A sequence is an image of one row. Of a volume, each window of planes becomes one image with the planes as further
channels, so that one convolution of images sums over the depth of the kernel too.
"""

from __future__ import annotations

from miniflow.composite import composite
from miniflow.errors import ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.conv import Sizes, borders, conv2d
from miniflow.ops.join import stack
from miniflow.ops.pad import pad
from miniflow.ops.windows import check_signal, per_dim
from miniflow.tensor import Tensor


def check_weight(op: str, weight: Tensor, dims: int) -> None:
    """Refuse a weight of another number of dims.

    Raises:
        ShapeError: if it has.
    """
    if weight.ndim != dims + 2 or 0 in weight.shape[1:]:
        raise ShapeError(
            f"{op}: got weight of shape {tuple(weight.shape)}; expected {dims + 2} dims, none zero but the first"
        )


@takes_tensors
@composite
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
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
    check_signal("conv1d", input, 1)
    check_weight("conv1d", weight, 1)
    (step,) = per_dim("conv1d", "stride", stride, 1)
    (spread,) = per_dim("conv1d", "dilation", dilation, 1)
    ((before, after),) = borders("conv1d", padding, tuple(weight.shape[2:]), (step,), (spread,))
    if before != after:
        input, before = pad(input, (before, after)), 0
    image, kernel = input.unsqueeze(-2), weight.unsqueeze(-2)
    return conv2d(image, kernel, bias, (1, step), (0, before), (1, spread), groups).squeeze(-2)


@takes_tensors
@composite
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
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
    check_signal("conv3d", input, 3)
    check_weight("conv3d", weight, 3)
    if input.ndim == 4:
        return conv3d(input.unsqueeze(0), weight, bias, stride, padding, dilation, groups).squeeze(0)
    step, spread = (per_dim("conv3d", name, x, 3) for name, x in (("stride", stride), ("dilation", dilation)))
    around = borders("conv3d", padding, tuple(weight.shape[2:]), step, spread)
    depth_border, *plane_borders = around
    if any(before != after for before, after in plane_borders):
        (top, bottom), (left, right) = plane_borders
        input, plane_borders = pad(input, (left, right, top, bottom)), ((0, 0), (0, 0))
    if any(depth_border):
        input = pad(input, (0, 0, 0, 0, *depth_border))
    (n, c, depth, *size), (o, per_group, taps, *kernel) = input.shape, weight.shape
    count = (depth - spread[0] * (taps - 1) - 1) // step[0] + 1
    if count < 1:
        raise ShapeError(
            f"conv3d: got depth {depth} with its border for a kernel of shape {tuple(weight.shape[2:])} and dilation "
            f"{spread}; expected a depth of at least {spread[0] * (taps - 1) + 1}"
        )
    planes, span = input.transpose(1, 2), step[0] * (count - 1) + 1  # (N, D, C, H, W)
    starts = [tap * spread[0] for tap in range(taps)]
    windows = stack([planes[:, start : start + span : step[0]] for start in starts], 3)  # (N, D', C, KD, H, W)
    y = conv2d(
        windows.reshape((n * count, c * taps, *size)), weight.reshape((o, per_group * taps, *kernel)), bias, step[1:],
        tuple([before for before, _ in plane_borders]), spread[1:], groups,
    )  # fmt: skip
    return y.reshape((n, count, *y.shape[1:])).transpose(1, 2).contiguous()
