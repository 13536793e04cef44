"""Convolution kernels: which method computes which convolution.

    conv_direct     groups of few channels (depthwise among them): loops
    conv_winograd   kernels 3x3 and 5x5 at stride 1 in float32: a third to a quarter of the multiplications
    conv_batch_last several small images: matrix products over columns (im2col) that they share
    conv_pointwise  kernels 1x1: one matrix product an image, without any copy
    conv_columns    all others: one matrix product an image over its columns

Each method has the three functions `forward`, `data_grad` and `weight_grad`, which write into given memory; other
groups are done one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

from miniflow.backends.cpu import conv_batch_last, conv_columns, conv_direct, conv_pointwise, conv_winograd
from miniflow.backends.registry import register, register_into
from miniflow.backends.windows import Pair, Windows

DIRECT_UP_TO = 8  # input and output channels of a group


def method(x: tuple[int, ...], weight: tuple[int, ...], windows: Windows, dtype: np.dtype) -> ModuleType:
    """The fastest method for images of shape `x` and an ungrouped weight of shape `weight`."""
    if conv_winograd.suits(x, weight, windows, dtype):
        return conv_winograd
    if conv_batch_last.suits(x, windows):
        return conv_batch_last
    return conv_pointwise if conv_pointwise.suits(windows) else conv_columns


def few_channels(weight: tuple[int, ...], groups: int) -> bool:
    """Whether the groups are so narrow that loops beat matrix products."""
    return groups > 1 and weight[1] <= DIRECT_UP_TO and weight[0] // groups <= DIRECT_UP_TO


def parts(array: np.ndarray, groups: int, axis: int) -> list[np.ndarray]:
    """The array cut into groups of channels (views)."""
    return [array] if groups == 1 else np.split(array, groups, axis)


@register("cpu", "Conv2d")
def conv2d(x, weight, bias, *, stride, padding, dilation, groups):
    counts = Windows(weight.shape[2:], stride, padding, dilation).counts(x.shape[2:])
    y = np.empty((len(x), len(weight), *counts), x.dtype)
    conv2d_into(y, x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return y


@register_into("cpu", "Conv2d")
def conv2d_into(y, x, weight, bias, *, stride, padding, dilation, groups):
    windows = Windows(weight.shape[2:], stride, padding, dilation)
    if few_channels(weight.shape, groups):
        conv_direct.forward(x, weight, windows, groups, y)
    else:
        for a, b, out in zip(parts(x, groups, 1), parts(weight, groups, 0), parts(y, groups, 1), strict=True):
            run(method(a.shape, b.shape, windows, a.dtype).forward, a, b, windows, out)
    if bias is not None:
        y += bias.reshape(-1, 1, 1)


def run(compute: Callable, a: np.ndarray, b: np.ndarray, windows: Windows, out: np.ndarray) -> None:
    """Run a method's function, which needs contiguous memory for its result."""
    whole = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
    compute(a, b, windows, whole)
    if whole is not out:
        np.copyto(out, whole)


@register("cpu", "Conv2dDataGrad")
def conv2d_data_grad(dy, weight, *, size: Pair, stride, padding, dilation, groups):
    dx = np.empty((len(dy), weight.shape[1] * groups, *size), dy.dtype)
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    conv2d_data_grad_into(dx, dy, weight, size=size, **geometry)
    return dx


@register_into("cpu", "Conv2dDataGrad")
def conv2d_data_grad_into(dx, dy, weight, *, size: Pair, stride, padding, dilation, groups):
    windows = Windows(weight.shape[2:], stride, padding, dilation)
    if few_channels(weight.shape, groups):
        conv_direct.data_grad(dy, weight, windows, groups, dx)
    else:
        for a, b, out in zip(parts(dy, groups, 1), parts(weight, groups, 0), parts(dx, groups, 1), strict=True):
            run(method(out.shape, b.shape, windows, a.dtype).data_grad, a, b, windows, out)


@register("cpu", "Conv2dWeightGrad")
def conv2d_weight_grad(dy, x, *, size: Pair, stride, padding, dilation, groups):
    dweight = np.empty((dy.shape[1], x.shape[1] // groups, *size), x.dtype)
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    conv2d_weight_grad_into(dweight, dy, x, size=size, **geometry)
    return dweight


@register_into("cpu", "Conv2dWeightGrad")
def conv2d_weight_grad_into(dweight, dy, x, *, size: Pair, stride, padding, dilation, groups):
    windows = Windows(size, stride, padding, dilation)
    if few_channels(dweight.shape, groups):
        conv_direct.weight_grad(dy, x, windows, groups, dweight)
    else:
        for a, b, out in zip(parts(dy, groups, 1), parts(x, groups, 1), parts(dweight, groups, 0), strict=True):
            run(method(b.shape, out.shape, windows, b.dtype).weight_grad, a, b, windows, out)
