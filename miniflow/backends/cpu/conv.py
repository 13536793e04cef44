"""Convolution kernels: which method computes which convolution.

    conv_direct     groups of few channels (depthwise among them): loops
    pointwise       kernels 1x1 on large enough images: one matrix product an image, without any copy
    conv_winograd   kernels 3x3 and 5x5 at stride 1 in float32: a third to a quarter of the multiplications
    conv_columns    all others: matrix products over columns (im2col)

Each method has the three functions `forward`, `data_grad` and `weight_grad`; other groups are done one after the other.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from miniflow.backends.cpu import conv_columns, conv_direct, conv_pointwise, conv_winograd
from miniflow.backends.registry import register
from miniflow.backends.windows import Pair, Windows

DIRECT_UP_TO = 8  # input and output channels of a group


def method(x: tuple[int, ...], weight: tuple[int, ...], windows: Windows, dtype: np.dtype) -> ModuleType:
    """The fastest method for images of shape `x` and an ungrouped weight of shape `weight`."""
    if conv_pointwise.suits(x, windows):
        return conv_pointwise
    if conv_winograd.suits(x, weight, windows, dtype):
        return conv_winograd
    return conv_columns


def few_channels(weight: tuple[int, ...], groups: int) -> bool:
    """Whether the groups are so narrow that loops beat matrix products."""
    return groups > 1 and weight[1] <= DIRECT_UP_TO and weight[0] // groups <= DIRECT_UP_TO


def parts(array: np.ndarray, groups: int, axis: int) -> list[np.ndarray]:
    """The array cut into groups of channels (views)."""
    return np.split(array, groups, axis)


@register("cpu", "Conv2d")
def conv2d(x, weight, bias, *, stride, padding, dilation, groups):
    windows = Windows(weight.shape[2:], stride, padding, dilation)
    if few_channels(weight.shape, groups):
        y = conv_direct.forward(x, weight, windows, groups)
    elif groups > 1:
        pairs = zip(parts(x, groups, 1), parts(weight, groups, 0), strict=True)
        y = np.concatenate([method(a.shape, b.shape, windows, a.dtype).forward(a, b, windows) for a, b in pairs], 1)
    else:
        y = method(x.shape, weight.shape, windows, x.dtype).forward(x, weight, windows)
    if bias is not None:
        y += bias.reshape(-1, 1, 1)
    return y


@register("cpu", "Conv2dDataGrad")
def conv2d_data_grad(dy, weight, *, size: Pair, stride, padding, dilation, groups):
    windows = Windows(weight.shape[2:], stride, padding, dilation)
    if few_channels(weight.shape, groups):
        return conv_direct.data_grad(dy, weight, windows, groups, size)
    grads = []
    for a, b in zip(parts(dy, groups, 1), parts(weight, groups, 0), strict=True):
        x_shape = (len(a), b.shape[1], *size)
        grads.append(method(x_shape, b.shape, windows, a.dtype).data_grad(a, b, windows, size))
    return grads[0] if groups == 1 else np.concatenate(grads, 1)


@register("cpu", "Conv2dWeightGrad")
def conv2d_weight_grad(dy, x, *, size: Pair, stride, padding, dilation, groups):
    windows = Windows(size, stride, padding, dilation)
    weight_shape = (dy.shape[1], x.shape[1] // groups, *size)
    if few_channels(weight_shape, groups):
        return conv_direct.weight_grad(dy, x, windows, groups)
    grads = []
    for a, b in zip(parts(dy, groups, 1), parts(x, groups, 1), strict=True):
        chosen = method(b.shape, (a.shape[1], *weight_shape[1:]), windows, b.dtype)
        grads.append(chosen.weight_grad(a, b, windows))
    return grads[0] if groups == 1 else np.concatenate(grads)
