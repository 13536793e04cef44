"""SENet, SE-ResNet and SE-ResNeXt: residual blocks that weigh their channels by what all of them hold.

Hu et al., "Squeeze-and-excitation networks", 2018. The names are flowvision's, the state-dict keys those of timm's
`legacy_senet154`, `legacy_seresnet50` and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.layers import SqueezeExcitation, init_convolutions
from miniflow.vision.models.registry import Variant
from miniflow.vision.models.resnet import conv1x1, conv3x3

REDUCTION = 16  # r of the paper: the squeezed channels are a 16th


class SEBasicBlock(nn.Module):
    """relu(x + se(relu(bn(conv3x3(relu(bn(conv3x3(x)))))))), of `planes` channels.

    Args:
        inplanes, planes: channels of the input and of the output.
        stride: of the first convolution.
        downsample: what makes the input fit what is added to it.

    >>> import miniflow as flow
    >>> SEBasicBlock(16, 16)(flow.zeros(1, 16, 4, 4)).shape
    miniflow.Size([1, 16, 4, 4])
    """

    expansion = 1

    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None):
        super().__init__()
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.se_module = SqueezeExcitation(planes, planes // REDUCTION)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))  # the paper, which has no such block, would have no ReLU here
        return self.relu(self.se_module(x) + identity)


class SEBottleneck(nn.Module):
    """relu(x + se(three convolutions)), 1x1, 3x3, and 1x1 to `4 planes` channels.

    Args:
        inplanes, planes, stride, downsample: as in `SEBasicBlock`.
        widths: the channels of the first and of the second convolution, as multiples of `planes`.
        groups: of the 3x3 convolution.
        stride_first: whether the stride is that of the first convolution, as in ResNet's paper; else of the second one.
    """

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None,
        widths: tuple[int, int] = (1, 1), groups: int = 1, stride_first: bool = False,
    ):  # fmt: skip
        super().__init__()
        first, second, outputs = planes * widths[0], planes * widths[1], planes * self.expansion
        self.conv1 = conv1x1(inplanes, first, stride if stride_first else 1)
        self.bn1 = nn.BatchNorm2d(first)
        self.conv2 = conv3x3(first, second, 1 if stride_first else stride, groups)
        self.bn2 = nn.BatchNorm2d(second)
        self.conv3 = conv1x1(second, outputs)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.se_module = SqueezeExcitation(outputs, outputs // REDUCTION)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return self.relu(self.se_module(x) + identity)


class SENet(nn.Module):
    """A ResNet of blocks with squeeze and excitation.

    Args:
        block: `SEBasicBlock` or `SEBottleneck`.
        layers: how many blocks there are in each stage.
        num_classes: how many logits to return.
        drop_rate: the probability of dropout before the classifier.
        inplanes: channels of the stem.
        input_3x3: three 3x3 convolutions for the stem; else one of 7x7.
        downsample_kernel_size: of the convolutions beside the blocks that make images smaller.
        **options: of the blocks.

    Source: Hu et al., 2018, table 1; `timm.models.senet`.
    """

    def __init__(
        self, block: type[SEBasicBlock] | type[SEBottleneck], layers: Sequence[int], num_classes: int = 1000,
        drop_rate: float = 0.2, inplanes: int = 64, input_3x3: bool = False, downsample_kernel_size: int = 1,
        **options: Any,
    ):  # fmt: skip
        super().__init__()
        self.block, self.inplanes, self.options = block, inplanes, options
        kernels, widths = ((3, 3, 3), (3, 64, 64, inplanes)) if input_3x3 else ((7,), (3, inplanes))
        self.layer0 = nn.Sequential()
        for i, kernel in enumerate(kernels):
            conv = nn.Conv2d(widths[i], widths[i + 1], kernel, stride=1 if i else 2, padding=kernel // 2, bias=False)
            self.layer0.add_module(f"conv{i + 1}", conv)
            self.layer0.add_module(f"bn{i + 1}", nn.BatchNorm2d(widths[i + 1]))
            self.layer0.add_module(f"relu{i + 1}", nn.ReLU(inplace=True))
        self.pool0 = nn.MaxPool2d(3, stride=2, ceil_mode=True)  # (N, inplanes, H / 4, W / 4)
        self.layer1 = self._stage(64, layers[0], 1, 1)
        self.layer2 = self._stage(128, layers[1], 2, downsample_kernel_size)
        self.layer3 = self._stage(256, layers[2], 2, downsample_kernel_size)
        self.layer4 = self._stage(512, layers[3], 2, downsample_kernel_size)  # (N, 512 expansion, H / 32, W / 32)
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(drop_rate)
        self.last_linear = nn.Linear(512 * block.expansion, num_classes)
        init_convolutions(self)

    def _stage(self, planes: int, blocks: int, stride: int, kernel: int) -> nn.Sequential:
        """Residual blocks, of which the first makes the images smaller."""
        outputs, downsample = planes * self.block.expansion, None
        if stride != 1 or self.inplanes != outputs:
            conv = nn.Conv2d(self.inplanes, outputs, kernel, stride, padding=kernel // 2, bias=False)
            downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))
        stage = [self.block(self.inplanes, planes, stride, downsample, **self.options)]
        stage += [self.block(outputs, planes, **self.options) for _ in range(1, blocks)]
        self.inplanes = outputs
        return nn.Sequential(*stage)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        x = self.pool0(self.layer0(x))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.last_linear(self.dropout(self.global_pool(x).flatten(1)))


def _variant(name: str, block: type[nn.Module], *layers: int, **options: Any) -> Variant:
    return Variant(name, SENet, block, layers=layers, source=f"timm/legacy_{name.replace('se_', 'se')}", **options)


RESNET, RESNEXT = {"stride_first": True}, {"widths": (2, 2), "groups": 32}
SENET = {"widths": (2, 4), "groups": 64, "inplanes": 128, "input_3x3": True, "downsample_kernel_size": 3}

se_resnet18 = _variant("se_resnet18", SEBasicBlock, 2, 2, 2, 2)
se_resnet34 = _variant("se_resnet34", SEBasicBlock, 3, 4, 6, 3)
se_resnet50 = _variant("se_resnet50", SEBottleneck, 3, 4, 6, 3, **RESNET)
se_resnet101 = _variant("se_resnet101", SEBottleneck, 3, 4, 23, 3, **RESNET)
se_resnet152 = _variant("se_resnet152", SEBottleneck, 3, 8, 36, 3, **RESNET)
se_resnext26_32x4d = _variant("se_resnext26_32x4d", SEBottleneck, 2, 2, 2, 2, **RESNEXT)
se_resnext50_32x4d = _variant("se_resnext50_32x4d", SEBottleneck, 3, 4, 6, 3, **RESNEXT)
se_resnext101_32x4d = _variant("se_resnext101_32x4d", SEBottleneck, 3, 4, 23, 3, **RESNEXT)
senet154 = _variant("senet154", SEBottleneck, 3, 8, 36, 3, **SENET)
