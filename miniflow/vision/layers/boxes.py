"""Boxes in images: formats, overlaps, suppression, losses, and the features in boxes.

Boxes are (..., 4), floating or integer: the corners x1, y1, x2, y2 in pixels, x1 <= x2 and y1 <= y2, unless a format
says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from miniflow import nn
from miniflow.errors import ArgumentError, ArgumentTypeError, ShapeError, refusal
from miniflow.nn import functional as F
from miniflow.ops import detection
from miniflow.ops.arithmetic import maximum, minimum
from miniflow.ops.detection import nms
from miniflow.ops.exponential import log2
from miniflow.ops.joining import cat, stack
from miniflow.tensor import Tensor
from miniflow.vision.layers.blocks import pair


def _check(boxes: Tensor) -> None:
    if not isinstance(boxes, Tensor):
        raise refusal(ArgumentTypeError, "boxes", "a tensor (..., 4): use flow.tensor", boxes=boxes)
    if boxes.shape[-1:] != (4,):
        raise refusal(ShapeError, "boxes", "(..., 4)", boxes=boxes)


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Boxes in another format: "xyxy" (corners), "xywh" (a corner and the size) or "cxcywh" (the centre and the size).

    Raises:
        ArgumentError: for another format.

    >>> import miniflow as flow
    >>> box_convert(flow.tensor([1.0, 2.0, 4.0, 4.0]), "xyxy", "cxcywh").tolist()
    [2.5, 3.0, 3.0, 2.0]

    Source: `torchvision.ops.box_convert`.
    """
    _check(boxes)
    if {in_fmt, out_fmt} - {"xyxy", "xywh", "cxcywh"}:
        raise ArgumentError(f'box_convert: got {in_fmt!r} to {out_fmt!r}; expected "xyxy", "xywh" or "cxcywh"')
    first, second = boxes[..., :2], boxes[..., 2:]
    if in_fmt == out_fmt:
        return boxes.clone()
    low = first - second / 2 if in_fmt == "cxcywh" else first
    size = second - first if in_fmt == "xyxy" else second
    return cat([low + size / 2 if out_fmt == "cxcywh" else low, low + size if out_fmt == "xyxy" else size], dim=-1)


def box_area(boxes: Tensor) -> Tensor:
    """The areas, of shape (...). `torchvision.ops.box_area`."""
    _check(boxes)
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _overlap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The areas of the intersections and of the unions of boxes, elementwise."""
    sides = (minimum(a[..., 2:], b[..., 2:]) - maximum(a[..., :2], b[..., :2])).clamp(min=0)
    intersection = sides[..., 0] * sides[..., 1]
    return intersection, box_area(a) + box_area(b) - intersection


def box_iou(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
    """Intersection over union of each of N boxes with each of M: shape (..., N, M).

    >>> import miniflow as flow
    >>> box_iou(flow.tensor([[0.0, 0.0, 2.0, 2.0]]), flow.tensor([[1.0, 0.0, 3.0, 2.0]]))
    tensor([[0.3333]], dtype=miniflow.float32)

    Source: Jaccard, 1901; `torchvision.ops.box_iou`.
    """
    a, b = (box_convert(boxes, fmt, "xyxy") for boxes in (boxes1, boxes2))
    intersection, union = _overlap(a.unsqueeze(-2), b.unsqueeze(-3))
    return intersection / union


def _generalized(a: Tensor, b: Tensor, eps: float) -> Tensor:
    """IoU - (area of the smallest box around both - union) / that area, elementwise."""
    intersection, union = _overlap(a, b)
    sides = maximum(a[..., 2:], b[..., 2:]) - minimum(a[..., :2], b[..., :2])
    around = sides[..., 0] * sides[..., 1]
    return intersection / (union + eps) - (around - union) / (around + eps)


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Generalized IoU of each of N boxes with each of M, from -1 (far apart) to 1 (equal): shape (..., N, M).

    Source: Rezatofighi et al., "Generalized Intersection over Union", 2019; `torchvision.ops.generalized_box_iou`.
    """
    return _generalized(boxes1.unsqueeze(-2), boxes2.unsqueeze(-3), 0.0)


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f'a loss of boxes: got reduction={reduction!r}; expected "none", "mean" or "sum"')
    if reduction == "mean":
        return loss.sum() / max(loss.numel(), 1)  # 0 of no boxes
    return loss.sum() if reduction == "sum" else loss


