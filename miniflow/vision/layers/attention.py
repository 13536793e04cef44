"""Attention for images: modules that weigh the channels or the places of a feature map, of any shape (N, C, H, W)."""

from __future__ import annotations

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.layers.blocks import Factory, make_divisible


class SqueezeExcitation(nn.Module):
    """Squeeze and excitation: y = x * sigma(W2 delta(W1 mean(x))), a weight for each channel from the means of all.

    Args:
        input_channels, squeeze_channels: of `x`, and between W1 and W2.
        activation, scale_activation: make delta and sigma.
        bias: of W1 and W2, which are 1x1 convolutions, `fc1` and `fc2`.

    Source: Hu et al., "Squeeze-and-Excitation Networks", 2018; `torchvision.ops.SqueezeExcitation`.
    """

    def __init__(
        self, input_channels: int, squeeze_channels: int, activation: Factory = nn.ReLU,
        scale_activation: Factory = nn.Sigmoid, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1, bias=bias)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1, bias=bias)
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        mean = input.mean((2, 3), keepdim=True)  # (N, C, 1, 1)
        return input * self.scale_activation(self.fc2(self.activation(self.fc1(mean))))


class SEModule(SqueezeExcitation):
    """`SqueezeExcitation` with the options of `timm.layers.SEModule`: rd_ratio of the channels is the inner width."""

    def __init__(
        self, channels: int, rd_ratio: float = 1 / 16, rd_channels: int | None = None, rd_divisor: int = 8,
        bias: bool = True, act_layer: Factory = nn.ReLU,
        gate_layer: Factory = nn.Sigmoid,
    ):  # fmt: skip
        squeezed = rd_channels or make_divisible(channels * rd_ratio, rd_divisor, round_limit=0.0)
        super().__init__(channels, squeezed, act_layer, gate_layer, bias)


SE = SEModule
