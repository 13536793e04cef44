"""The region proposal network: for each anchor whether there is an object, and the box around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from miniflow import nn
from miniflow.dtype import bool_
from miniflow.nn import functional as F
from miniflow.ops.creation import full_like, zeros_like
from miniflow.ops.indexing import where
from miniflow.ops.joining import cat, stack
from miniflow.ops.random import randperm
from miniflow.tensor import Tensor
from miniflow.vision.layers import Conv2dNormActivation, batched_nms, clip_boxes_to_image, remove_small_boxes
from miniflow.vision.models.detection.anchors import BACKGROUND, AnchorGenerator, BoxCoder, Matcher, by_anchor
from miniflow.vision.models.detection.detector import ImageList, Target, initialize


def sample(matches: Tensor, count: int, positive_fraction: float) -> tuple[Tensor, Tensor]:
    """Which anchors a loss is computed of, drawn at random: masks (A,) of those that are matched, and of background.

    Args:
        matches: (A,), of a `Matcher`.
        count: how many to draw; fewer where there are not so many.
        positive_fraction: how many of them are matched ones, at most.

    Source: `torchvision.models.detection._utils.BalancedPositiveNegativeSampler`.
    """
    masks, left = [], int(count * positive_fraction)
    for members in (where(matches >= 0)[0], where(matches == BACKGROUND)[0]):
        drawn = members[randperm(len(members), device=members.device)[:left]]
        mask = zeros_like(matches, dtype=bool_)
        mask[drawn] = True
        masks.append(mask)
        left = count - len(drawn)
    return masks[0], masks[1]


class RPNHead(nn.Module):
    """A convolution over each feature map, then objectness and box of each anchor at each position."""

    _other_names: ClassVar[dict[str, str]] = {  # of files from before torchvision 0.14
        f"conv.0.0.{kind}": f"conv.{kind}" for kind in ("weight", "bias")
    }

    def __init__(self, in_channels: int, num_anchors: int):
        super().__init__()
        self.conv = nn.Sequential(Conv2dNormActivation(in_channels, in_channels, norm_layer=None))
        self.cls_logits = nn.Conv2d(in_channels, num_anchors, 1)
        self.bbox_pred = nn.Conv2d(in_channels, num_anchors * 4, 1)
        initialize(self, std=0.01)

    def forward(self, maps: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """For each feature map (N, C, h, w): logits (N, h w A) and codes of boxes (N, h w A, 4)."""
        inner = [self.conv(x) for x in maps]
        logits = [by_anchor(self.cls_logits(x), 1).squeeze(2) for x in inner]
        return logits, [by_anchor(self.bbox_pred(x), 4) for x in inner]


class RegionProposalNetwork(nn.Module):
    """Boxes that may contain objects of any class.

    Args:
        anchor_generator, head: as `AnchorGenerator` and `RPNHead`.
        pre_nms_top_n_train, pre_nms_top_n_test: how many proposals of each feature map are kept before suppression.
        post_nms_top_n_train, post_nms_top_n_test: how many of all are kept after it.
        nms_thresh: of the suppression.
        fg_iou_thresh, bg_iou_thresh: an anchor that overlaps this much with an object is positive, less than this
            negative.
        batch_size_per_image, positive_fraction: how many anchors a loss is computed of, and how many of them are
            positive, at most.
        score_thresh: proposals with a smaller probability are dropped.

    Source: Ren et al., "Faster R-CNN", 2015, section 3.1; `torchvision.models.detection.rpn.RegionProposalNetwork`.
    """

    def __init__(
        self, anchor_generator: AnchorGenerator, head: nn.Module, pre_nms_top_n_train: int = 2000,
        pre_nms_top_n_test: int = 1000, post_nms_top_n_train: int = 2000, post_nms_top_n_test: int = 1000,
        nms_thresh: float = 0.7, fg_iou_thresh: float = 0.7, bg_iou_thresh: float = 0.3,
        batch_size_per_image: int = 256, positive_fraction: float = 0.5, score_thresh: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.anchor_generator, self.head, self.box_coder = anchor_generator, head, BoxCoder()
        self.matcher = Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True)
        self.sample = partial(sample, count=batch_size_per_image, positive_fraction=positive_fraction)
        self.pre_nms_top_n = {True: pre_nms_top_n_train, False: pre_nms_top_n_test}
        self.post_nms_top_n = {True: post_nms_top_n_train, False: post_nms_top_n_test}
        self.nms_thresh, self.score_thresh = nms_thresh, score_thresh

    def forward(
        self, images: ImageList, maps: Mapping[str, Tensor], targets: Sequence[Target] | None = None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Proposals of each image, (K, 4), best first and without gradient, and in training the losses."""
        levels = list(maps.values())
        logits, codes = self.head(levels)
        anchors, all_codes = self.anchor_generator(images.tensors, levels), cat(codes, 1)  # (A, 4), (N, A, 4)
        boxes = self.box_coder.decode(all_codes.detach(), anchors)
        proposals = [
            self._propose(boxes[i], [x[i].detach() for x in logits], size) for i, size in enumerate(images.image_sizes)
        ]
        return proposals, self._losses(cat(logits, 1), all_codes, anchors, targets) if self.training else {}

    def _propose(self, boxes: Tensor, logits: Sequence[Tensor], size: tuple[int, int]) -> Tensor:
        """The proposals of an image of boxes (A, 4), given the logits of each feature map."""
        found, start = [], 0
        for level, x in enumerate(logits):
            largest, order = x.topk(min(self.pre_nms_top_n[self.training], len(x)))
            found.append((boxes[start + order], largest, full_like(order, level)))
            start += len(x)
        boxes, best, level = map(cat, zip(*found, strict=True))
        boxes, scores = clip_boxes_to_image(boxes, size), best.sigmoid()
        kept = remove_small_boxes(boxes, 1e-3)
        kept = kept[scores[kept] >= self.score_thresh]
        boxes, scores, level = boxes[kept], scores[kept], level[kept]
        return boxes[batched_nms(boxes, scores, level, self.nms_thresh)[: self.post_nms_top_n[self.training]]]

    def _losses(self, logits: Tensor, codes: Tensor, anchors: Tensor, targets: Sequence[Target]) -> dict[str, Tensor]:
        """Of logits (N, A) and codes (N, A, 4), both averaged over the anchors drawn."""
        matches = [self.matcher(target["boxes"], anchors) for target in targets]
        positive, negative = map(stack, zip(*map(self.sample, matches), strict=True))  # (N, A)
        wanted = [
            self.box_coder.encode(target["boxes"][match[mask]], anchors[mask])
            for target, match, mask in zip(targets, matches, positive, strict=True)
        ]
        either = positive | negative
        regression = F.smooth_l1_loss(codes[positive], cat(wanted), reduction="sum", beta=1 / 9)
        return {
            "loss_objectness": F.binary_cross_entropy_with_logits(logits[either], positive[either].to(logits.dtype)),
            "loss_rpn_box_reg": regression / int(either.sum()),
        }
