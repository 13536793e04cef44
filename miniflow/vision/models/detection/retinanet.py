"""RetinaNet: anchors at all positions are classified at once, and a loss that counts the easy ones little.

Lin et al., "Focal loss for dense object detection", 2017.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.creation import zeros_like
from miniflow.ops.joining import cat, stack
from miniflow.tensor import Tensor
from miniflow.vision.layers import Conv2dNormActivation, LastLevelP6P7, sigmoid_focal_loss
from miniflow.vision.layers.blocks import Factory
from miniflow.vision.models.detection.anchors import IGNORED, AnchorGenerator, BoxCoder, Matcher, by_anchor
from miniflow.vision.models.detection.backbones import BackboneWithFPN, resnet_fpn_backbone, variant
from miniflow.vision.models.detection.detector import SingleStage, Target, initialize, objects


class Tower(nn.Module):
    """Four convolutions and a last one, over each feature map.

    Args:
        last: the name of the last one in the state dict.
        channels: of the feature maps.
        num_anchors: at each position.
        columns: how many numbers to compute for each anchor.
    """

    _other_names: ClassVar[dict[str, str]] = {  # of files from before torchvision 0.14
        f"conv.{i}.0.{kind}": f"conv.{2 * i}.{kind}" for i in range(4) for kind in ("weight", "bias")
    }

    def __init__(self, last: str, channels: int, num_anchors: int, columns: int):
        super().__init__()
        self.conv = nn.Sequential(*(Conv2dNormActivation(channels, channels, norm_layer=None) for _ in range(4)))
        self.add_module(last, nn.Conv2d(channels, num_anchors * columns, 3, padding=1))
        self.last, self.columns = last, columns
        initialize(self, std=0.01)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """(N, A, columns), of feature maps (N, C, h, w)."""
        last = getattr(self, self.last)
        return cat([by_anchor(last(self.conv(x)), self.columns) for x in maps], 1)


class RetinaNetHead(nn.Module):
    """Logits of the classes, and boxes; in the beginning each class has the probability `prior`.

    Source: Lin et al., 2017, section 4; `torchvision.models.detection.retinanet.RetinaNetHead`.
    """

    def __init__(self, in_channels: int, num_anchors: int, num_classes: int, prior: float = 0.01):
        super().__init__()
        self.classification_head = Tower("cls_logits", in_channels, num_anchors, num_classes)
        self.regression_head = Tower("bbox_reg", in_channels, num_anchors, 4)
        nn.init.constant_(self.classification_head.cls_logits.bias, -math.log((1 - prior) / prior))

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Logits (N, A, num_classes) and codes of boxes (N, A, 4)."""
        return self.classification_head(maps), self.regression_head(maps)


class RetinaNet(SingleStage):
    """A feature pyramid, and a head for all of its maps.

    Args:
        backbone: returns feature maps by name, each with `backbone.out_channels` channels.
        num_classes: each has a logit of its own; there is none for the background.
        anchor_generator, head: other ones than the usual.
        score_thresh, topk_candidates, nms_thresh, detections_per_img: of each feature map the most probable detections
            above a threshold are taken; then those that overlap more with a better one of their class are dropped, and
            those that are too many.
        fg_iou_thresh, bg_iou_thresh: an anchor that overlaps this much with an object has its class, less than this is
            background.
        **options: of the `GeneralizedRCNNTransform`, such as `min_size`.

    Source: `torchvision.models.detection.RetinaNet`.
    """

    def __init__(
        self, backbone: nn.Module, num_classes: int, anchor_generator: AnchorGenerator | None = None,
        head: nn.Module | None = None, score_thresh: float = 0.05, nms_thresh: float = 0.5,
        detections_per_img: int = 300, fg_iou_thresh: float = 0.5, bg_iou_thresh: float = 0.4,
        topk_candidates: int = 1000, **options: Any,
    ):  # fmt: skip
        sizes = tuple((x, int(x * 2 ** (1 / 3)), int(x * 2 ** (2 / 3))) for x in (32, 64, 128, 256, 512))
        anchors = anchor_generator or AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * 5)
        head = head or RetinaNetHead(backbone.out_channels, anchors.num_anchors_per_location()[0], num_classes)
        matcher = Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True)
        thresholds = score_thresh, topk_candidates, nms_thresh, detections_per_img
        super().__init__(backbone, anchors, head, matcher, BoxCoder(), *thresholds, **options)

    def losses(self, logits: Tensor, codes: Tensor, anchors: Tensor, targets: Sequence[Target]) -> dict[str, Tensor]:
        """Of logits (N, A, classes) and codes (N, A, 4): for each image divided by its number of positive anchors."""
        classification, regression = [], []
        for logit, code, target in zip(logits, codes, targets, strict=True):
            matches = self.matcher(target["boxes"], anchors)
            positive, labels, boxes = objects(target, matches)
            truth, counted = zeros_like(logit), matches != IGNORED
            truth[positive, labels] = 1.0
            wanted, count = self.box_coder.encode(boxes, anchors[positive]), max(1, len(boxes))
            classification.append(sigmoid_focal_loss(logit[counted], truth[counted], reduction="sum") / count)
            regression.append(F.l1_loss(code[positive], wanted, reduction="sum") / count)
        return {"classification": stack(classification).mean(), "bbox_regression": stack(regression).mean()}

    def candidates(self, logits: Tensor, counts: Sequence[int]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Of each feature map, over all its anchors and all classes."""
        classes, start = logits.shape[1], 0
        for logit in logits.split(counts):
            scores, at = self.best(logit.sigmoid().flatten())
            yield scores, start + at // classes, at % classes
            start += len(logit)


def resnet50_p3_to_p7(weights: Any, norm_layer: Factory, trainable_layers: int | None) -> BackboneWithFPN:
    """ResNet-50 with a feature pyramid on its last three stages; the one before would have too many anchors."""
    extra = LastLevelP6P7(256, 256)
    return resnet_fpn_backbone("resnet50", weights, norm_layer, trainable_layers, (2, 3, 4), extra)


retinanet_resnet50_fpn = variant("retinanet_resnet50_fpn", RetinaNet, resnet50_p3_to_p7, 3, eps=0.0)
