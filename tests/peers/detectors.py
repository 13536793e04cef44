"""Detectors on torch as a peer: its operators, weights, images and targets, and a step of training.

The samplers take all regions, or they would draw them at random. Torch's side does without torchvision's compiled
operators: `nms` is the loop below, and `roi_align` torchvision's own in Python, with the zeros outside the image that
the compiled one has.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from models import needed, torch

from benchmarks.models import numbers

FEW = {"min_size": 64, "max_size": 64}
ALL_REGIONS = {
    **FEW, "rpn_batch_size_per_image": 10**6, "box_batch_size_per_image": 10**6, "box_score_thresh": 0.0,
    "rpn_pre_nms_top_n_train": 25, "rpn_pre_nms_top_n_test": 25, "box_detections_per_img": 10,
}  # fmt: skip
DETECTORS = {
    "ssd300_vgg16": {"score_thresh": 0.01, "detections_per_img": 10},
    "ssdlite320_mobilenet_v3_large": {"score_thresh": 0.01, "detections_per_img": 10},
    **dict.fromkeys(("retinanet_resnet50_fpn", "fcos_resnet50_fpn"), {**FEW, "score_thresh": 0.001}),
    **dict.fromkeys(("fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn"), ALL_REGIONS),
}


def with_operators(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torchvision on torch, with its operators in Python."""
    library = needed("torchvision")
    boxes, regions = (importlib.import_module(f"torchvision.ops.{name}") for name in ("boxes", "roi_align"))
    monkeypatch.setattr(boxes, "nms", suppressed)
    monkeypatch.setattr(regions, "_roi_align", getattr(regions._roi_align, "__wrapped__", regions._roi_align))
    everywhere = regions._bilinear_interpolate

    def with_zeros_outside(images, index, y, x, *masks):
        inside = [(at >= -1) & (at <= n) for at, n in zip((y, x), images.shape[2:], strict=True)]
        kept = inside[0][:, None, :, None, :, None] * inside[1][:, None, None, :, None, :]
        return everywhere(images, index, y, x, *masks) * kept

    monkeypatch.setattr(regions, "_bilinear_interpolate", with_zeros_outside)
    return library


def suppressed(boxes: Any, scores: Any, iou_threshold: float) -> Any:
    """`torchvision.ops.nms`."""
    boxes = boxes.detach()
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    left, kept = torch.argsort(scores, descending=True, stable=True), []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(int(best))
        sides = torch.minimum(boxes[best, 2:], boxes[left, 2:]) - torch.maximum(boxes[best, :2], boxes[left, :2])
        both = sides.clamp(min=0).prod(1)
        left = left[~(both / (area[best] + area[left] - both) > iou_threshold)]
    return torch.tensor(kept, dtype=torch.int64)


def settle(model: Any) -> None:
    """Random weights with which features neither vanish nor explode, so that scores are far from equal."""
    draw = np.random.default_rng(1)
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.tensor(numbers(name, tuple(value.shape), draw)))
            value *= 0.1 if name.endswith("bn3.weight") else 1


def step(tensor: Callable, model: Any, images: list, targets: list) -> list[dict]:
    """What a detector finds, and after its gradients are computed the losses."""
    found, losses = both(tensor, model, images, targets)
    sum(losses.values()).backward()
    return [*found, losses]


def both(tensor: Callable, model: Any, images: list, targets: list) -> tuple[list[dict], dict]:
    """What a detector finds, and the losses."""
    images = [tensor(x) for x in images]
    found = model.eval()(images)
    model.train()
    for module in model.modules():
        if "BatchNorm" in type(module).__name__:
            module.eval()
    return found, model(images, [{name: tensor(value) for name, value in target.items()} for target in targets])


def samples(keypoints: bool = False) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]]]:
    """Two images of different heights, and what is in them."""
    draw = np.random.default_rng(0)
    images = [draw.uniform(size=(3, height, 64)).astype("float32") for height in (64, 56)]
    targets = [
        {
            "boxes": np.array([[3, 4, 30, 40], [10, 10, 50, 50]], "float32"),
            "labels": np.array([1, 1 if keypoints else 2]),
            "masks": draw.integers(0, 2, (2, *image.shape[1:])).astype("uint8"),
            "keypoints": np.concatenate([draw.uniform(10, 30, (2, 17, 2)), np.ones((2, 17, 1))], 2).astype("float32"),
        }
        for image in images
    ]
    return images, targets
