"""Convolutional networks up to 2018 beside torchvision's."""

import numpy as np
import pytest
from models import compare_values, needed, torch
from vision import (
    check_graph_and_onnx,
    check_names,
    check_outputs,
    check_training,
    compare_outputs,
    compare_training,
    equal,
    pair,
    undrawn,
)

import miniflow as flow

VGG = flow.vision.models.list_models("vgg")
INIT = {"init_weights": False, "num_classes": 10}


def vgg(name):
    """Ours and torchvision's with the same weights, with one linear layer at the end: the usual three are too large."""
    with undrawn(), torch.device("meta"):
        mine, other = flow.vision.models.create_model(name), needed("torchvision").models.get_model(name)
    mine.classifier, other.classifier = flow.nn.Linear(512 * 7 * 7, 10), torch.nn.Linear(512 * 7 * 7, 10)
    return equal(mine, other.to_empty(device="cpu"))


@pytest.mark.parametrize("name", ["squeezenet1_0", "squeezenet1_1", *flow.vision.models.list_models("densenet")])
def test_outputs(name):
    check_outputs(name, 64, num_classes=10)


def test_alexnet():
    check_outputs("alexnet", 64, num_classes=10)


@pytest.mark.parametrize("name", VGG)
def test_vgg(name):
    check_names(name)
    compare_outputs(*vgg(name), 64)


@pytest.mark.parametrize("options", [{"transform_input": True}, {"aux_logits": False}])
def test_googlenet_and_inception(options):
    check_outputs("googlenet", 64, **INIT, **options)
    check_outputs("inception_v3", 75, **INIT, **options)


def test_auxiliary_classifiers_of_inception():
    """They see 17 x 17 pixels of images of 299 x 299."""
    mine, other = pair("inception_v3", **INIT)
    x = np.random.default_rng(3).standard_normal((2, 768, 17, 17), np.float32)
    with torch.no_grad(), flow.no_grad():
        compare_values(mine.AuxLogits(flow.tensor(x)), other.AuxLogits(torch.tensor(x)))


def test_training_of_squeezenet():
    check_training("squeezenet1_1", 64, num_classes=10)


@pytest.mark.parametrize("memory_efficient", [False, True])
def test_training_of_densenet(memory_efficient):
    sizes = {"growth_rate": 8, "block_config": (2, 3, 1, 2), "num_init_features": 16, "num_classes": 10}
    networks = (vision.models.DenseNet for vision in (flow.vision, needed("torchvision")))
    compare_training(*equal(*(make(**sizes, memory_efficient=memory_efficient) for make in networks)), 64)


def test_training_of_googlenet():
    check_training("googlenet", 64, **INIT)


def test_training_of_inception():
    check_training("inception_v3", 75, **INIT, aux_logits=False)


def test_training_of_vgg():
    compare_training(*vgg("vgg11_bn"), 64)


def test_training_of_alexnet():
    mine, other = pair("alexnet", num_classes=10)
    mine.classifier, other.classifier = flow.nn.Linear(256 * 6 * 6, 10), torch.nn.Linear(256 * 6 * 6, 10)
    compare_training(*equal(mine, other), 64)


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("alexnet", 64, {"num_classes": 10}),
        ("squeezenet1_1", 64, {"num_classes": 10}),
        ("googlenet", 64, {**INIT, "transform_input": True}),
        ("inception_v3", 75, INIT),
        ("densenet121", 32, {"num_classes": 10}),
    ],
)
def test_graph_and_onnx(name, size, options, tmp_path):
    check_graph_and_onnx(name, size, tmp_path, **options)
