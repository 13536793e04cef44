"""Lite R-ASPP: segmentation on MobileNet v3 that a telephone computes in real time.

Howard et al., "Searching for MobileNetV3", 2019, section 6.4 and figure 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.tensor import Tensor
from miniflow.vision.models.features import MOBILENET_V3_STAGES, IntermediateLayerGetter
from miniflow.vision.models.mobilenetv3 import mobilenet_v3_large
from miniflow.vision.models.registry import Variant


class LRASPPHead(nn.Module):
    """Coarse features, scaled by what their mean says, enlarged, and classified together with fine ones."""

    def __init__(self, low_channels: int, high_channels: int, num_classes: int, inter_channels: int):
        super().__init__()
        convolution = nn.Conv2d(high_channels, inter_channels, 1, bias=False)
        self.cbr = nn.Sequential(convolution, nn.BatchNorm2d(inter_channels), nn.ReLU(inplace=True))
        squeeze = nn.Conv2d(high_channels, inter_channels, 1, bias=False)
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), squeeze, nn.Sigmoid())  # (N, inter_channels, 1, 1)
        self.low_classifier = nn.Conv2d(low_channels, num_classes, 1)
        self.high_classifier = nn.Conv2d(inter_channels, num_classes, 1)

    def forward(self, input: Mapping[str, Tensor]) -> Tensor:
        low, high = input["low"], input["high"]
        x = self.cbr(high) * self.scale(high)
        x = F.interpolate(x, low.shape[2:], mode="bilinear", align_corners=False)
        return self.low_classifier(low) + self.high_classifier(x)


class LRASPP(nn.Module):
    """A backbone, and a head for two of its feature maps.

    Args:
        backbone: returns feature maps under the names "low" and "high".
        low_channels, high_channels: of these.
        num_classes: how many logits a pixel gets.
        inter_channels: channels of the coarse features in the head.

    Source: `torchvision.models.segmentation.LRASPP`.
    """

    def __init__(
        self, backbone: nn.Module, low_channels: int, high_channels: int, num_classes: int, inter_channels: int = 128
    ):
        super().__init__()
        self.backbone = backbone
        self.classifier = LRASPPHead(low_channels, high_channels, num_classes, inter_channels)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """The logits (N, num_classes, H, W) of images (N, 3, H, W), as "out"."""
        logits = self.classifier(self.backbone(x))
        return {"out": F.interpolate(logits, x.shape[2:], mode="bilinear", align_corners=False)}


def on_mobilenet(num_classes: int = 21, weights_backbone: Any = None) -> LRASPP:
    """LRASPP on the large MobileNet v3, whose last stage is dilated.

    Args:
        num_classes: how many logits a pixel gets; the 21 of Pascal VOC count the background.
        weights_backbone: other than None: load trained weights of the backbone.
    """
    body = mobilenet_v3_large(weights=weights_backbone, dilated=True).features
    low, high = MOBILENET_V3_STAGES[2], MOBILENET_V3_STAGES[-1]
    maps = IntermediateLayerGetter(body, {str(low): "low", str(high): "high"})
    return LRASPP(maps, body[low].out_channels, body[high].out_channels, num_classes)


lraspp_mobilenet_v3_large = Variant("lraspp_mobilenet_v3_large", on_mobilenet)
