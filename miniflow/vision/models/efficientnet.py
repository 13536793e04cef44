"""EfficientNet: one small network, made deeper, wider and for larger images, all three together.

Tan and Le, "EfficientNet: Rethinking model scaling for convolutional neural networks", 2019; "EfficientNetV2: Smaller
models and faster training", 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.layers import SqueezeExcitation, StochasticDepth, init_convolutions, variance_scaling_
from miniflow.vision.layers.blocks import Conv2dNormActivation, Factory, make_divisible
from miniflow.vision.models.mobilenetv2 import InvertedResidual
from miniflow.vision.models.registry import Variant

# t: expanded / inputs, k: kernel size, s: stride of the first block, c: outputs, n: blocks
B0 = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4))
B0 += ((6, 3, 1, 320, 1),)
V2_S = ((1, 3, 1, 24, 2), (4, 3, 2, 48, 4), (4, 3, 2, 64, 4), (4, 3, 2, 128, 6), (6, 3, 1, 160, 9), (6, 3, 2, 256, 15))
V2_M = ((1, 3, 1, 24, 3), (4, 3, 2, 48, 5), (4, 3, 2, 80, 5), (4, 3, 2, 160, 7), (6, 3, 1, 176, 14), (6, 3, 2, 304, 18))
V2_M += ((6, 3, 1, 512, 5),)
V2_L = (
    (1, 3, 1, 32, 4),
    (4, 3, 2, 64, 7),
    (4, 3, 2, 96, 7),
    (4, 3, 2, 192, 10),
    (6, 3, 1, 224, 19),
    (6, 3, 2, 384, 25),
)
V2_L += ((6, 3, 1, 640, 7),)


class MBConv(InvertedResidual):
    """An inverted residual with SiLU, whose squeeze and excitation has a quarter of the input's channels inside."""

    def __init__(
        self, inputs: int, t: int, outputs: int, kernel_size: int, stride: int, norm_layer: Factory, drop: float
    ):
        expanded = make_divisible(inputs * t)
        excite = SqueezeExcitation(expanded, max(1, inputs // 4), activation=nn.SiLU)
        super().__init__(inputs, expanded, outputs, kernel_size, stride, 1, norm_layer, nn.SiLU, excite, drop)


class FusedMBConv(nn.Module):
    """x + project(conv(x)): a full convolution, which GPUs do faster, stands for expand, depthwise and excite.

    With t = 1 it makes the outputs itself, and nothing is left to project.
    """

    def __init__(
        self, inputs: int, t: int, outputs: int, kernel_size: int, stride: int, norm_layer: Factory, drop: float
    ):
        super().__init__()
        self.use_res_connect = stride == 1 and inputs == outputs
        expanded = outputs if t == 1 else make_divisible(inputs * t)
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        project = [] if t == 1 else [conv(expanded, outputs, 1, activation_layer=None)]
        self.block = nn.Sequential(conv(inputs, expanded, kernel_size, stride), *project)
        self.stochastic_depth = StochasticDepth(drop, "row")

    def forward(self, x: Tensor) -> Tensor:
        y = self.block(x)
        return x + self.stochastic_depth(y) if self.use_res_connect else y


class EfficientNet(nn.Module):
    """A convolution, stages of MBConv blocks, a 1x1 convolution, and a linear classifier.

    Args:
        table: rows (t, k, s, c, n) of the paper's table.
        stem: channels of the first convolution.
        width_mult, depth_mult: channels and blocks are multiplied by these.
        fused: how many stages, the first ones, have FusedMBConv blocks.
        last_channel: features of the classifier; by default 4 times the channels of the last stage.
        dropout: probability, before the classifier.
        stochastic_depth_prob: that of the last block to be left out in training; it rises from 0 at the first.
        num_classes: how many logits to return.
        norm_layer: what makes a normalization from a number of channels.

    >>> import miniflow as flow
    >>> EfficientNet(B0, 32, width_mult=0.25, depth_mult=0.25, num_classes=10)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 10])

    Source: Tan and Le, 2019, table 1; 2021, table 4; `torchvision.models.efficientnet`.
    """

    def __init__(
        self, table: Sequence[Sequence[int]], stem: int, width_mult: float = 1.0, depth_mult: float = 1.0,
        fused: int = 0, last_channel: int | None = None, dropout: float = 0.2, stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000, norm_layer: Factory = nn.BatchNorm2d,
    ):  # fmt: skip
        super().__init__()
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        channels = make_divisible(stem * width_mult)
        layers: list[nn.Module] = [conv(3, channels, 3, stride=2)]
        depths = [math.ceil(n * depth_mult) for *_, n in table]
        drop, step = 0.0, stochastic_depth_prob / sum(depths)
        for stage, ((t, k, s, c, _), depth) in enumerate(zip(table, depths, strict=True)):
            block, outputs, blocks = FusedMBConv if stage < fused else MBConv, make_divisible(c * width_mult), []
            for i in range(depth):
                blocks.append(block(channels, t, outputs, k, s if i == 0 else 1, norm_layer, drop))
                channels, drop = outputs, drop + step
            layers.append(nn.Sequential(*blocks))
        last_channel = last_channel or 4 * channels
        self.features = nn.Sequential(*layers, conv(channels, last_channel, 1))  # (N, last_channel, H / 32, W / 32)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last_channel, num_classes))
        init_convolutions(self)
        variance_scaling_(self.classifier[1].weight, 1 / 3, "fan_out", "uniform")  # up to 1 / sqrt(num_classes)
        nn.init.zeros_(self.classifier[1].bias)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        return self.classifier(self.features(x).mean((2, 3)))


SLOW = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
V2 = {"fused": 3, "last_channel": 1280, "norm_layer": partial(nn.BatchNorm2d, eps=0.001)}
# width, depth; the paper's images are 224, 240, 260, 300, 380, 456, 528 and 600 pixels wide
efficientnet_b0 = Variant("efficientnet_b0", EfficientNet, B0, 32, 1.0, 1.0, dropout=0.2)
efficientnet_b1 = Variant("efficientnet_b1", EfficientNet, B0, 32, 1.0, 1.1, dropout=0.2)
efficientnet_b2 = Variant("efficientnet_b2", EfficientNet, B0, 32, 1.1, 1.2, dropout=0.3)
efficientnet_b3 = Variant("efficientnet_b3", EfficientNet, B0, 32, 1.2, 1.4, dropout=0.3)
efficientnet_b4 = Variant("efficientnet_b4", EfficientNet, B0, 32, 1.4, 1.8, dropout=0.4)
efficientnet_b5 = Variant("efficientnet_b5", EfficientNet, B0, 32, 1.6, 2.2, dropout=0.4, norm_layer=SLOW)
efficientnet_b6 = Variant("efficientnet_b6", EfficientNet, B0, 32, 1.8, 2.6, dropout=0.5, norm_layer=SLOW)
efficientnet_b7 = Variant("efficientnet_b7", EfficientNet, B0, 32, 2.0, 3.1, dropout=0.5, norm_layer=SLOW)
efficientnet_v2_s = Variant("efficientnet_v2_s", EfficientNet, V2_S, 24, dropout=0.2, **V2)
efficientnet_v2_m = Variant("efficientnet_v2_m", EfficientNet, V2_M, 24, dropout=0.3, **V2)
efficientnet_v2_l = Variant("efficientnet_v2_l", EfficientNet, V2_L, 32, dropout=0.4, **V2)
