"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence

from miniflow.nn import functional as F
from miniflow.nn.modules.layer import FunctionModule
from miniflow.tensor import Tensor

Size = int | Sequence[int]


class Pool(FunctionModule):
    """Base of the layers that reduce windows."""

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size!r}, stride={self.stride!r}, padding={self.padding!r}"


class MaxPool2d(Pool):
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

    function = staticmethod(F.max_pool2d)

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ):  # fmt: skip
        super().__init__(kernel_size, stride, padding)
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        window = self.kernel_size, self.stride, self.padding, self.dilation
        return self.function(input, *window, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dilation={self.dilation!r}, ceil_mode={self.ceil_mode!r}"


class AvgPool2d(Pool):
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

    function = staticmethod(F.avg_pool2d)

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ):  # fmt: skip
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        window = self.kernel_size, self.stride, self.padding
        return self.function(input, *window, self.ceil_mode, self.count_include_pad, self.divisor_override)


class AdaptiveAvgPool2d(FunctionModule):
    """The means of windows that cover the input evenly, so that the output has a given size.

    Args:
        output_size: (H', W'), or an int for both; None keeps the size of the input.

    Shapes: (N, C, H, W) -> (N, C, H', W').

    >>> import miniflow as flow
    >>> flow.nn.AdaptiveAvgPool2d(1)(flow.ones(2, 3, 5, 7)).shape
    miniflow.Size([2, 3, 1, 1])

    Source: `torch.nn.AdaptiveAvgPool2d`.
    """

    function = staticmethod(F.adaptive_avg_pool2d)

    def __init__(self, output_size: int | None | Sequence[int | None]):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.output_size)


class MaxPool1d(MaxPool2d):
    """`MaxPool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.MaxPool1d`."""

    function = staticmethod(F.max_pool1d)


class MaxPool3d(MaxPool2d):
    """`MaxPool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.MaxPool3d`."""

    function = staticmethod(F.max_pool3d)


class AvgPool1d(Pool):
    """`AvgPool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.AvgPool1d`."""

    def __init__(
        self, kernel_size: Size, stride: Size | None = None, padding: Size = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):  # fmt: skip
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        window = self.kernel_size, self.stride, self.padding
        return F.avg_pool1d(input, *window, self.ceil_mode, self.count_include_pad)


class AvgPool3d(AvgPool2d):
    """`AvgPool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.AvgPool3d`."""

    function = staticmethod(F.avg_pool3d)


class AdaptiveAvgPool1d(AdaptiveAvgPool2d):
    """`AdaptiveAvgPool2d` of sequences: (N, C, L) -> (N, C, output_size). `torch.nn.AdaptiveAvgPool1d`."""

    function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool3d(AdaptiveAvgPool2d):
    """`AdaptiveAvgPool2d` of volumes: (N, C, D, H, W) -> (N, C, *output_size). `torch.nn.AdaptiveAvgPool3d`."""

    function = staticmethod(F.adaptive_avg_pool3d)


class AdaptiveMaxPool2d(FunctionModule):
    """The largest elements of windows that cover the input evenly, so that the output has a given size.

    Args:
        output_size: (H', W'), or an int for both; None keeps the size of the input.
        return_indices: also return the position of each largest element in its plane.

    Source: `torch.nn.AdaptiveMaxPool2d`.
    """

    function = staticmethod(F.adaptive_max_pool2d)

    def __init__(self, output_size: int | None | Sequence[int | None], return_indices: bool = False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.function(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size!r}"


class AdaptiveMaxPool1d(AdaptiveMaxPool2d):
    """`AdaptiveMaxPool2d` of sequences: (N, C, L) -> (N, C, output_size). `torch.nn.AdaptiveMaxPool1d`."""

    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool3d(AdaptiveMaxPool2d):
    """`AdaptiveMaxPool2d` of volumes: (N, C, D, H, W) -> (N, C, *output_size). `torch.nn.AdaptiveMaxPool3d`."""

    function = staticmethod(F.adaptive_max_pool3d)


class LPPool2d(FunctionModule):
    """The p-norm of each window, with p = norm_type: (N, C, H, W) -> (N, C, H', W'). `torch.nn.LPPool2d`."""

    function = staticmethod(F.lp_pool2d)

    def __init__(self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(LPPool2d):
    """`LPPool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.LPPool1d`."""

    function = staticmethod(F.lp_pool1d)


class LPPool3d(LPPool2d):
    """`LPPool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.LPPool3d`."""

    function = staticmethod(F.lp_pool3d)


class MaxUnpool2d(Pool):
    """The reverse of `MaxPool2d`: zeros but for its results, at the indices that it returns. `torch.nn.MaxUnpool2d`."""

    function = staticmethod(F.max_unpool2d)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return self.function(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(MaxUnpool2d):
    """`MaxUnpool2d` of sequences: (N, C, L) -> (N, C, L'). `torch.nn.MaxUnpool1d`."""

    function = staticmethod(F.max_unpool1d)


class MaxUnpool3d(MaxUnpool2d):
    """`MaxUnpool2d` of volumes: (N, C, D, H, W) -> (N, C, D', H', W'). `torch.nn.MaxUnpool3d`."""

    function = staticmethod(F.max_unpool3d)
