"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from miniflow.nn.modules.function_module import FunctionModule
from miniflow.ops import pool as pools
from miniflow.ops import pool_composed as composed
from miniflow.tensor import Tensor


class Pool(FunctionModule, kernel_size=..., stride=None, padding=0):
    """Base of the layers that reduce windows."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.stride = self.kernel_size if self.stride is None else self.stride


class MaxPool2d(Pool, function=pools.max_pool2d, dilation=1, return_indices=False, ceil_mode=False):
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


class AvgPool2d(Pool, function=pools.avg_pool2d, ceil_mode=False, count_include_pad=True, divisor_override=None):
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


class AdaptiveAvgPool2d(FunctionModule, function=pools.adaptive_avg_pool2d, output_size=...):
    """The means of windows that cover the input evenly, so that the output has a given size.

    Args:
        output_size: (H', W'), or an int for both; None keeps the size of the input.

    Shapes: (N, C, H, W) -> (N, C, H', W').

    >>> import miniflow as flow
    >>> flow.nn.AdaptiveAvgPool2d(1)(flow.ones(2, 3, 5, 7)).shape
    miniflow.Size([2, 3, 1, 1])

    Source: `torch.nn.AdaptiveAvgPool2d`.
    """


class MaxPool1d(MaxPool2d, function=pools.max_pool1d):
    """`MaxPool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.MaxPool1d`."""


class MaxPool3d(MaxPool2d, function=pools.max_pool3d):
    """`MaxPool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.MaxPool3d`."""


class AvgPool1d(Pool, function=pools.avg_pool1d, ceil_mode=False, count_include_pad=True):
    """`AvgPool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.AvgPool1d`."""

    shown = ("kernel_size", "stride", "padding")


class AvgPool3d(AvgPool2d, function=pools.avg_pool3d):
    """`AvgPool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.AvgPool3d`."""


class AdaptiveAvgPool1d(AdaptiveAvgPool2d, function=pools.adaptive_avg_pool1d):
    """`AdaptiveAvgPool2d` of sequences: (N, C, L) -> (N, C, output_size). `torch.nn.AdaptiveAvgPool1d`."""


class AdaptiveAvgPool3d(AdaptiveAvgPool2d, function=pools.adaptive_avg_pool3d):
    """`AdaptiveAvgPool2d` of volumes: (N, C, D, H, W) -> (N, C, *output_size). `torch.nn.AdaptiveAvgPool3d`."""


class AdaptiveMaxPool2d(FunctionModule, function=composed.adaptive_max_pool2d, output_size=..., return_indices=False):
    """The largest elements of windows that cover the input evenly, so that the output has a given size.

    Args:
        output_size: (H', W'), or an int for both; None keeps the size of the input.
        return_indices: also return the position of each largest element in its plane.

    Source: `torch.nn.AdaptiveMaxPool2d`.
    """

    shown = ("output_size",)


class AdaptiveMaxPool1d(AdaptiveMaxPool2d, function=composed.adaptive_max_pool1d):
    """`AdaptiveMaxPool2d` of sequences: (N, C, L) -> (N, C, output_size). `torch.nn.AdaptiveMaxPool1d`."""


class AdaptiveMaxPool3d(AdaptiveMaxPool2d, function=composed.adaptive_max_pool3d):
    """`AdaptiveMaxPool2d` of volumes: (N, C, D, H, W) -> (N, C, *output_size). `torch.nn.AdaptiveMaxPool3d`."""


class LPPool2d(
    FunctionModule, function=composed.lp_pool2d, norm_type=..., kernel_size=..., stride=None, ceil_mode=False
):
    """The p-norm of each window, with p = norm_type: (N, C, H, W) -> (N, C, H', W'). `torch.nn.LPPool2d`."""


class LPPool1d(LPPool2d, function=composed.lp_pool1d):
    """`LPPool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.LPPool1d`."""


class LPPool3d(LPPool2d, function=composed.lp_pool3d):
    """`LPPool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.LPPool3d`."""


class MaxUnpool2d(Pool, function=composed.max_unpool2d):
    """The reverse of `MaxPool2d`: zeros but for its results, at the indices that it returns. `torch.nn.MaxUnpool2d`."""

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self.function(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(MaxUnpool2d, function=composed.max_unpool1d):
    """`MaxUnpool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.MaxUnpool1d`."""


class MaxUnpool3d(MaxUnpool2d, function=composed.max_unpool3d):
    """`MaxUnpool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.MaxUnpool3d`."""
