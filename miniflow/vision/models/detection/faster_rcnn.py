"""Faster R-CNN: a network proposes regions, and another says what is in each of them, from the same features.

Ren et al., "Faster R-CNN: Towards real-time object detection with region proposal networks", 2015, on the feature
pyramid of Lin et al., 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.creation import arange, zeros_like
from miniflow.ops.indexing import where
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.layers import MultiScaleRoIAlign, clip_boxes_to_image, remove_small_boxes
from miniflow.vision.layers.blocks import Factory
from miniflow.vision.models.detection.anchors import AnchorGenerator, BoxCoder, Matcher
from miniflow.vision.models.detection.backbones import mobilenet_fpn_backbone, resnet_fpn_backbone, variant
from miniflow.vision.models.detection.detector import Detector, Found, ImageList, Target, detections, objects
from miniflow.vision.models.detection.rpn import RegionProposalNetwork, RPNHead, sample


class TwoMLPHead(nn.Module):
    """Two linear layers with ReLU over the features of a region."""

    def __init__(self, in_channels: int, representation_size: int):
        super().__init__()
        self.fc6 = nn.Linear(in_channels, representation_size)
        self.fc7 = nn.Linear(representation_size, representation_size)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc7(F.relu(self.fc6(x.flatten(1)))))


class FastRCNNPredictor(nn.Module):
    """Logits of the classes of regions, background first, and a box for each class.

    To train a detector for other classes: `model.roi_heads.box_predictor = FastRCNNPredictor(1024, num_classes)`.
    """

    def __init__(self, in_channels: int, num_classes: int):
        super().__init__()
        self.cls_score = nn.Linear(in_channels, num_classes)
        self.bbox_pred = nn.Linear(in_channels, num_classes * 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(K, num_classes) and (K, num_classes * 4), of features (K, in_channels)."""
        return self.cls_score(x), self.bbox_pred(x)


class RoIHeads(nn.Module):
    """What is in each proposed region, and a better box around it.

    Args:
        box_roi_pool: makes features of equal size of regions, such as `MultiScaleRoIAlign`.
        box_head, box_predictor: as `TwoMLPHead` and `FastRCNNPredictor`.
        score_thresh, nms_thresh, detections_per_img: detections with a smaller probability are dropped, then those
            that overlap more with a better one of their class, then those that are too many.
        fg_iou_thresh, bg_iou_thresh: a region that overlaps this much with an object has its class, less than this is
            background.
        batch_size_per_image, positive_fraction: how many regions a loss is computed of, and how many of them contain
            an object, at most.
        bbox_reg_weights: of the `BoxCoder`.

    Source: `torchvision.models.detection.roi_heads.RoIHeads`.
    """

    def __init__(
        self, box_roi_pool: nn.Module, box_head: nn.Module, box_predictor: nn.Module, score_thresh: float = 0.05,
        nms_thresh: float = 0.5, detections_per_img: int = 100, fg_iou_thresh: float = 0.5, bg_iou_thresh: float = 0.5,
        batch_size_per_image: int = 512, positive_fraction: float = 0.25,
        bbox_reg_weights: Sequence[float] = (10.0, 10.0, 5.0, 5.0),
    ):  # fmt: skip
        super().__init__()
        self.box_roi_pool, self.box_head, self.box_predictor = box_roi_pool, box_head, box_predictor
        self.matcher, self.box_coder = Matcher(fg_iou_thresh, bg_iou_thresh), BoxCoder(bbox_reg_weights)
        self.sample = partial(sample, count=batch_size_per_image, positive_fraction=positive_fraction)
        self.score_thresh, self.nms_thresh, self.detections_per_img = score_thresh, nms_thresh, detections_per_img

    def forward(
        self, maps: Mapping[str, Tensor], proposals: Sequence[Tensor], image_sizes: Sequence[tuple[int, int]],
        targets: Sequence[Target] | None = None,
    ) -> Found:  # fmt: skip
        """The losses in training, else the detections of each image."""
        if self.training:
            proposals, labels, codes = self._drawn(proposals, targets)
        features = self.box_head(self.box_roi_pool(maps, proposals, image_sizes))
        logits, regression = self.box_predictor(features)  # of all images
        regression = regression.reshape(*logits.shape, 4)  # (K, classes, 4)
        if self.training:
            return self._losses(logits, regression, labels, codes)
        boxes, scores = self.box_coder.decode(regression, cat(proposals).unsqueeze(1)), logits.softmax(-1)
        counts = [len(x) for x in proposals]
        of_images = zip(boxes.split(counts), scores.split(counts), image_sizes, strict=True)
        return [self._detections(*of_image) for of_image in of_images]

    def _drawn(self, proposals: Sequence[Tensor], targets: Sequence[Target]) -> tuple[list[Tensor], Tensor, Tensor]:
        """Some proposals of each image, with the ground-truth boxes among them, their labels, the codes of objects."""
        found, labels, codes = [], [], []
        for boxes, target in zip(proposals, targets, strict=True):
            boxes = cat([boxes, target["boxes"]])
            matches = self.matcher(target["boxes"], boxes)
            positive, negative = self.sample(matches)
            boxes, matches = boxes[positive | negative], matches[positive | negative]
            label = zeros_like(matches)
            positive, of_objects, wanted = objects(target, matches)
            label[positive] = of_objects
            found.append(boxes)
            labels.append(label)
            codes.append(self.box_coder.encode(wanted, boxes[positive]))
        return found, cat(labels), cat(codes)

    def _losses(self, logits: Tensor, regression: Tensor, labels: Tensor, codes: Tensor) -> dict[str, Tensor]:
        """Cross entropy of the classes, and the error of the boxes of objects, averaged over all regions."""
        rows = where(labels > 0)[0]
        error = F.smooth_l1_loss(regression[rows, labels[rows]], codes, reduction="sum", beta=1 / 9)
        return {"loss_classifier": F.cross_entropy(logits, labels), "loss_box_reg": error / len(labels)}

    def _detections(self, boxes: Tensor, scores: Tensor, size: tuple[int, int]) -> Target:
        """Of boxes (K, classes, 4) and scores (K, classes) of an image, each class for itself."""
        labels = arange(1, scores.shape[1], device=scores.device).repeat(len(scores))
        boxes, scores = clip_boxes_to_image(boxes[:, 1:].reshape(-1, 4), size), scores[:, 1:].flatten()
        rows = where(scores > self.score_thresh)[0]
        rows = rows[remove_small_boxes(boxes[rows], 1e-2)]
        return detections(boxes[rows], scores[rows], labels[rows], self.nms_thresh, self.detections_per_img)


