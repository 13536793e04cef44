"""SSD: boxes of several shapes at each position of feature maps of several sizes, classified at once; and SSDLite.

Liu et al., "SSD: Single shot multibox detector", 2016, on VGG-16 for images of 300 x 300. SSDLite convolves each
channel by itself: Sandler et al., "MobileNetV2", 2018, section 6.2, on MobileNet v3 for images of 320 x 320.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.creation import full_like, ones, zeros_like
from miniflow.ops.indexing import where
from miniflow.ops.joining import cat, stack
from miniflow.tensor import Tensor
from miniflow.vision.layers import Conv2dNormActivation
from miniflow.vision.layers.blocks import Factory
from miniflow.vision.models.detection.anchors import BoxCoder, Matcher, around_positions, by_anchor
from miniflow.vision.models.detection.backbones import freeze, mobilenet_v3, variant
from miniflow.vision.models.detection.detector import SingleStage, Target, initialize, objects
from miniflow.vision.models.features import MOBILENET_V3_STAGES
from miniflow.vision.models.vgg import vgg16


class DefaultBoxGenerator(nn.Module):
    """Anchors of SSD: of map k a square of scale s_k, one of scale sqrt(s_k s_k+1), and two of each aspect ratio.

    Args:
        aspect_ratios: for each feature map, without 1.
        min_ratio, max_ratio: the scales of the first and the last map, as parts of the image; between them they grow
            evenly.
        scales: instead of that, the scale of each map and of one more.
        steps: pixels from one position to the next, for each map; by default as many positions as the map has fit.
        clip: let no anchor be larger than the image.

    Source: Liu et al., 2016, section 2.2; `torchvision.models.detection.anchor_utils.DefaultBoxGenerator`.
    """

    def __init__(
        self, aspect_ratios: Sequence[Sequence[float]], min_ratio: float = 0.15, max_ratio: float = 0.9,
        scales: Sequence[float] | None = None, steps: Sequence[int] | None = None, clip: bool = True,
    ):  # fmt: skip
        super().__init__()
        growth = (max_ratio - min_ratio) / (len(aspect_ratios) - 1)
        self.scales = scales or [*(min_ratio + growth * k for k in range(len(aspect_ratios))), 1.0]
        self.aspect_ratios, self.steps, self.clip = aspect_ratios, steps, clip

    def num_anchors_per_location(self) -> list[int]:
        """Of each feature map."""
        return [2 + 2 * len(ratios) for ratios in self.aspect_ratios]

    def _sides(self, k: int) -> list[tuple[float, float]]:
        """(width, height) of the anchors of map k, as parts of the image."""
        s, between = self.scales[k], math.sqrt(self.scales[k] * self.scales[k + 1])
        sides = [(s, s), (between, between)]
        for root in map(math.sqrt, self.aspect_ratios[k]):
            sides += [(s * root, s / root), (s / root, s * root)]
        return [(min(w, 1.0), min(h, 1.0)) for w, h in sides] if self.clip else sides

    def forward(self, images: Tensor, maps: Sequence[Tensor]) -> Tensor:
        """Anchors (A, 4), the same for each of the images (N, 3, H, W): by map, row and column."""
        height, width = images.shape[2:]
        found = []
        for k, x in enumerate(maps):
            corners = [(-w * width / 2, -h * height / 2, w * width / 2, h * height / 2) for w, h in self._sides(k)]
            strides = [self.steps[k]] * 2 if self.steps else (height / x.shape[2], width / x.shape[3])
            found.append(around_positions(x, corners, strides, offset=0.5))
        return cat(found)


class ScoringHead(nn.Module):
    """A layer for each feature map, which computes `columns` numbers for each anchor."""

    def __init__(self, layers: Sequence[nn.Module], columns: int):
        super().__init__()
        self.module_list, self.columns = nn.ModuleList(layers), columns

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """(N, A, columns) of feature maps (N, C, h, w)."""
        found = [by_anchor(layer(x), self.columns) for layer, x in zip(self.module_list, maps, strict=True)]
        return cat(found, 1)


def conv3x3(inputs: int, outputs: int) -> nn.Conv2d:
    """A convolution that keeps the size of feature maps."""
    return nn.Conv2d(inputs, outputs, 3, padding=1)


class SSDHead(nn.Module):
    """Logits of the classes, background first, and boxes.

    Args:
        in_channels, num_anchors: of each feature map, channels and anchors at each position.
        num_classes: with the background.
        layer: makes the layer of a feature map from its numbers of inputs and outputs.
    """

    def __init__(
        self, in_channels: Sequence[int], num_anchors: Sequence[int], num_classes: int, layer: Factory = conv3x3
    ):
        super().__init__()
        sizes = list(zip(in_channels, num_anchors, strict=True))
        self.classification_head, self.regression_head = (
            ScoringHead([layer(inputs, count * columns) for inputs, count in sizes], columns)
            for columns in (num_classes, 4)
        )

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Logits (N, A, num_classes) and codes of boxes (N, A, 4)."""
        return self.classification_head(maps), self.regression_head(maps)


