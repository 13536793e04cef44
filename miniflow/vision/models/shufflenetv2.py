"""ShuffleNet v2: half the channels pass a block as they are, and channels change places after each.

Ma, Zhang, Zheng and Sun, "ShuffleNet V2: Practical guidelines for efficient CNN architecture design", 2018.
"""

from __future__ import annotations

from collections.abc import Sequence

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.layers import Conv2dNormActivation
from miniflow.vision.models.registry import Variant


class ShuffleUnit(nn.Module):
    """shuffle([a, branch2(b)]) of the halves a and b of the channels; with stride 2, shuffle([branch1(x), branch2(x)]).

    Args:
        inputs, outputs: channels, as many with stride 1.
        stride: 1 or 2.

    Source: Ma et al., 2018, figure 3 (c) and (d).
    """

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.stride, half, conv = stride, outputs // 2, Conv2dNormActivation
        seen = half if stride == 1 else inputs
        self.branch1 = nn.Sequential()
        if stride > 1:
            depthwise = conv(inputs, inputs, 3, stride, groups=inputs, activation_layer=None)
            self.branch1 = nn.Sequential(*depthwise, *conv(inputs, half, 1))
        depthwise = conv(half, half, 3, stride, groups=half, activation_layer=None)
        self.branch2 = nn.Sequential(*conv(seen, half, 1), *depthwise, *conv(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1) if self.stride == 1 else (x, x)
        return F.channel_shuffle(cat([self.branch1(a), self.branch2(b)], 1), 2)


class ShuffleNetV2(nn.Module):
    """A convolution, max pooling, three stages of shuffle units, a 1x1 convolution, and a linear classifier.

    Args:
        stages_repeats: how many units there are in each stage.
        stages_out_channels: of the first convolution, of the stages and of the last convolution.
        num_classes: how many logits to return.

    >>> import miniflow as flow
    >>> ShuffleNetV2((1, 1, 1), (8, 16, 32, 64, 128), num_classes=10)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 10])

    Source: Ma et al., 2018, table 5; `torchvision.models.shufflenetv2`.
    """

    def __init__(self, stages_repeats: Sequence[int], stages_out_channels: Sequence[int], num_classes: int = 1000):
        super().__init__()
        channels, *outputs, last = stages_out_channels
        self.conv1 = Conv2dNormActivation(3, channels, 3, stride=2)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)  # (N, 24, H / 4, W / 4)
        stages = []
        for repeats, width in zip(stages_repeats, outputs, strict=True):
            units = [ShuffleUnit(width, width, 1) for _ in range(1, repeats)]
            stages.append(nn.Sequential(ShuffleUnit(channels, width, 2), *units))
            channels = width
        self.stage2, self.stage3, self.stage4 = stages
        self.conv5 = Conv2dNormActivation(channels, last, 1)  # (N, last, H / 32, W / 32)
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        x = self.stage4(self.stage3(self.stage2(self.maxpool(self.conv1(x)))))
        return self.fc(self.conv5(x).mean((2, 3)))


shufflenet_v2_x0_5 = Variant("shufflenet_v2_x0_5", ShuffleNetV2, (4, 8, 4), (24, 48, 96, 192, 1024))
shufflenet_v2_x1_0 = Variant("shufflenet_v2_x1_0", ShuffleNetV2, (4, 8, 4), (24, 116, 232, 464, 1024))
shufflenet_v2_x1_5 = Variant("shufflenet_v2_x1_5", ShuffleNetV2, (4, 8, 4), (24, 176, 352, 704, 1024))
shufflenet_v2_x2_0 = Variant("shufflenet_v2_x2_0", ShuffleNetV2, (4, 8, 4), (24, 244, 488, 976, 2048))
