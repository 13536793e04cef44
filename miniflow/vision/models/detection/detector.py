"""What detectors share: they take images of any size, and return losses or boxes.

Values are read on the host where the number of boxes depends on them, so that nn.Graph compiles the backbone and the
head of a detector, but not the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from miniflow import nn
from miniflow.dtype import int64
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.nn import functional as F
from miniflow.ops.indexing import where
from miniflow.ops.joining import cat, stack
from miniflow.ops.random import randint
from miniflow.tensor import Tensor
from miniflow.vision.layers import batched_nms, clip_boxes_to_image
from miniflow.vision.models.detection.anchors import BoxCoder, Matcher

Target = Mapping[str, Tensor]  # "boxes" (K, 4) and "labels" (K,); of what is found also "scores" (K,)
Found = dict[str, Tensor] | list[Target]  # losses by name, or what is found in each image


class ImageList(NamedTuple):
    """Images in one tensor (N, 3, H, W), and the (height, width) of each, which may be smaller."""

    tensors: Tensor
    image_sizes: list[tuple[int, int]]


class GeneralizedRCNNTransform(nn.Module):
    """Normalize images, resize them with their boxes, and pad them with zeros to one size.

    Args:
        min_size: what the shorter side becomes; of several sizes one is drawn in training, and the last taken else.
        max_size: the longer side becomes no longer than this.
        image_mean, image_std: of the channels, subtracted and divided by; by default those of ImageNet.
        size_divisible: the sides of the result are multiples of this.
        fixed_size: (width, height) of all images, instead of `min_size` and `max_size`.

    Source: `torchvision.models.detection.transform.GeneralizedRCNNTransform`.
    """

    def __init__(
        self, min_size: int | Sequence[int] = 800, max_size: int = 1333,
        image_mean: Sequence[float] = (0.485, 0.456, 0.406), image_std: Sequence[float] = (0.229, 0.224, 0.225),
        size_divisible: int = 32, fixed_size: tuple[int, int] | None = None,
    ):  # fmt: skip
        super().__init__()
        self.min_size = (min_size,) if isinstance(min_size, int) else tuple(min_size)
        self.max_size, self.size_divisible, self.fixed_size = max_size, size_divisible, fixed_size
        self.image_mean, self.image_std = image_mean, image_std

    def forward(
        self, images: Sequence[Tensor], targets: Sequence[Target] | None = None
    ) -> tuple[ImageList, list[Target] | None]:
        sizes = [self._size(*image.shape[1:]) for image in images]
        step = self.size_divisible
        height, width = (math.ceil(max(n) / step) * step for n in zip(*sizes, strict=True))
        batch = []
        for image, (h, w) in zip(images, sizes, strict=True):
            mean, std = (image.new_tensor(x).reshape(3, 1, 1) for x in (self.image_mean, self.image_std))
            image = ((image - mean) / std).unsqueeze(0)
            image = F.interpolate(image, (h, w), mode="bilinear", align_corners=False).squeeze(0)
            batch.append(F.pad(image, (0, width - w, 0, height - h)))
        if targets is not None:
            targets = [
                {**target, "boxes": resized(target["boxes"], image.shape[1:], size)}
                for target, image, size in zip(targets, images, sizes, strict=True)
            ]
        return ImageList(stack(batch), sizes), targets

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """What the size of an image becomes."""
        if self.fixed_size is not None:
            return self.fixed_size[1], self.fixed_size[0]
        shorter = self.min_size[int(randint(len(self.min_size), (1,))) if self.training else -1]
        scale = min(shorter / min(height, width), self.max_size / max(height, width))
        return math.floor(height * scale), math.floor(width * scale)


def resized(boxes: Tensor, old: Sequence[int], new: Sequence[int]) -> Tensor:
    """Boxes of an image whose (height, width) goes from `old` to `new`."""
    y, x = (after / before for before, after in zip(old, new, strict=True))
    return boxes * boxes.new_tensor((x, y, x, y))


def objects(target: Target, matches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which anchors have an object, as a mask (A,), and of these the labels (P,) and ground-truth boxes (P, 4)."""
    positive = matches >= 0
    return positive, target["labels"][matches[positive]], target["boxes"][matches[positive]]


def detections(boxes: Tensor, scores: Tensor, labels: Tensor, nms_thresh: float, most: int) -> Target:
    """What a detector returns for an image: the best of boxes of a class that overlap, best first, at most so many."""
    kept = batched_nms(boxes, scores, labels, nms_thresh)[:most]
    return {"boxes": boxes[kept], "labels": labels[kept], "scores": scores[kept]}


