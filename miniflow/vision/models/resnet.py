"""ResNet, ResNeXt and Wide ResNet: blocks that add what they compute to their input.

He et al., "Deep residual learning for image recognition", 2015; Xie et al., "Aggregated residual transformations for
deep neural networks", 2016; Zagoruyko and Komodakis, "Wide residual networks", 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from miniflow import nn
from miniflow.errors import ArgumentError, refusal
from miniflow.tensor import Tensor
from miniflow.vision.layers import init_convolutions
from miniflow.vision.models.registry import Variant

Norm = Callable[[int], nn.Module]


def conv3x3(inputs: int, outputs: int, stride: int = 1, groups: int = 1, dilation: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size of images at stride 1; a normalization follows, so there is no bias."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, groups=groups, bias=False)


def conv1x1(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A linear map of the channels of each pixel."""
    return nn.Conv2d(inputs, outputs, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """relu(x + bn(conv3x3(relu(bn(conv3x3(x)))))), of `planes` channels.

    Args:
        inplanes: channels of the input.
        planes: channels of the output.
        stride: of the first convolution.
        downsample: what makes the input fit what is added to it.
        groups, base_width, dilation: 1, 64 and 1; others are for `Bottleneck`.
        norm_layer: what makes a normalization from a number of channels.
    """

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm = nn.BatchNorm2d,
    ):
        super().__init__()
        if (groups, base_width, dilation) != (1, 64, 1):
            got = {"groups": groups, "base_width": base_width, "dilation": dilation}
            raise refusal(ArgumentError, "BasicBlock", "1, 64 and 1; a Bottleneck takes others", **got)
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        return self.relu(x + identity)


class Bottleneck(nn.Module):
    """relu(x + three convolutions), 1x1 to fewer channels, 3x3, 1x1 to `4 planes` channels.

    The stride is that of the 3x3 convolution (ResNet v1.5), where the paper has it in the first one. With `groups` it
    is the block of ResNeXt, with a larger `base_width` that of a wide ResNet.
    """

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm = nn.BatchNorm2d,
    ):
        super().__init__()
        width = int(planes * base_width / 64) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm_layer(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm_layer(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return self.relu(x + identity)


class ResNet(nn.Module):
    """A stem that divides the size of images by 4, four stages of residual blocks, and a linear classifier.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        layers: how many blocks there are in each stage.
        num_classes: how many logits to return.
        zero_init_residual: let each block begin as the identity: the scale of its last normalization is zero.
        groups, width_per_group: of the 3x3 convolutions.
        replace_stride_with_dilation: for each stage but the first, whether to dilate its kernels instead of making its
            images smaller, as segmentation does.
        norm_layer: what makes a normalization from a number of channels.

    >>> import miniflow as flow
    >>> ResNet(BasicBlock, (1, 1, 1, 1), num_classes=10)(flow.zeros(1, 3, 64, 64)).shape
    miniflow.Size([1, 10])

    Source: He et al., 2015, table 1; `torchvision.models.resnet`.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] | None = None,
        norm_layer: Norm | None = None,
    ):
        super().__init__()
        self.norm_layer = norm_layer or nn.BatchNorm2d
        self.block, self.groups, self.base_width = block, groups, width_per_group
        self.inplanes, self.dilation = 64, 1
        if replace_stride_with_dilation and len(replace_stride_with_dilation) != 3:
            got = {"replace_stride_with_dilation": replace_stride_with_dilation}
            raise refusal(ArgumentError, "ResNet", "three truth values, or None", **got)
        dilate = (False, *(replace_stride_with_dilation or (False, False, False)))
        self.conv1 = nn.Conv2d(3, self.inplanes, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = self.norm_layer(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)  # (N, 64, H / 4, W / 4)
        self.layer1 = self._stage(64, layers[0], 1, dilate[0])
        self.layer2 = self._stage(128, layers[1], 2, dilate[1])
        self.layer3 = self._stage(256, layers[2], 2, dilate[2])
        self.layer4 = self._stage(512, layers[3], 2, dilate[3])  # (N, 512 expansion, H / 32, W / 32)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        init_convolutions(self)
        if zero_init_residual:
            for module in self.modules():
                if isinstance(module, (BasicBlock, Bottleneck)):
                    nn.init.zeros_((module.bn2 if isinstance(module, BasicBlock) else module.bn3).weight)

    def _stage(self, planes: int, blocks: int, stride: int, dilate: bool) -> nn.Sequential:
        """Residual blocks, of which the first makes the images smaller, or begins to dilate."""
        first_dilation = self.dilation
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        outputs, downsample = planes * self.block.expansion, None
        if stride != 1 or self.inplanes != outputs:
            downsample = nn.Sequential(conv1x1(self.inplanes, outputs, stride), self.norm_layer(outputs))
        common = (self.groups, self.base_width)
        stage = [self.block(self.inplanes, planes, stride, downsample, *common, first_dilation, self.norm_layer)]
        for _ in range(1, blocks):
            stage.append(self.block(outputs, planes, 1, None, *common, self.dilation, self.norm_layer))
        self.inplanes = outputs
        return nn.Sequential(*stage)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


resnet18 = Variant("resnet18", ResNet, BasicBlock, (2, 2, 2, 2), hub="timm/resnet18.tv_in1k")
resnet34 = Variant("resnet34", ResNet, BasicBlock, (3, 4, 6, 3), hub="timm/resnet34.tv_in1k")
resnet50 = Variant("resnet50", ResNet, Bottleneck, (3, 4, 6, 3), hub="timm/resnet50.tv_in1k")
resnet101 = Variant("resnet101", ResNet, Bottleneck, (3, 4, 23, 3), hub="timm/resnet101.tv_in1k")
resnet152 = Variant("resnet152", ResNet, Bottleneck, (3, 8, 36, 3), hub="timm/resnet152.tv_in1k")
resnext50_32x4d = Variant("resnext50_32x4d", ResNet, Bottleneck, (3, 4, 6, 3), groups=32, width_per_group=4)
resnext101_32x8d = Variant("resnext101_32x8d", ResNet, Bottleneck, (3, 4, 23, 3), groups=32, width_per_group=8)
resnext101_64x4d = Variant("resnext101_64x4d", ResNet, Bottleneck, (3, 4, 23, 3), groups=64, width_per_group=4)
wide_resnet50_2 = Variant("wide_resnet50_2", ResNet, Bottleneck, (3, 4, 6, 3), width_per_group=128)
wide_resnet101_2 = Variant("wide_resnet101_2", ResNet, Bottleneck, (3, 4, 23, 3), width_per_group=128)