class SSD(SingleStage):
    """A backbone with feature maps of several sizes, and a head.

    Args:
        backbone: returns the feature maps by name; `out_channels` are their channels.
        anchor_generator: as `DefaultBoxGenerator`.
        size: (width, height) that all images get.
        num_classes: with the background, which is class 0.
        head: another one than `SSDHead`.
        score_thresh, topk_candidates, nms_thresh, detections_per_img: of each class the most probable detections above
            a threshold are taken; then those that overlap more with a better one are dropped, and those that are too
            many of all classes.
        iou_thresh: an anchor that overlaps this much with an object has its class, as does the one that does most.
        positive_fraction: of the anchors that the loss is computed of; the others are those with the largest loss.
        **options: of the `GeneralizedRCNNTransform`, such as `image_mean`.

    Source: `torchvision.models.detection.ssd.SSD`.
    """

    def __init__(
        self, backbone: nn.Module, anchor_generator: DefaultBoxGenerator, size: tuple[int, int], num_classes: int,
        head: nn.Module | None = None, score_thresh: float = 0.01, nms_thresh: float = 0.45,
        detections_per_img: int = 200, iou_thresh: float = 0.5, topk_candidates: int = 400,
        positive_fraction: float = 0.25, **options: Any,
    ):  # fmt: skip
        if head is None:
            head = SSDHead(backbone.out_channels, anchor_generator.num_anchors_per_location(), num_classes)
            initialize(head, nn.init.xavier_uniform_)
        options = {"size_divisible": 1, "fixed_size": size, **options}
        matcher, coder = Matcher(iou_thresh, iou_thresh, one_for_each=True), BoxCoder((10.0, 10.0, 5.0, 5.0))
        thresholds = score_thresh, topk_candidates, nms_thresh, detections_per_img
        super().__init__(backbone, anchor_generator, head, matcher, coder, *thresholds, **options)
        self.negatives = (1 - positive_fraction) / positive_fraction  # for each positive

    def losses(self, logits: Tensor, codes: Tensor, anchors: Tensor, targets: Sequence[Target]) -> dict[str, Tensor]:
        """Of all positive anchors and of the hardest negative ones, divided by the number of positive ones."""
        labels, regression = [], []
        for code, target in zip(codes, targets, strict=True):
            matches = self.matcher(target["boxes"], anchors)
            positive, of_objects, boxes = objects(target, matches)
            wanted = self.box_coder.encode(boxes, anchors[positive])
            regression.append(F.smooth_l1_loss(code[positive], wanted, reduction="sum"))
            label = zeros_like(matches)
            label[positive] = of_objects
            labels.append(label)
        labels = stack(labels)  # (N, A)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").reshape(labels.shape)
        positive = labels > 0
        hardest = where(positive, -math.inf, loss.detach()).argsort(1, descending=True).argsort(1)  # 0 is the hardest
        counted = positive | (hardest < self.negatives * positive.sum(1, keepdim=True))
        count = max(1, int(positive.sum()))
        return {"bbox_regression": stack(regression).sum() / count, "classification": loss[counted].sum() / count}

    def candidates(self, logits: Tensor, counts: Sequence[int]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Of each class, over all anchors."""
        for label, of_class in enumerate(logits.softmax(-1)[:, 1:].unbind(1), start=1):
            scores, rows = self.best(of_class)
            yield scores, rows, full_like(rows, label)


class SSDFeatures(nn.Module):
    """The feature maps of a backbone: what its parts compute, one after the other.

    Args:
        features: the layers that are of a classifier: one part, or several.
        extra: further parts.
        out_channels: of the feature maps.
        normalized: whether `features` is one part, whose map, at each position, is divided by its norm and multiplied
            by a weight for each channel.
    """

    def __init__(
        self, features: nn.Sequential, extra: Sequence[nn.Module], out_channels: Sequence[int], normalized: bool = False
    ):
        super().__init__()
        self.features, self.extra, self.out_channels = features, nn.ModuleList(extra), out_channels
        self.scale_weight = nn.Parameter(ones(out_channels[0]) * 20) if normalized else None

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        first = self.features if self.scale_weight is None else [self.features]
        found = {}
        for i, part in enumerate([*first, *self.extra]):
            x = found[str(i)] = part(x)
        if self.scale_weight is not None:
            found["0"] = self.scale_weight.reshape(1, -1, 1, 1) * F.normalize(found["0"])
        return found


def vgg_features(weights: Any, norm_layer: Factory, trainable_layers: int | None) -> SSDFeatures:
    """The layers of VGG-16 up to conv4_3; the others, up to fc7; and four more maps.

    VGG-16 has five stages, and no normalizations. fc6 and fc7 are convolutions here.

    Source: Liu et al., 2016, figure 2 and section 3.1.
    """
    layers, relu = list(vgg16(weights=weights).features), nn.ReLU(inplace=True)
    pools = [i for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]
    freeze([layers[start:end] for start, end in itertools.pairwise([0, *pools])], trainable_layers)
    layers[pools[2]].ceil_mode = True  # 75 pixels become 38
    fc6, fc7 = nn.Conv2d(512, 1024, 3, padding=6, dilation=6), nn.Conv2d(1024, 1024, 1)
    fc = nn.Sequential(nn.MaxPool2d(3, 1, 1), fc6, relu, fc7, relu)
    sizes = (1024, 256, 2, 1), (512, 128, 2, 1), (256, 128, 1, 0), (256, 128, 1, 0)
    extra = [
        nn.Sequential(nn.Conv2d(inputs, inner, 1), relu, nn.Conv2d(inner, 2 * inner, 3, stride, padding), relu)
        for inputs, inner, stride, padding in sizes
    ]
    initialize(nn.ModuleList([fc, *extra]), nn.init.xavier_uniform_)
    extra = [nn.Sequential(*layers[pools[3] : -1], fc), *extra]
    return SSDFeatures(nn.Sequential(*layers[: pools[3]]), extra, (512, 1024, 512, 256, 256, 256), normalized=True)


LITE_NORM = partial(nn.BatchNorm2d, eps=0.001, momentum=0.03)
lite = partial(Conv2dNormActivation, norm_layer=LITE_NORM, activation_layer=nn.ReLU6)


def depthwise(inputs: int, outputs: int) -> nn.Sequential:
    """A 3x3 convolution of each channel by itself, and a 1x1 convolution."""
    return nn.Sequential(lite(inputs, inputs, groups=inputs), nn.Conv2d(inputs, outputs, 1))


def lite_features(weights: Any, norm_layer: Factory, trainable_layers: int | None) -> SSDFeatures:
    """Those of MobileNet v3; the first is that of the expansion in the block with which the last stage begins.

    The last stage has half its channels unless its weights are loaded. Normalizations always learn.
    """
    reduced, last = weights is None, MOBILENET_V3_STAGES[-2]
    body = mobilenet_v3(weights, LITE_NORM, trainable_layers, reduced_tail=reduced)
    block = body[last].block
    channels = (block[0].out_channels, body[-1].out_channels, 512, 256, 256, 128)
    extra = nn.ModuleList()
    for inputs, outputs in itertools.pairwise(channels[1:]):
        inner = outputs // 2
        layers = lite(inputs, inner, 1), lite(inner, inner, stride=2, groups=inner), lite(inner, outputs, 1)
        extra.append(nn.Sequential(*layers))
    for module in (extra, body) if reduced else (extra,):
        initialize(module, std=0.03)
    fine, coarse = nn.Sequential(*body[:last], block[0]), nn.Sequential(block[1:], *body[last + 1 :])
    return SSDFeatures(nn.Sequential(fine, coarse), extra, channels)


def ssd300(backbone: nn.Module, num_classes: int, **options: Any) -> SSD:
    """SSD for images of 300 x 300, from which the mean is subtracted, in the range 0 to 255."""
    scales, steps = (0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05), (8, 16, 32, 64, 100, 300)
    anchors = DefaultBoxGenerator(((2,), (2, 3), (2, 3), (2, 3), (2,), (2,)), scales=scales, steps=steps)
    return SSD(backbone, anchors, (300, 300), num_classes, **options)


def ssdlite320(backbone: nn.Module, num_classes: int, **options: Any) -> SSD:
    """SSDLite for images of 320 x 320."""
    anchors = DefaultBoxGenerator(((2, 3),) * 6, min_ratio=0.2, max_ratio=0.95)
    head = SSDHead(backbone.out_channels, anchors.num_anchors_per_location(), num_classes, depthwise)
    initialize(head, std=0.03)
    return SSD(backbone, anchors, (320, 320), num_classes, head=head, **options)


ssd300_vgg16 = variant(
    "ssd300_vgg16", ssd300, vgg_features, 4, image_mean=(0.48235, 0.45882, 0.40784), image_std=(1 / 255,) * 3
)
ssdlite320_mobilenet_v3_large = variant(
    "ssdlite320_mobilenet_v3_large", ssdlite320, lite_features, 6, score_thresh=0.001, nms_thresh=0.55,
    detections_per_img=300, topk_candidates=300, image_mean=(0.5,) * 3, image_std=(0.5,) * 3,
)  # fmt: skip