def initialize(module: nn.Module, draw: Callable[..., Tensor] = nn.init.normal_, **options: Any) -> None:
    """Draw the weights of all convolutions; biases are zero."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            draw(layer.weight, **options)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class Detector(nn.Module):
    """A backbone, and what a subclass finds in its feature maps.

    Args:
        backbone: returns feature maps (N, C, h, w) by name, finest first, or one such tensor.
        **options: of the `GeneralizedRCNNTransform`.
    """

    def __init__(self, backbone: nn.Module, **options: Any):
        super().__init__()
        self.transform, self.backbone = GeneralizedRCNNTransform(**options), backbone

    def forward(self, images: Sequence[Tensor], targets: Sequence[Target] | None = None) -> Found:
        """Losses in training, and what is found in evaluation.

        Args:
            images: each (3, H, W), values from 0 to 1.
            targets: for training; of each image "boxes" (K, 4), floating, and "labels" (K,), int64, 0 for background.

        Returns:
            in training the losses by name, to be added; else of each image "boxes", "labels" and "scores", best first.

        Raises:
            ArgumentError: without images, without targets in training, or for boxes without an area or a label.
            DTypeError: for images or boxes that are not floating.
            ShapeError: for images or boxes of another shape.
        """
        self._check(images, targets)
        batch, targets = self.transform(images, targets)
        maps = self.backbone(batch.tensors)
        found = self.find(batch, {"0": maps} if isinstance(maps, Tensor) else maps, targets)
        if self.training:
            return found
        for target, size, image in zip(found, batch.image_sizes, images, strict=True):
            target["boxes"] = resized(target["boxes"], size, image.shape[1:])
        return found

    def find(self, images: ImageList, maps: Mapping[str, Tensor], targets: Sequence[Target] | None) -> Found:
        """Losses, or what is found, in pixels of the batch."""
        raise NotImplementedError

    def _check(self, images: Sequence[Tensor], targets: Sequence[Target] | None) -> None:
        """Refuse what would go wrong later."""
        name = type(self).__name__
        if targets is None and self.training:
            raise ArgumentError(f"{name}: got no targets, expected one for each image; to detect, call eval() first")
        if not len(images) or (targets is not None and len(targets) != len(images)):
            got = f"{len(images)} images" if targets is None else f"{len(images)} images and {len(targets)} targets"
            raise ArgumentError(f"{name}: got {got}, expected at least one image, and a target for each")
        channels = len(self.transform.image_mean)
        for image in images:
            if image.ndim != 3 or image.shape[0] != channels:
                raise refusal(ShapeError, name, f"images ({channels}, H, W)", image=image)
            if not image.is_floating_point():
                raise DTypeError(
                    f"{name}: got an image of {image.dtype}, expected floating ones from 0 to 1: divide by 255"
                )
        for i, target in enumerate(targets or ()):
            if self.training:
                self._check_labels(i, target)
            boxes = target["boxes"]
            if not boxes.is_floating_point():
                raise DTypeError(f"{name}: got boxes of {boxes.dtype} in targets[{i}], expected floating ones")
            if boxes.ndim != 2 or boxes.shape[1] != 4:
                raise refusal(ShapeError, name, "boxes (K, 4)", boxes=boxes)
            flat = boxes[~(boxes[:, 2:] > boxes[:, :2]).all(1)].tolist()
            if flat:
                raise ArgumentError(f"{name}: got box {flat[0]} in targets[{i}], expected x1 < x2 and y1 < y2")

    def _check_labels(self, i: int, target: Target) -> None:
        labels = target.get("labels")
        if labels is None or "boxes" not in target:
            got, expected = sorted(target), "boxes and labels"
        elif labels.dtype is not int64 or labels.shape != target["boxes"].shape[:1]:
            got = f"labels {tuple(labels.shape)} of {labels.dtype}"
            expected = f"int64 ones, one for each of {len(target['boxes'])} boxes"
        elif labels.numel() and labels.min().item() < 0:
            got, expected = f"the label {labels.min().item()}", "labels of at least 0"
        else:
            return
        raise ArgumentError(f"{type(self).__name__}: got {got} in targets[{i}], expected {expected}")


class SingleStage(Detector):
    """A detector that classifies all anchors at once.

    A subclass has the methods `losses`, of logits (N, A, classes), codes (N, A, 4), anchors and targets, and
    `candidates`, which of logits (A, classes) of an image, and of the numbers of anchors of each feature map, yields
    groups of scores, indices of anchors, and labels.

    Args:
        backbone, **options: as for `Detector`.
        anchor_generator: makes anchors (A, 4).
        head: makes logits (N, A, classes) and codes of boxes (N, A, 4) of the feature maps.
        matcher, box_coder: how anchors and ground-truth boxes belong together.
        score_thresh, topk_candidates, nms_thresh, detections_per_img: of each group of scores the best above a
            threshold are taken; then those that overlap more with a better one of their class are dropped, and those
            that are too many.
    """

    def __init__(
        self, backbone: nn.Module, anchor_generator: nn.Module, head: nn.Module, matcher: Matcher, box_coder: BoxCoder,
        score_thresh: float, topk_candidates: int, nms_thresh: float, detections_per_img: int, **options: Any,
    ):  # fmt: skip
        super().__init__(backbone, **options)
        self.anchor_generator, self.head, self.matcher, self.box_coder = anchor_generator, head, matcher, box_coder
        self.score_thresh, self.topk_candidates = score_thresh, topk_candidates
        self.nms_thresh, self.detections_per_img = nms_thresh, detections_per_img

    def find(self, images: ImageList, maps: Mapping[str, Tensor], targets: Sequence[Target] | None) -> Found:
        """Losses, or what is found, in pixels of the batch."""
        levels = list(maps.values())
        logits, codes = self.head(levels)
        anchors = self.anchor_generator(images.tensors, levels)
        if self.training:
            return self.losses(logits, codes, anchors, targets)
        at_each = self.anchor_generator.num_anchors_per_location()
        counts = [x.shape[2] * x.shape[3] * n for x, n in zip(levels, at_each, strict=True)]
        found = []
        for logit, code, size in zip(logits, codes, images.image_sizes, strict=True):
            scores, rows, labels = map(cat, zip(*self.candidates(logit, counts), strict=True))
            boxes = clip_boxes_to_image(self.box_coder.decode(code[rows], anchors[rows]), size)
            found.append(detections(boxes, scores, labels, self.nms_thresh, self.detections_per_img))
        return found

    def best(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The candidates of a group of scores (K,), and their indices."""
        above = where(scores > self.score_thresh)[0]
        largest, order = scores[above].topk(min(self.topk_candidates, len(above)))
        return largest, above[order]