def generalized_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """1 - generalized IoU of boxes (..., 4) and (..., 4) in pairs. `torchvision.ops.generalized_box_iou_loss`."""
    return _reduced(1 - _generalized(boxes1, boxes2, eps), reduction)


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "none"
) -> Tensor:
    """-alpha_t (1 - p_t)^gamma log p_t, where p_t is the probability given to the true one of two classes.

    Args:
        inputs: logits.
        targets: 1 or 0, floating, in the same shape.
        alpha: the weight of targets that are 1, whose others weigh 1 - alpha; negative for no weights.
        gamma: by how much what is easy counts less.
        reduction: "none", "mean" or "sum".

    Source: Lin et al., "Focal Loss for Dense Object Detection", 2017; `torchvision.ops.sigmoid_focal_loss`.
    """
    p = inputs.sigmoid()
    wrong = p + targets - 2 * p * targets  # 1 - p_t
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none") * wrong**gamma
    if alpha >= 0:
        loss = loss * (alpha * targets + (1 - alpha) * (1 - targets))
    return _reduced(loss, reduction)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes cut off at the border of an image of size (height, width). `torchvision.ops.clip_boxes_to_image`."""
    height, width = size
    x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return stack([x, y], dim=-1).reshape(boxes.shape)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """Indices of the boxes with both sides at least `min_size`. `torchvision.ops.remove_small_boxes`."""
    return ((boxes[..., 2:] - boxes[..., :2]) >= min_size).all(dim=-1).nonzero().squeeze(1)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """Non-maximum suppression in each class by itself.

    Boxes of different classes are moved so far apart that they do not overlap.

    Args:
        boxes, scores, iou_threshold: as for `nms`, shapes (K, 4) and (K,).
        idxs: the class of each box, shape (K,).

    Returns:
        int64 indices of the boxes that are kept, in descending order of their scores.

    >>> import miniflow as flow
    >>> boxes = flow.tensor([[0.0, 0.0, 2.0, 2.0]] * 3)
    >>> batched_nms(boxes, flow.tensor([0.1, 0.9, 0.5]), flow.tensor([0, 1, 1]), 0.5).tolist()
    [1, 0]

    Source: `torchvision.ops.batched_nms`.
    """
    if not len(boxes):
        return nms(boxes, scores, iou_threshold)
    return nms(boxes + (idxs.to(boxes.dtype) * (boxes.max() - boxes.min() + 1)).unsqueeze(1), scores, iou_threshold)


def roi_align(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: int | tuple[int, int], spatial_scale: float = 1.0,
    sampling_ratio: int = -1, aligned: bool = False,
) -> Tensor:  # fmt: skip
    """`flow.roi_align` with torchvision's arguments.

    Args:
        input: shape (N, C, H, W).
        boxes: the boxes of each image, N tensors (K_n, 4); or (K, 5), of which the first column is the image's index.
        output_size: how many bins down and across.
        spatial_scale, sampling_ratio, aligned: as for `flow.roi_align`.

    Returns:
        shape (K, C, *output_size).

    Source: `torchvision.ops.roi_align`.
    """
    if not isinstance(boxes, Tensor):
        boxes = cat([F.pad(of_image, (1, 0), value=n) for n, of_image in enumerate(boxes)])
    return detection.roi_align(input, boxes, spatial_scale, *pair(output_size), sampling_ratio, aligned)


class MultiScaleRoIAlign(nn.Module):
    """The features in boxes, of large boxes from coarse feature maps: level k0 + log2(sqrt(area) / canonical_scale).

    Args:
        featmap_names: which feature maps are used, from the finest to the coarsest, each half as large as the last.
        output_size: how many bins down and across.
        sampling_ratio: as for `roi_align`.
        canonical_scale, canonical_level: a box with sides of `canonical_scale` pixels belongs to level k0, where a
            pixel is 2^k0 pixels of the image wide.

    Source: Lin et al., "Feature Pyramid Networks for Object Detection", 2017, equation 1;
    `torchvision.ops.MultiScaleRoIAlign`.
    """

    def __init__(
        self, featmap_names: Sequence[str], output_size: int | tuple[int, int], sampling_ratio: int, *,
        canonical_scale: int = 224, canonical_level: int = 4,
    ):  # fmt: skip
        super().__init__()
        self.featmap_names, self.output_size, self.sampling_ratio = featmap_names, pair(output_size), sampling_ratio
        self.canonical_scale, self.canonical_level = canonical_scale, canonical_level

    def forward(
        self, x: Mapping[str, Tensor], boxes: Sequence[Tensor], image_shapes: Sequence[tuple[int, int]]
    ) -> Tensor:
        """Features (K, C, *output_size).

        Args:
            x: feature maps (N, C, H, W) by name.
            boxes: of each image (K_n, 4), in its pixels.
            image_shapes: (height, width) of each image; the feature maps are of the largest.
        """
        maps = [x[name] for name in x if name in self.featmap_names]
        if not maps:
            raise ArgumentError(f"MultiScaleRoIAlign: got maps {list(x)}; expected some of {list(self.featmap_names)}")
        height = max(shape[0] for shape in image_shapes)
        scales = [2.0 ** round(math.log2(map.shape[2] / height)) for map in maps]
        regions = cat([F.pad(of_image, (1, 0), value=n) for n, of_image in enumerate(boxes)])
        finest, coarsest = (-int(math.log2(scale)) for scale in (scales[0], scales[-1]))
        level = self.canonical_level + log2(box_area(regions[:, 1:]).sqrt() / self.canonical_scale) + 1e-6
        level = level.floor().clamp(finest, coarsest) - finest
        members = [(level == k).nonzero().squeeze(1) for k in range(len(maps))]
        found = [
            roi_align(map, regions[of_level], self.output_size, scale, self.sampling_ratio)
            for map, of_level, scale in zip(maps, members, scales, strict=True)
        ]
        return cat(found)[cat(members).argsort()]  # in the order of the boxes
