"""Pooling layers."""

from __future__ import annotations

from typing import Any

from miniflow.nn.modules.module import Module
from miniflow.ops.pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from miniflow.tensor import Tensor

Pair = int | tuple[int, int]


class MaxPool2d(Module):
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

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
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

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """The means of windows that cover the input evenly, so that the output has a given size.

    Args:
        output_size: (H', W'), or an int for both; None keeps the size of the input.

    Shapes: (N, C, H, W) -> (N, C, H', W').

    >>> import miniflow as flow
    >>> flow.nn.AdaptiveAvgPool2d(1)(flow.ones(2, 3, 5, 7)).shape
    miniflow.Size([2, 3, 1, 1])

    Source: `torch.nn.AdaptiveAvgPool2d`.
    """

    def __init__(self, output_size: int | None | tuple[int | None, int | None]):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
