"""MobileNet v1: each convolution is split in two, of each channel by itself and of the channels of each pixel.

Howard et al., "MobileNets: Efficient convolutional neural networks for mobile vision applications", 2017.
"""

from __future__ import annotations

import math

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.tensor import Tensor
from miniflow.vision.layers import make_divisible, variance_scaling_
from miniflow.vision.models.registry import Variant


class DepthwiseSeparable(nn.Module):
    """relu6(bn(conv1x1(relu6(bn(depthwise3x3(x)))))), for a ninth of the work of a 3x3 convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv_dw = nn.Conv2d(inputs, inputs, 3, stride, padding=1, groups=inputs, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv_pw = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.bn1(self.conv_dw(x)))
        return F.relu6(self.bn2(self.conv_pw(x)))


class MobileNetV1(nn.Module):
    """A convolution, 13 depthwise separable ones, and a linear classifier.

    Args:
        num_classes: how many logits to return.
        width_mult: all channels are multiplied by this, the paper's alpha.
        drop_rate: probability, before the classifier.

    >>> import miniflow as flow
    >>> MobileNetV1(num_classes=10, width_mult=0.25)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 10])

    Source: Howard et al., 2017, table 1; `timm.models.efficientnet`.
    """

    def __init__(self, num_classes: int = 1000, width_mult: float = 1.0, drop_rate: float = 0.0):
        super().__init__()
        channels = make_divisible(32 * width_mult)
        self.conv_stem = nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        stages = []
        for width, repeats in ((64, 1), (128, 2), (256, 2), (512, 6), (1024, 2)):
            width, first = make_divisible(width * width_mult), 1 if width == 64 else 2
            blocks = [DepthwiseSeparable(width, width, 1) for _ in range(1, repeats)]
            stages.append(nn.Sequential(DepthwiseSeparable(channels, width, first), *blocks))
            channels = width
        self.blocks = nn.Sequential(*stages)  # (N, 1024, H / 32, W / 32)
        self.dropout = nn.Dropout(drop_rate)
        self.classifier = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
                nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        variance_scaling_(self.classifier.weight, 1 / 3, "fan_out", "uniform")  # up to 1 / sqrt(num_classes)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        x = self.blocks(F.relu6(self.bn1(self.conv_stem(x))))
        return self.classifier(self.dropout(x.mean((2, 3))))


mobilenetv1_100 = Variant("mobilenetv1_100", MobileNetV1, source="timm", hub="timm/mobilenetv1_100.ra4_e3600_r224_in1k")
mobilenetv1_125 = Variant(
    "mobilenetv1_125", MobileNetV1, width_mult=1.25, source="timm", hub="timm/mobilenetv1_125.ra4_e3600_r224_in1k"
)
