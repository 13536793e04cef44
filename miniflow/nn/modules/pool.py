"""Pooling layers."""

from __future__ import annotations

from typing import Any

from miniflow.nn.modules.function_module import FunctionModule
from miniflow.ops.pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d


class Pool(FunctionModule, kernel_size=..., stride=None, padding=0):
    """Base of the layers that reduce windows."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.stride = self.kernel_size if self.stride is None else self.stride


class MaxPool2d(Pool, function=max_pool2d, dilation=1, return_indices=False, ceil_mode=False):
    """The largest element of each window.

    Args:
        kernel_size: the height and width of the window; here and below an int stands for both.
        stride: the distance between windows; `kernel_size` if None.
        padding: the width of the border on each side, which is never the largest; at most half of the window.
        dilation: the distance between the elements of a window.
        return_indices: also return the position of each largest element in its plane.
        ceil_mode: whether windows that begin inside may end outside.

    Shapes: (N, C, H, W) -> (N, C, H', W').

    >>> import miniflow as flow
    >>> flow.nn.MaxPool2d(2)(flow.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).tolist()
    [[[[4.0]]]]

    Source: `torch.nn.MaxPool2d`.
    """

    shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")


class AvgPool2d(Pool, function=avg_pool2d, ceil_mode=False, count_include_pad=True, divisor_override=None):
    """The mean of each window.

    Args:
        kernel_size: the height and width of the window; here and below an int stands for both.
        stride: the distance between windows; `kernel_size` if None.
        padding: the width of the border of zeros on each side; at most half of the window.
        ceil_mode: whether windows that begin inside may end outside.
        count_include_pad: whether the border counts in the mean.
        divisor_override: what to divide the sums by instead of the number of elements.

    Shapes: (N, C, H, W) -> (N, C, H', W').

    >>> import miniflow as flow
    >>> flow.nn.AvgPool2d(2)(flow.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).tolist()
    [[[[2.5]]]]

    Source: `torch.nn.AvgPool2d`.
    """

    shown = ("kernel_size", "stride", "padding")


class AdaptiveAvgPool2d(FunctionModule, function=adaptive_avg_pool2d, output_size=...):
    """The means of windows that cover the input evenly, so that the output has a given size.

    Args:
        output_size: (H', W'), or an int for both; None keeps the size of the input.

    Shapes: (N, C, H, W) -> (N, C, H', W').

    >>> import miniflow as flow
    >>> flow.nn.AdaptiveAvgPool2d(1)(flow.ones(2, 3, 5, 7)).shape
    miniflow.Size([2, 3, 1, 1])

    Source: `torch.nn.AdaptiveAvgPool2d`.
    """
