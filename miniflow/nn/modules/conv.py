"""Convolution layers."""

from __future__ import annotations

from typing import Any

from miniflow.errors import ArgumentError
from miniflow.nn.modules.linear import init_weight_and_bias
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.ops.conv import borders, conv2d
from miniflow.ops.creation import empty
from miniflow.ops.pad import pad
from miniflow.ops.windows import pair
from miniflow.tensor import Tensor

UNSHOWN = {"padding": (0, 0), "dilation": (1, 1), "groups": 1}  # values that `repr` leaves out
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class Conv2d(Module):
    """Convolution of images with learnable kernels (a cross-correlation, as in all deep-learning libraries).

    y[n, o, i, j] = bias[o] + sum over c, k, l of weight[o, c, k, l] * x[n, c, i s - p + k d, j s - p + l d]
    with stride s, padding p and dilation d.

    Args:
        in_channels, out_channels: the numbers of channels.
        kernel_size: the height and width of the window; here and below an int stands for both.
        stride: the distance between windows.
        padding: the width of the border added on each side; "valid" for none, "same" to keep the size (stride 1).
        dilation: the distance between the elements of a window.
        groups: into how many groups the channels are divided; each group of outputs sees its group of inputs.
        bias: whether to add b.
        padding_mode: what the border holds: "zeros", "reflect", "replicate" or "circular".
        device, dtype: of the parameters.

    Attributes:
        weight: (out_channels, in_channels / groups, kernel height, kernel width), drawn uniformly from -k to k,
            k = 1 / sqrt(in_channels / groups * kernel height * kernel width).
        bias: (out_channels,), drawn from the same range; None without bias.

    Shapes: (N, in_channels, H, W) -> (N, out_channels, H', W'),
        H' = floor((H + 2 p - d (kernel height - 1) - 1) / s) + 1, and W' alike.

    Raises:
        ArgumentError: for channels that groups do not divide, an unknown padding or padding mode.
        ShapeError: for an input that does not fit.

    >>> import miniflow as flow
    >>> flow.nn.Conv2d(3, 8, kernel_size=3, padding=1)(flow.zeros(2, 3, 5, 5)).shape
    miniflow.Size([2, 8, 5, 5])

    Source: `torch.nn.Conv2d`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: str | int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = pair("Conv2d", "kernel_size", kernel_size)
        self.stride = pair("Conv2d", "stride", stride)
        self.padding = padding if isinstance(padding, str) else pair("Conv2d", "padding", padding, least=0)
        self.dilation = pair("Conv2d", "dilation", dilation)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        (top, bottom), (left, right) = borders(padding, self.kernel_size, self.stride, self.dilation)
        self._border = (left, right, top, bottom)
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(*shape, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def _check(self) -> None:
        if self.groups <= 0 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise ArgumentError(
                f"Conv2d: got in_channels={self.in_channels}, out_channels={self.out_channels}, groups={self.groups}; "
                "expected groups above 0 that divide both"
            )
        if self.padding_mode not in PADDING_MODES:
            raise ArgumentError(f"Conv2d: got padding_mode={self.padding_mode!r}; expected one of {PADDING_MODES}")

    def reset_parameters(self) -> None:
        """Initialize the parameters again, at random."""
        fan_in = self.in_channels // self.groups * self.kernel_size[0] * self.kernel_size[1]
        init_weight_and_bias(self.weight, self.bias, fan_in)

    def forward(self, input: Tensor) -> Tensor:
        if self.padding_mode == "zeros":
            return conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        padded = pad(input, self._border, mode=self.padding_mode)
        return conv2d(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += "".join(f", {k}={getattr(self, k)}" for k, usual in UNSHOWN.items() if getattr(self, k) != usual)
        text += ", bias=False" if self.bias is None else ""
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"
