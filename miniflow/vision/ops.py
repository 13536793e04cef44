"""Operators and layers of detection under the names of `torchvision.ops`."""

from miniflow.vision.layers.attention import SqueezeExcitation
from miniflow.vision.layers.blocks import MLP, Conv2dNormActivation, FeaturePyramidNetwork, FrozenBatchNorm2d, Permute
from miniflow.vision.layers.boxes import (
    MultiScaleRoIAlign,
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    generalized_box_iou,
    generalized_box_iou_loss,
    nms,
    remove_small_boxes,
    roi_align,
    sigmoid_focal_loss,
)
from miniflow.vision.layers.regularization import DropBlock2d, StochasticDepth, drop_block2d, stochastic_depth

__all__ = [
    "Conv2dNormActivation", "DropBlock2d", "FeaturePyramidNetwork", "FrozenBatchNorm2d", "MLP", "MultiScaleRoIAlign",
    "Permute", "SqueezeExcitation", "StochasticDepth", "batched_nms", "box_area", "box_convert", "box_iou",
    "clip_boxes_to_image", "drop_block2d", "generalized_box_iou", "generalized_box_iou_loss", "nms",
    "remove_small_boxes", "roi_align", "sigmoid_focal_loss", "stochastic_depth",
]  # fmt: skip
