"""Models of torchvision compute on miniflow what they compute on torch: one of each family, the smallest.

BatchNorm uses its running statistics, also where gradients are compared.
"""

import importlib

import pytest
from detectors import DETECTORS, samples, settle, step, with_operators
from models import compare, compare_gradients, compare_values, on_miniflow, state_of, torch

import miniflow as flow

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


@pytest.mark.parametrize("name", DETECTORS)
def test_detection(name, monkeypatch):
    images, targets = samples("keypoint" in name)

    def make(library):
        classes = 2 if "keypoint" in name else 3
        return library.models.get_model(name, weights_backbone=None, num_classes=classes, **DETECTORS[name])

    theirs = make(with_operators(monkeypatch))
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