class FasterRCNN(Detector):
    """A backbone, a `RegionProposalNetwork` and `RoIHeads`.

    Args:
        backbone: returns feature maps by name, each with `backbone.out_channels` channels.
        num_classes: with the background, which is class 0.
        rpn_anchor_generator, rpn_head, box_roi_pool, box_head, box_predictor: other parts than the usual ones.
        bbox_reg_weights: of the `RoIHeads`.
        **options: of the `RegionProposalNetwork` behind the prefix rpn_, of the `RoIHeads` behind the prefix box_, and
            of the `GeneralizedRCNNTransform`, such as `min_size`.

    Source: `torchvision.models.detection.FasterRCNN`.
    """

    def __init__(
        self, backbone: nn.Module, num_classes: int | None = None, rpn_anchor_generator: AnchorGenerator | None = None,
        rpn_head: nn.Module | None = None, box_roi_pool: nn.Module | None = None, box_head: nn.Module | None = None,
        box_predictor: nn.Module | None = None, bbox_reg_weights: Sequence[float] | None = None, **options: Any,
    ):  # fmt: skip
        of_rpn, of_boxes = (
            {name[4:]: options.pop(name) for name in list(options) if name.startswith(prefix)}
            for prefix in ("rpn_", "box_")
        )
        super().__init__(backbone, **options)
        channels, ratios = backbone.out_channels, ((0.5, 1.0, 2.0),)
        anchors = rpn_anchor_generator or AnchorGenerator(((32,), (64,), (128,), (256,), (512,)), ratios * 5)
        head = rpn_head or RPNHead(channels, anchors.num_anchors_per_location()[0])
        pool = box_roi_pool or MultiScaleRoIAlign(("0", "1", "2", "3"), output_size=7, sampling_ratio=2)
        box_head = box_head or TwoMLPHead(channels * pool.output_size[0] ** 2, 1024)
        box_predictor = box_predictor or FastRCNNPredictor(1024, num_classes)
        self.rpn = RegionProposalNetwork(anchors, head, **of_rpn)
        self.roi_heads = RoIHeads(
            pool, box_head, box_predictor, bbox_reg_weights=bbox_reg_weights or (10.0, 10.0, 5.0, 5.0), **of_boxes
        )

    def find(self, images: ImageList, maps: Mapping[str, Tensor], targets: Sequence[Target] | None) -> Found:
        """Losses, or what is found, in pixels of the batch."""
        proposals, losses = self.rpn(images, maps, targets)
        found = self.roi_heads(maps, proposals, images.image_sizes, targets)
        return {**losses, **found} if self.training else found


def many_sizes(backbone: nn.Module, **options: Any) -> FasterRCNN:
    """A Faster R-CNN whose three feature maps have anchors of all sizes."""
    anchors = AnchorGenerator(((32, 64, 128, 256, 512),) * 3, ((0.5, 1.0, 2.0),) * 3)
    return FasterRCNN(backbone, **{"rpn_anchor_generator": anchors, "rpn_score_thresh": 0.05, **options})


def resnet50_fpn(weights: Any, norm_layer: Factory, trainable_layers: int | None) -> nn.Module:
    """ResNet-50 with a feature pyramid on its last four stages."""
    return resnet_fpn_backbone("resnet50", weights, norm_layer, trainable_layers)


MOBILENET = many_sizes, mobilenet_fpn_backbone, 3
SMALL = {"min_size": 320, "max_size": 640, "rpn_pre_nms_top_n_test": 150, "rpn_post_nms_top_n_test": 150}
fasterrcnn_resnet50_fpn = variant("fasterrcnn_resnet50_fpn", FasterRCNN, resnet50_fpn, 3, eps=0.0)
fasterrcnn_mobilenet_v3_large_fpn = variant("fasterrcnn_mobilenet_v3_large_fpn", *MOBILENET)
fasterrcnn_mobilenet_v3_large_320_fpn = variant("fasterrcnn_mobilenet_v3_large_320_fpn", *MOBILENET, **SMALL)
