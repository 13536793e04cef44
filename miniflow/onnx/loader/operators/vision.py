"""Operators of computer vision, and losses."""

from __future__ import annotations

import numpy as np

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.errors import OnnxError
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.registry import Array, Ints, operator
from miniflow.tensor import Tensor

MODES = {"linear": "bilinear", "cubic": "bicubic"}


operator("GridSample")(
    lambda x, grid, *, align_corners=0, mode="linear", padding_mode="zeros": F.grid_sample(
        x, grid, MODES.get(mode, mode), padding_mode, bool(align_corners)
    )
)
operator("NegativeLogLikelihoodLoss")(
    lambda input, target, weight=None, *, ignore_index=-100, reduction="mean": F.nll_loss(
        input, target.long(), weight, ignore_index=ignore_index, reduction=reduction
    )
)


@operator("RoiAlign")
def roi_align(
    x, rois, batch_indices, *, node: Node, coordinate_transformation_mode: str = "", mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    if mode != "avg":
        raise OnnxError(f"got mode={mode!r}; expected 'avg'")
    rois = flow.cat([batch_indices[:, None].to(rois.dtype), rois], 1)
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    aligned = (coordinate_transformation_mode or default) == "half_pixel"
    return flow.roi_align(x, rois, spatial_scale, output_height, output_width, sampling_ratio, aligned)


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Array, scores: Array, max_output_boxes_per_class: Ints = (0,), iou_threshold: Array = 0.0,
    score_threshold: Array = -np.inf, *, center_point_box: int = 0,
) -> np.ndarray:  # fmt: skip
    """Rows of (image, class, box)."""
    first, last = boxes[..., :2], boxes[..., 2:]
    if center_point_box:
        first, last = first - last / 2, first + last / 2
    boxes = flow.tensor(np.concatenate([np.minimum(first, last), np.maximum(first, last)], -1))
    threshold = np.ravel(iou_threshold)[0].item()
    found = [np.zeros((0, 3), np.int64)]
    for image, kind in np.ndindex(scores.shape[:2]):
        chosen = np.flatnonzero(scores[image, kind] > score_threshold)
        kept = flow.nms(boxes[image][chosen], flow.tensor(scores[image, kind, chosen]), threshold).numpy()
        found += [np.array([(image, kind, chosen[i])]) for i in kept[: max_output_boxes_per_class[0]]]
    return np.concatenate(found)
