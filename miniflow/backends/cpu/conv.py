"""Convolution kernels: which method computes which convolution.

    conv_direct     groups of few channels (depthwise among them): loops
    conv_winograd   kernels 3x3 and 5x5 at stride 1 in float32: a third to a quarter of the multiplications
    conv_columns    all others: matrix products over columns (im2col)

Each method has the three functions `forward`, `data_grad` and `weight_grad`; other groups are done one after the other.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu import conv_columns, conv_direct, conv_winograd
from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel
from miniflow.backends.windows import Pair, Windows

DIRECT_UP_TO = 16  # input and output channels of a group


@kernel("cpu")
def conv2d(y, x, weight, bias, **geometry):
    convolve("forward", y, x, weight, x, weight, bias, **geometry)


@kernel("cpu")
def conv2d_data_grad(dx, dy, weight, *, size: Pair, **geometry):
    convolve("data_grad", dx, dy, weight, dx, weight, **geometry)


@kernel("cpu")
def conv2d_weight_grad(dweight, dy, x, *, size: Pair, **geometry):
    convolve("weight_grad", dweight, dy, x, x, dweight, **geometry)


def convolve(what: str, out, first, second, x, weight, bias=None, *, stride, padding, dilation, groups) -> None:
    """Compute `out` from the operands `first` and `second` by the function `what` of the fastest method.

    `x` and `weight` are those of the three that are images (N, C, H, W) and a weight, or their gradients.
    """
    if 0 in first.shape or 0 in second.shape:
        out[...] = 0 if bias is None else bias.reshape(-1, 1, 1)
        return
    windows = Windows(weight.shape[2:], stride, padding, dilation)
    if few_channels(weight.shape, groups):
        getattr(conv_direct, what)(first, second, windows, groups, out, *(() if bias is None else (bias,)))
        return
    grouped = [_grouped(array, groups, array is weight) for array in (first, second, x, weight, out)]
    for a, b, image, kernels, target in zip(*grouped, strict=True):
        whole = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        method = conv_winograd if conv_winograd.suits(image.shape, kernels.shape, windows, a.dtype) else conv_columns
        getattr(method, what)(a, b, windows, whole)
        if whole is not target:
            np.copyto(target, whole)
    if bias is not None:
        planes = out.reshape(-1, out.shape[2] * out.shape[3])
        share(_add_bias, len(planes), planes.size, planes, np.ascontiguousarray(bias))


@unlocked()
def _add_bias(start, stop, planes, bias):
    """planes[p] += bias[p % C], for the planes (N*C, OH*OW) from start to stop; NumPy is slow at short rows."""
    for p in range(start, stop):
        plane, number = planes[p], bias[p % len(bias)]
        for k in range(plane.size):
            plane[k] += number


def few_channels(weight: tuple[int, ...], groups: int) -> bool:
    """Whether the groups are so narrow that loops beat matrix products."""
    return groups > 1 and weight[1] <= DIRECT_UP_TO and weight[0] // groups <= DIRECT_UP_TO


def _grouped(array: np.ndarray, groups: int, is_weight: bool) -> list[np.ndarray]:
    """The array cut into groups of channels (views)."""
    return [array] if groups == 1 else np.split(array, groups, 0 if is_weight else 1)
