"""DeepLabV3: convolutions with several dilations, side by side, see context of several sizes around each pixel.

Chen et al., "Rethinking atrous convolution for semantic image segmentation", 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.models.features import MOBILENET_V3_STAGES, IntermediateLayerGetter
from miniflow.vision.models.mobilenetv3 import mobilenet_v3_large
from miniflow.vision.models.registry import Variant
from miniflow.vision.models.resnet import resnet50, resnet101
from miniflow.vision.models.segmentation.fcn import FCN, TRAINED, FCNHead, on_resnet


class DeepLabV3(FCN):
    """An `FCN` with another classifier.

    Source: `torchvision.models.segmentation.DeepLabV3`.
    """


class ASPPPooling(nn.Sequential):
    """The mean of all pixels, through a convolution, at each pixel: image-level features."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__(nn.AdaptiveAvgPool2d(1), *convolution(in_channels, out_channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(super().forward(x), x.shape[2:], mode="bilinear", align_corners=False)


def convolution(in_channels: int, out_channels: int, kernel_size: int = 1, dilation: int = 1) -> nn.Sequential:
    """A convolution that keeps the size of images, normalized."""
    padding = kernel_size // 2 * dilation
    layer = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, dilation=dilation, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(out_channels), nn.ReLU())


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling.

    A 1x1 convolution, a 3x3 convolution for each rate (dilation) and image-level features, concatenated and mapped to
    `out_channels`.
    """

    def __init__(self, in_channels: int, atrous_rates: Sequence[int], out_channels: int = 256):
        super().__init__()
        branches = [convolution(in_channels, out_channels, 3, rate) for rate in atrous_rates]
        branches = [convolution(in_channels, out_channels), *branches, ASPPPooling(in_channels, out_channels)]
        self.convs = nn.ModuleList(branches)
        self.project = convolution(len(branches) * out_channels, out_channels).append(nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.project(cat([branch(x) for branch in self.convs], 1))


class DeepLabHead(nn.Sequential):
    """The pyramid, a convolution, then the logits of each pixel."""

    def __init__(self, in_channels: int, num_classes: int, atrous_rates: Sequence[int] = (12, 24, 36)):
        layers = convolution(256, 256, 3)
        super().__init__(ASPP(in_channels, atrous_rates), *layers, nn.Conv2d(256, num_classes, 1))


def on_mobilenet(num_classes: int = 21, aux_loss: bool = False, weights_backbone: Any = None) -> DeepLabV3:
    """DeepLabV3 on the large MobileNet v3, whose last stage is dilated. Options as on a ResNet."""
    body = mobilenet_v3_large(weights=weights_backbone, dilated=True).features
    low, high = MOBILENET_V3_STAGES[2], MOBILENET_V3_STAGES[-1]
    names = {str(low): "aux", str(high): "out"} if aux_loss else {str(high): "out"}
    aux_classifier = FCNHead(body[low].out_channels, num_classes) if aux_loss else None
    head = DeepLabHead(body[high].out_channels, num_classes)
    return DeepLabV3(IntermediateLayerGetter(body, names), head, aux_classifier)


deeplabv3_resnet50 = Variant("deeplabv3_resnet50", on_resnet, DeepLabV3, DeepLabHead, resnet50, trained=TRAINED)
deeplabv3_resnet101 = Variant("deeplabv3_resnet101", on_resnet, DeepLabV3, DeepLabHead, resnet101, trained=TRAINED)
deeplabv3_mobilenet_v3_large = Variant("deeplabv3_mobilenet_v3_large", on_mobilenet, trained=TRAINED)
