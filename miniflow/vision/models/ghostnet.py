"""GhostNet: half of the channels are computed from the other half, by cheap convolutions of one channel each.

Han et al., "GhostNet: More features from cheap operations", 2020. The names and state-dict keys are timm's.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from miniflow import nn
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.layers import Conv2dNormActivation, init_convolutions, make_divisible
from miniflow.vision.models.registry import Variant

# kernel size, channels inside, channels of the output, whether there is squeeze and excitation, stride
BLOCKS = (
    ((3, 16, 16, False, 1),),
    ((3, 48, 24, False, 2),),
    ((3, 72, 24, False, 1),),
    ((5, 72, 40, True, 2),),
    ((5, 120, 40, True, 1),),
    ((3, 240, 80, False, 2),),
    ((3, 200, 80, False, 1), *((3, 184, 80, False, 1),) * 2, (3, 480, 112, True, 1), (3, 672, 112, True, 1)),
    ((5, 672, 160, True, 2),),
    ((5, 960, 160, False, 1), (5, 960, 160, True, 1)) * 2,
)
linear = partial(Conv2dNormActivation, activation_layer=None)  # as far as channels and places are concerned


class GhostModule(nn.Module):
    """A 1x1 convolution of which half of the outputs are 3x3 convolutions of the other half, channel by channel.

    Args:
        inputs, outputs: channels; an even number of outputs.
        activation: what comes after each normalization; None for nothing.

    >>> import miniflow as flow
    >>> GhostModule(3, 8)(flow.zeros(1, 3, 4, 4)).shape
    miniflow.Size([1, 8, 4, 4])
    """

    def __init__(self, inputs: int, outputs: int, activation: type[nn.Module] | None = nn.ReLU):
        super().__init__()
        half = outputs // 2
        self.primary_conv = Conv2dNormActivation(inputs, half, 1, activation_layer=activation)
        self.cheap_operation = Conv2dNormActivation(half, half, 3, groups=half, activation_layer=activation)

    def forward(self, x: Tensor) -> Tensor:
        x = self.primary_conv(x)
        return cat([x, self.cheap_operation(x)], 1)


class SqueezeExcite(nn.Module):
    """x * hard_sigmoid(W2 relu(W1 mean(x))): squeeze and excitation under timm's names."""

    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, squeezed, 1)
        self.conv_expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((2, 3), keepdim=True)  # (N, C, 1, 1)
        return x * nn.functional.hardsigmoid(self.conv_expand(nn.functional.relu(self.conv_reduce(mean))))


class GhostBottleneck(nn.Module):
    """x + ghost(se(depthwise(ghost(x)))), of which the depthwise convolution is there to make images smaller.

    Args:
        inputs, inner, outputs: channels.
        kernel, stride: of the depthwise convolution.
        squeeze: whether there is squeeze and excitation.
    """

    def __init__(self, inputs: int, inner: int, outputs: int, kernel: int, stride: int, squeeze: bool):
        super().__init__()
        self.ghost1 = GhostModule(inputs, inner)
        self.stride = stride
        if stride > 1:
            self.conv_dw = nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False)
            self.bn_dw = nn.BatchNorm2d(inner)
        self.se = SqueezeExcite(inner, make_divisible(inner / 4, 4)) if squeeze else None
        self.ghost2 = GhostModule(inner, outputs, activation=None)
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            depthwise = linear(inputs, inputs, kernel, stride, groups=inputs)
            self.shortcut = nn.Sequential(*depthwise, *linear(inputs, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        identity = self.shortcut(x)
        x = self.ghost1(x)
        if self.stride > 1:
            x = self.bn_dw(self.conv_dw(x))
        if self.se is not None:
            x = self.se(x)
        return self.ghost2(x) + identity


class GhostNet(nn.Module):
    """A stem, ghost bottlenecks, and a classifier with one hidden layer.

    Args:
        width: what the table of channels is multiplied by.
        num_classes: how many logits to return.
        drop_rate: the probability of dropout before the classifier.

    Source: Han et al., 2020, table 1; `timm.models.ghostnet`.
    """

    def __init__(self, width: float = 1.0, num_classes: int = 1000, drop_rate: float = 0.2):
        super().__init__()
        channels = make_divisible(16 * width, 4)
        self.conv_stem = nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential()
        for rows in BLOCKS:
            stage = []
            for kernel, inner, outputs, squeeze, stride in rows:
                inputs, inner, channels = channels, *(make_divisible(n * width, 4) for n in (inner, outputs))
                stage.append(GhostBottleneck(inputs, inner, channels, kernel, stride, squeeze))
            self.blocks.append(nn.Sequential(*stage))
        conv = nn.Conv2d(channels, inner, 1, bias=False)  # (N, 960 width, H / 32, W / 32)
        last = OrderedDict(conv=conv, bn1=nn.BatchNorm2d(inner), act=nn.ReLU(inplace=True))
        self.blocks.append(nn.Sequential(nn.Sequential(last)))
        self.conv_head = nn.Conv2d(inner, 1280, 1)
        self.relu = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(drop_rate)
        self.classifier = nn.Linear(1280, num_classes)
        init_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        x = self.blocks(self.relu(self.bn1(self.conv_stem(x))))
        x = self.relu(self.conv_head(x.mean((2, 3), keepdim=True)))
        return self.classifier(self.dropout(x.flatten(1)))


ghostnet_050 = Variant("ghostnet_050", GhostNet, 0.5, source="timm")
ghostnet_100 = Variant("ghostnet_100", GhostNet, 1.0, hub="timm/ghostnet_100.in1k")
ghostnet_130 = Variant("ghostnet_130", GhostNet, 1.3, source="timm")
