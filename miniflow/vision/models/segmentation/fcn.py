"""FCN: the features of a classifier become the logits of each pixel by convolutions, and are enlarged to the image.

Long, Shelhamer and Darrell, "Fully convolutional networks for semantic segmentation", 2015. The last two stages of the
ResNet dilate their kernels instead of making their images smaller, so that features are 8 times smaller than images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.tensor import Tensor
from miniflow.vision.models.features import IntermediateLayerGetter
from miniflow.vision.models.registry import Variant
from miniflow.vision.models.resnet import resnet50, resnet101


class FCN(nn.Module):
    """A backbone and a classifier of the pixels of its feature map.

    Args:
        backbone: returns feature maps under the names "out" and, for the auxiliary classifier, "aux".
        classifier: makes logits (N, num_classes, h, w) of the feature map "out".
        aux_classifier: the same of a feature map of an earlier stage, for an auxiliary loss in training.

    Source: `torchvision.models.segmentation.FCN`.
    """

    def __init__(self, backbone: nn.Module, classifier: nn.Module, aux_classifier: nn.Module | None = None):
        super().__init__()
        self.backbone, self.classifier, self.aux_classifier = backbone, classifier, aux_classifier

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """The logits (N, num_classes, H, W) of images (N, 3, H, W): "out", and "aux" of the auxiliary classifier."""
        maps, size = self.backbone(x), x.shape[2:]
        heads = {"out": self.classifier, "aux": self.aux_classifier}
        return {
            name: F.interpolate(head(maps[name]), size, mode="bilinear", align_corners=False)
            for name, head in heads.items()
            if head is not None
        }


class FCNHead(nn.Sequential):
    """A convolution to a quarter of the channels, normalized, then the logits of each pixel."""

    def __init__(self, in_channels: int, channels: int):
        inner = in_channels // 4
        super().__init__(
            nn.Conv2d(in_channels, inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Conv2d(inner, channels, 1),
        )


def on_resnet(
    network: type[FCN], head: Callable[[int, int], nn.Module], resnet: Variant, num_classes: int = 21,
    aux_loss: bool = False, weights_backbone: Any = None,
) -> FCN:  # fmt: skip
    """A network for segmentation on a ResNet with bottlenecks.

    Args:
        network: `FCN` or `DeepLabV3`.
        head: makes its classifier from the numbers of channels and of classes.
        resnet: the backbone.
        num_classes: how many logits a pixel gets; the 21 of Pascal VOC count the background.
        aux_loss: whether there is an auxiliary classifier, which the published weights have.
        weights_backbone: other than None: load trained weights of the backbone.
    """
    body = resnet(weights=weights_backbone, replace_stride_with_dilation=(False, True, True))
    names = {"layer3": "aux", "layer4": "out"} if aux_loss else {"layer4": "out"}
    aux_classifier = FCNHead(1024, num_classes) if aux_loss else None
    return network(IntermediateLayerGetter(body, names), head(2048, num_classes), aux_classifier)


TRAINED = {"aux_loss": True}
fcn_resnet50 = Variant("fcn_resnet50", on_resnet, FCN, FCNHead, resnet50, trained=TRAINED)
fcn_resnet101 = Variant("fcn_resnet101", on_resnet, FCN, FCNHead, resnet101, trained=TRAINED)
