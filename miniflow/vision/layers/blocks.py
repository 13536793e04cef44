"""Blocks of a few layers from which models are put together."""

from __future__ import annotations

from collections.abc import Callable

from miniflow import nn


class Conv2dNormActivation(nn.Sequential):
    """A convolution, a normalization and an activation, as the children 0, 1 and 2.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, groups, dilation: of the convolution; without a padding
            it is the one that keeps the size of images at stride 1, (kernel_size - 1) // 2 * dilation.
        norm_layer: what makes the normalization from the number of channels; None: no normalization.
        activation_layer: what makes the activation; None: no activation.
        inplace: an option of the activation; None: it has no such option.
        bias: whether the convolution has one; by default where no normalization follows.

    >>> import miniflow as flow
    >>> Conv2dNormActivation(3, 8, stride=2)(flow.zeros(1, 3, 32, 32)).shape
    miniflow.Size([1, 8, 16, 16])

    Source: `torchvision.ops.Conv2dNormActivation`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int] = 3,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str | None = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Module] | None = nn.BatchNorm2d,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        dilation: int | tuple[int, int] = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
    ):
        if padding is None:
            sides = [value if isinstance(value, tuple) else (value, value) for value in (kernel_size, dilation)]
            padding = tuple((kernel - 1) // 2 * step for kernel, step in zip(*sides, strict=True))
        if bias is None:
            bias = norm_layer is None
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias}
        layers: list[nn.Module] = [nn.Conv2d(in_channels, out_channels, kernel_size, **options)]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer() if inplace is None else activation_layer(inplace=inplace))
        super().__init__(*layers)
        self.out_channels = out_channels
