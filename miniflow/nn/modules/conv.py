"""Convolution layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar

from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn import functional as F
from miniflow.nn.arguments import check_choice
from miniflow.nn.modules.layer import Layer
from miniflow.nn.modules.linear import init_weight_and_bias
from miniflow.ops.convolution import borders
from miniflow.ops.windows import per_dim
from miniflow.tensor import Tensor

Size = int | Sequence[int]


class Convolution(Layer):
    """Base of the convolutions and transposed convolutions, over `dims` dims by `function`."""

    dims: ClassVar[int]
    function: ClassVar[Callable[..., Tensor]]
    transposed: ClassVar[bool] = False
    padding_modes: ClassVar[list[str]] = ["zeros", "reflect", "replicate", "circular"]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size | str = 0,
        dilation: Size = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        check_choice(self, self.padding_modes, padding_mode=padding_mode)
        name, dims = self._get_name(), self.dims
        self.in_channels, self.out_channels = in_channels, out_channels
        self.groups, self.padding_mode = groups, padding_mode
        self.kernel_size = per_dim(name, "kernel_size", kernel_size, dims)
        self.stride, self.dilation = per_dim(name, "stride", stride, dims), per_dim(name, "dilation", dilation, dims)
        self.padding = padding if isinstance(padding, str) else per_dim(name, "padding", padding, dims, minimum=0)
        self.output_padding = (0,) * dims
        self._check()
        around = borders(name, padding, self.kernel_size, self.stride, self.dilation)
        self._border = tuple([width for border in around[::-1] for width in border])
        outs, ins = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        weight, bias = (outs, ins // groups, *self.kernel_size), (out_channels,) if bias else None
        self.add_parameters(device, dtype, weight=weight, bias=bias)
        self.reset_parameters()

    def _check(self) -> None:
        name = self._get_name()
        if self.groups <= 0 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise ArgumentError(
                f"{name}: got in_channels={self.in_channels}, out_channels={self.out_channels}, groups={self.groups}; "
                "expected groups above 0 that divide both"
            )

    def reset_parameters(self) -> None:
        """Initialize the parameters again, at random."""
        init_weight_and_bias(self.weight, self.bias, self.weight.shape[1] * prod(self.kernel_size))

    def forward(self, input: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._border, mode=self.padding_mode), 0
        return self.function(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zeros, ones = (0,) * self.dims, (1,) * self.dims
        unshown = {"padding": zeros, "dilation": ones, "output_padding": zeros, "groups": 1}
        text += "".join(f", {k}={getattr(self, k)}" for k, usual in unshown.items() if getattr(self, k) != usual)
        text += ", bias=False" if self.bias is None else ""
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class Conv1d(Convolution):
    """`Conv2d` over sequences: (N, in_channels, L) -> (N, out_channels, L'). `torch.nn.Conv1d`."""

    dims, function = 1, staticmethod(F.conv1d)


class Conv2d(Convolution):
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

    dims, function = 2, staticmethod(F.conv2d)


class Conv3d(Convolution):
    """`Conv2d` over volumes: (N, in_channels, D, H, W) -> (N, out_channels, D', H', W'). `torch.nn.Conv3d`."""

    dims, function = 3, staticmethod(F.conv3d)


class ConvTranspose2d(Convolution):
    """The gradient of a convolution with respect to its input, as a layer that enlarges images.

    Args:
        in_channels, out_channels: the numbers of channels.
        kernel_size: the height and width of the window; here and below an int stands for both.
        stride: the distance between windows on the result.
        padding: how many rows and columns are cut off on each side of the result.
        output_padding: how many are added at its end; less than the stride.
        groups: into how many groups the channels are divided.
        bias: whether to add b.
        dilation: the distance between the elements of a window.
        padding_mode: "zeros".
        device, dtype: of the parameters.

    Attributes:
        weight: (in_channels, out_channels / groups, kernel height, kernel width), drawn as that of `Conv2d`.
        bias: (out_channels,); None without bias.

    Shapes: (N, in_channels, H, W) -> (N, out_channels, H', W'),
        H' = (H - 1) s - 2 p + d (kernel height - 1) + output_padding + 1, and W' alike.

    >>> import miniflow as flow
    >>> layer = flow.nn.ConvTranspose2d(3, 8, kernel_size=3, stride=2, padding=1)
    >>> layer(flow.zeros(2, 3, 5, 5)).shape, layer(flow.zeros(2, 3, 5, 5), output_size=(10, 10)).shape
    (miniflow.Size([2, 8, 9, 9]), miniflow.Size([2, 8, 10, 10]))

    Source: `torch.nn.ConvTranspose2d`.
    """

    dims, function = 2, staticmethod(F.conv_transpose2d)
    transposed, padding_modes = True, ["zeros"]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size = 0,
        output_padding: Size = 0, groups: int = 1, bias: bool = True, dilation: Size = 1, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        options = {"bias": bias, "padding_mode": padding_mode, "device": device, "dtype": dtype}
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, **options)
        self.output_padding = per_dim(self._get_name(), "output_padding", output_padding, self.dims, minimum=0)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """`output_size`, the last dims of the result, takes the place of `output_padding`."""
        extra = self.output_padding if output_size is None else self._extra(input, tuple(output_size))
        return self.function(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _extra(self, input: Tensor, output_size: tuple[int, ...]) -> tuple[int, ...]:
        along = zip(input.shape[-self.dims :], self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        least = tuple([(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in along])
        sizes = output_size[-self.dims :]
        if len(output_size) not in (self.dims, input.ndim) or any(
            not 0 <= size - n < s for size, n, s in zip(sizes, least, self.stride, strict=True)
        ):
            most = tuple([n + s - 1 for n, s in zip(least, self.stride, strict=True)])
            raise ShapeError(f"{self._get_name()}: got output_size={output_size}; expected from {least} to {most}")
        return tuple([size - n for size, n in zip(sizes, least, strict=True)])


class ConvTranspose1d(ConvTranspose2d):
    """`ConvTranspose2d` over sequences: (N, in_channels, L) -> (N, out_channels, L'). `torch.nn.ConvTranspose1d`."""

    dims, function = 1, staticmethod(F.conv_transpose1d)


class ConvTranspose3d(ConvTranspose2d):
    """`ConvTranspose2d` over volumes: (N, C, D, H, W) -> (N, out_channels, D', H', W'). `torch.nn.ConvTranspose3d`."""

    dims, function = 3, staticmethod(F.conv_transpose3d)
