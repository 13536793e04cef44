"""Windows as columns and back, and channels as pixels and back."""

from __future__ import annotations

import numpy as np

from miniflow.composite import composite
from miniflow.dispatch import call
from miniflow.errors import ShapeError, refusal
from miniflow.operands import takes_tensors
from miniflow.ops.index import Index, IndexIntoZeros
from miniflow.ops.pad import pad
from miniflow.ops.windows import Sizes, check_image, per_dim, window_counts
from miniflow.tensor import Tensor, constant_like


def _windows(op, size, kernel_size, dilation, padding, stride) -> tuple:
    """Kernel, window counts, border, and for rows and columns the places (1, kernel * count) in the padded image."""
    kernel, spread = per_dim(op, "kernel_size", kernel_size, 2), per_dim(op, "dilation", dilation, 2)
    border, step = per_dim(op, "padding", padding, 2, least=0), per_dim(op, "stride", stride, 2)
    borders = tuple([(p, p) for p in border])
    counts = window_counts(op, (1, 1, *size), kernel, step, borders, spread)
    places = [
        (np.arange(k)[:, None] * d + np.arange(n) * s).reshape(1, -1)
        for k, d, n, s in zip(kernel, spread, counts, step, strict=True)
    ]
    return kernel, counts, border, places


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
    (kh, kw), (oh, ow), (top, left), places = _windows("unfold", size, kernel_size, dilation, padding, stride)
    if top or left:
        input = pad(input, (left, left, top, top))
    for dim, place in enumerate(places, start=2):
        input = call(Index, input, constant_like(input, place), dims=(dim,))
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
    (kh, kw), (oh, ow), (top, left), (rows, columns) = _windows("fold", size, kernel_size, dilation, padding, stride)
    if input.ndim != 3 or input.shape[1] % (kh * kw) or input.shape[2] != oh * ow:
        wanted = f"(N, C * {kh * kw}, {oh * ow}) for windows of {(kh, kw)} on images of {size}"
        raise refusal(ShapeError, "fold", wanted, input=input)
    n, c = input.shape[0], input.shape[1] // (kh * kw)
    y = input.reshape((n, c, kh, kw, oh, ow)).permute((0, 1, 2, 4, 3, 5))
    y = y.reshape((n, c, kh * oh, kw * ow))
    whole = (n, c, height + 2 * top, width + 2 * left)
    y = call(IndexIntoZeros, y, constant_like(y, rows), dims=(2,), shape=(*whole[:3], kw * ow))
    y = call(IndexIntoZeros, y, constant_like(y, columns), dims=(3,), shape=whole)
    return pad(y, (-left, -left, -top, -top)) if top or left else y


@composite
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels become pixels: (*, C r^2, H, W) -> (*, C, H r, W r) with r = upscale_factor.

    Raises:
        ShapeError: if r^2 does not divide the channels.

    Source: Shi et al. 2016, arXiv 1609.05158; `torch.nn.functional.pixel_shuffle`.
    """
    return shuffle_pixels(input, upscale_factor, upscale_factor)


def shuffle_pixels(input: Tensor, r: int, s: int) -> Tensor:
    """`pixel_shuffle` with a factor for the height and one for the width: (*, C r s, H, W) -> (*, C, H r, W s)."""
    shape, k = tuple(input.shape), input.ndim - 3
    if k < 0 or r < 1 or s < 1 or shape[-3] % (r * s):
        factor, wanted = r if r == s else (r, s), f"(*, C * {r * s}, H, W)"
        raise ShapeError(f"pixel_shuffle: got input {shape} and upscale_factor={factor}; expected {wanted}")
    *outer, channels, height, width = shape
    y = input.reshape((*outer, channels // (r * s), r, s, height, width))
    y = y.permute((*range(k + 1), k + 3, k + 1, k + 4, k + 2)).clone()
    return y.reshape((*outer, channels // (r * s), height * r, width * s))


@takes_tensors
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Pixels become channels, the reverse of `pixel_shuffle`: (*, C, H r, W r) -> (*, C r^2, H, W).

    Raises:
        ShapeError: if r = downscale_factor does not divide the height and the width.

    Source: `torch.nn.functional.pixel_unshuffle`.
    """
    r, shape = downscale_factor, tuple(input.shape)
    if len(shape) < 3 or r < 1 or shape[-2] % r or shape[-1] % r:
        raise refusal(ShapeError, "pixel_unshuffle", f"(*, C, H * {r}, W * {r})", input=input, downscale_factor=r)
    (*outer, channels, height, width), k = shape, len(shape) - 3
    y = input.reshape((*outer, channels, height // r, r, width // r, r))
    y = y.permute((*range(k + 1), k + 2, k + 4, k + 1, k + 3)).clone()
    return y.reshape((*outer, channels * r**2, height // r, width // r))


@takes_tensors
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of several groups take turns: channel g * (C / groups) + i of (N, C, *) becomes i * groups + g.

    Raises:
        ShapeError: if groups do not divide the channels.

    Source: Zhang et al. 2017, arXiv 1707.01083; `torch.nn.functional.channel_shuffle`.
    """
    shape = tuple(input.shape)
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise refusal(ShapeError, "channel_shuffle", "groups that divide (N, C, *)", input=input, groups=groups)
    y = input.reshape((shape[0], groups, shape[1] // groups, *shape[2:]))
    return y.permute((0, 2, 1, *range(3, y.ndim))).clone().reshape(shape)
