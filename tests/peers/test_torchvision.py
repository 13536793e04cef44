"""Models of torchvision compute on miniflow what they compute on torch: one of each family, the smallest.

BatchNorm uses its running statistics, also where gradients are compared. The detectors' samplers take all regions, or
they would draw them at random. Torch's side does without torchvision's compiled operators: `nms` is the loop below, and
`roi_align` torchvision's own in Python, with the zeros outside the image that the compiled one has.
"""

import importlib

import numpy as np
import pytest
from models import compare, compare_gradients, compare_values, needed, on_miniflow, state_of, torch

import miniflow as flow
from benchmarks.models import numbers

# of images of 32 x 32
CLASSIFIERS = (
    "vgg11_bn resnet18 resnext50_32x4d wide_resnet50_2 densenet121 mobilenet_v2 mobilenet_v3_small shufflenet_v2_x0_5 "
    "mnasnet0_5 efficientnet_b0 efficientnet_v2_s regnet_x_400mf regnet_y_400mf convnext_tiny swin_t swin_v2_t"
)
# name -> the size of the images, options
MODELS = {
    **{name: (32, {}) for name in CLASSIFIERS.split()},
    "alexnet": (64, {}),
    "squeezenet1_1": (64, {}),
    "googlenet": (32, {"init_weights": False}),
    "inception_v3": (75, {"init_weights": False}),
    "vit_b_32": (32, {"image_size": 32}),
}
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


@pytest.mark.parametrize("name", MODELS)
def test_classification(name):
    size, options = MODELS[name]
    compare("torchvision", lambda library: library.models.get_model(name, **options), size)


def test_maxvit():
    options = {
        "input_size": (64, 64), "stem_channels": 16, "partition_size": 2, "block_channels": [16, 32],
        "block_layers": [1, 1], "stochastic_depth_prob": 0.1, "head_dim": 8,
    }  # fmt: skip
    compare("torchvision", lambda library: library.models.MaxVit(**options), 64)


@pytest.mark.parametrize("name", ["fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"])
def test_segmentation(name):
    def make(library):
        model = library.models.get_model(name, weights_backbone=None, num_classes=3)
        results = model.forward
        model.forward = lambda images: results(images)["out"]
        return model

    compare("torchvision", make, 64)


@pytest.fixture
def peer(monkeypatch):
    """The library on torch, with operators."""
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


def suppressed(boxes, scores, iou_threshold):
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


def settle(model):
    """Random weights with which features neither vanish nor explode, so that scores are far from equal."""
    draw = np.random.default_rng(1)
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.tensor(numbers(name, tuple(value.shape), draw)))
            value *= 0.1 if name.endswith("bn3.weight") else 1


def step(tensor, model, images, targets):
    """What a detector finds, and after its gradients are computed the losses."""
    images = [tensor(x) for x in images]
    found = model.eval()(images)
    model.train()
    for module in model.modules():
        if "BatchNorm" in type(module).__name__:
            module.eval()
    losses = model(images, [{name: tensor(value) for name, value in target.items()} for target in targets])
    sum(losses.values()).backward()
    return [*found, losses]


@pytest.mark.parametrize("name", DETECTORS)
def test_detection(name, peer):
    draw = np.random.default_rng(0)
    images = [draw.uniform(size=(3, height, 64)).astype("float32") for height in (64, 56)]
    targets = [
        {
            "boxes": np.array([[3, 4, 30, 40], [10, 10, 50, 50]], "float32"),
            "labels": np.array([1, 2 if "keypoint" not in name else 1]),
            "masks": draw.integers(0, 2, (2, *image.shape[1:])).astype("uint8"),
            "keypoints": np.concatenate([draw.uniform(10, 30, (2, 17, 2)), np.ones((2, 17, 1))], 2).astype("float32"),
        }
        for image in images
    ]

    def make(library):
        classes = 2 if "keypoint" in name else 3
        return library.models.get_model(name, weights_backbone=None, num_classes=classes, **DETECTORS[name])

    theirs = make(peer)
    settle(theirs)
    want = step(torch.tensor, theirs, images, targets)
    with on_miniflow():
        model = make(importlib.import_module("torchvision"))
        model.load_state_dict(state_of(theirs))
        got = step(flow.tensor, model, images, targets)
    assert len(want[0]["boxes"]) >= 10
    for mine, other in zip(got, want, strict=True):
        assert mine.keys() == other.keys()
        for key in other:
            compare_values(mine[key], other[key], key)
    compare_gradients(model, theirs)
