"""Anchors, boxes as what is regressed from them, and which object each is responsible for.

Boxes are corners (x1, y1, x2, y2) in pixels, x1 < x2 and y1 < y2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from miniflow import nn
from miniflow.dtype import int64
from miniflow.ops.creation import arange, full
from miniflow.ops.indexing import where
from miniflow.ops.joining import cat, meshgrid, stack
from miniflow.tensor import Tensor
from miniflow.vision.layers import box_iou


class AnchorGenerator(nn.Module):
    """Boxes around each position of each feature map: of each size and each aspect ratio (height / width).

    Args:
        sizes: for each feature map, the square roots of the areas in pixels.
        aspect_ratios: for each feature map.

    >>> import miniflow as flow
    >>> AnchorGenerator(((8,),), ((1.0, 4.0),))(flow.zeros(1, 3, 32, 32), [flow.zeros(1, 5, 2, 1)]).tolist()
    [[-4.0, -4.0, 4.0, 4.0], [-2.0, -8.0, 2.0, 8.0], [-4.0, 12.0, 4.0, 20.0], [-2.0, 8.0, 2.0, 24.0]]

    Source: Ren et al., "Faster R-CNN", 2015, section 3.1.1; `torchvision.models.detection.anchor_utils`.
    """

    def __init__(
        self, sizes: Sequence[Sequence[int]] = ((128, 256, 512),),
        aspect_ratios: Sequence[Sequence[float]] = ((0.5, 1.0, 2.0),),
    ):  # fmt: skip
        super().__init__()
        self.sizes, self.aspect_ratios = sizes, aspect_ratios

    def num_anchors_per_location(self) -> list[int]:
        """Of each feature map."""
        return [len(sizes) * len(ratios) for sizes, ratios in zip(self.sizes, self.aspect_ratios, strict=True)]

    def forward(self, images: Tensor, maps: Sequence[Tensor]) -> Tensor:
        """Anchors (A, 4), the same for each of the images (N, 3, H, W): by map, row, column, ratio and size."""
        found = []
        for x, sizes, ratios in zip(maps, self.sizes, self.aspect_ratios, strict=True):
            sides = [(size / math.sqrt(ratio), size * math.sqrt(ratio)) for ratio in ratios for size in sizes]
            corners = [tuple(round(side / 2) for side in (-w, -h, w, h)) for w, h in sides]
            strides = [n // cells for n, cells in zip(images.shape[2:], x.shape[2:], strict=True)]
            found.append(around_positions(x, corners, strides))
        return cat(found)


def around_positions(
    x: Tensor, corners: Sequence[Sequence[float]], strides: Sequence[float], offset: float = 0.0
) -> Tensor:
    """Boxes (h w K, 4) whose K corners are counted from each position of a feature map (N, C, h, w).

    Args:
        x: the feature map.
        corners: K boxes around (0, 0), in pixels.
        strides: pixels from one position to the next, down and across.
        offset: of the first position, in strides.
    """
    down, across = (
        (arange(n, device=x.device).to(x.dtype) + offset) * stride
        for n, stride in zip(x.shape[2:], strides, strict=True)
    )
    at = stack([grid.flatten() for grid in reversed(meshgrid(down, across, indexing="ij"))], 1)  # (h w, 2): x, y
    return (at.repeat(1, 2).unsqueeze(1) + x.new_tensor(corners)).reshape(-1, 4)


class BoxCoder:
    """Boxes as what is to be regressed from anchors: where the center is and how large the sides are, relatively.

        d_xy = (center - center_anchor) / side_anchor,  d_wh = log(side / side_anchor)

    both multiplied by weights, with which they have a variance near 1.

    Args:
        weights: of d_x, d_y, d_w and d_h.

    Source: Girshick et al., "Rich feature hierarchies ...", 2014, appendix C; torchvision's class of this name.
    """

    LARGEST = math.log(1000 / 16)  # of d_wh, lest its exponential overflow

    def __init__(self, weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0)):
        self.weights = weights

    def encode(self, boxes: Tensor, anchors: Tensor) -> Tensor:
        """Of boxes (..., 4), from anchors (..., 4)."""
        (center, side), (from_center, from_side) = map(center_and_side, (boxes, anchors))
        codes = cat([(center - from_center) / from_side, (side / from_side).log()], -1)
        return codes * codes.new_tensor(self.weights)

    def decode(self, codes: Tensor, anchors: Tensor) -> Tensor:
        """The boxes of codes (..., 4), with anchors whose shape broadcasts."""
        codes = codes / codes.new_tensor(self.weights)
        center, side = center_and_side(anchors.to(codes.dtype))
        center = codes[..., :2] * side + center
        half = codes[..., 2:].clamp(max=self.LARGEST).exp() * side * 0.5
        return cat([center - half, center + half], -1)


def center_and_side(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Centers (x, y) and sides (width, height) of boxes (..., 4)."""
    side = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + 0.5 * side, side


BACKGROUND, IGNORED = -1, -2  # instead of a match


class Matcher:
    """Which ground-truth box an anchor is responsible for.

    The one with the largest intersection over union if that is at least `high`; `BACKGROUND` if it is below `low`;
    `IGNORED` between.

    Args:
        high, low: the thresholds.
        allow_low_quality_matches: the anchors that overlap with a ground-truth box more than all others do are
            matched, whatever the thresholds.
        one_for_each: the first of these anchors is that ground-truth box's, whatever its overlap with others.

    Source: `torchvision.models.detection._utils.Matcher`, `SSDMatcher`.
    """

    def __init__(self, high: float, low: float, allow_low_quality_matches: bool = False, one_for_each: bool = False):
        self.high, self.low = high, low
        self.allow_low_quality_matches, self.one_for_each = allow_low_quality_matches, one_for_each

    def __call__(self, boxes: Tensor, anchors: Tensor) -> Tensor:
        """For each of (A, 4) anchors the index of one of (K, 4) boxes, `BACKGROUND` or `IGNORED`."""
        if not len(boxes):
            return full((len(anchors),), BACKGROUND, dtype=int64, device=anchors.device)
        overlap = box_iou(boxes, anchors)  # (K, A)
        largest, nearest = overlap.max(0)
        matches = where(largest < self.high, IGNORED, nearest)
        matches = where(largest < self.low, BACKGROUND, matches)
        if self.allow_low_quality_matches:
            matches = where((overlap == overlap.amax(1, keepdim=True)).any(0), nearest, matches)
        if self.one_for_each:
            matches[overlap.argmax(1)] = arange(len(boxes), device=boxes.device)
        return matches


def by_anchor(x: Tensor, columns: int) -> Tensor:
    """What a convolution computes for each anchor, (N, A columns, h, w), as (N, h w A, columns)."""
    n, _, h, w = x.shape
    return x.reshape(n, -1, columns, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, columns)
