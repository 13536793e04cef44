"""Convolutional networks up to 2018 beside torchvision's."""

import numpy as np
import pytest
from models import compare_values, needed, torch
from vision import (
    check_first_weights,
    check_graph_and_onnx,
    check_names,
    check_outputs,
    check_training,
    compare_graph_and_onnx,
    compare_outputs,
    compare_training,
    equal,
    pair,
    undrawn,
)

import miniflow as flow
from miniflow.vision.models.googlenet import renormalize

INIT = {"init_weights": False, "num_classes": 10}
SMALL_DENSENET = {"growth_rate": 8, "block_config": (2, 3, 1, 2), "num_init_features": 16, "num_classes": 10}


def small(name, features):
    """Ours and torchvision's with the same weights, with one linear layer at the end: the usual three are too large."""
    with undrawn():
        mine, other = flow.vision.models.create_model(name), needed("torchvision").models.get_model(name)
        mine.classifier, other.classifier = flow.nn.Linear(features, 10), torch.nn.Linear(features, 10)
    return equal(mine, other)


@pytest.mark.parametrize("name", ["squeezenet1_0", "squeezenet1_1", *flow.vision.models.list_models("densenet")])
def test_outputs(name):
    check_outputs(name, 64 if name.startswith("squeezenet") else 32, num_classes=10)


def test_alexnet():
    check_outputs("alexnet", 63, num_classes=10)


@pytest.mark.parametrize("name", flow.vision.models.list_models("vgg"))
def test_names_of_vgg(name):
    check_names(name)


@pytest.mark.parametrize("name", ["vgg11_bn", "vgg13"])
def test_vgg(name):
    compare_outputs(*small(name, 512 * 7 * 7), 64)


def test_googlenet_and_inception():
    check_outputs("googlenet", 64, **INIT, aux_logits=False)
    check_outputs("inception_v3", 75, **INIT, transform_input=True)


def test_images_of_published_weights():
    """Normalized otherwise than those of the other networks."""
    other = needed("torchvision").models.googlenet(**INIT, transform_input=True)
    images = np.random.default_rng(0).standard_normal((2, 3, 4, 5), np.float32)
    compare_values(renormalize(flow.tensor(images)), other._transform_input(torch.tensor(images)))


def test_auxiliary_classifier_of_inception():
    """It sees 17 x 17 pixels of images of 299 x 299; its outputs come after the logits."""
    mine, other = pair("inception_v3", **INIT)
    x = np.random.default_rng(3).standard_normal((2, 768, 17, 17), np.float32)
    with torch.no_grad(), flow.no_grad():
        compare_values(mine.AuxLogits(flow.tensor(x)), other.AuxLogits(torch.tensor(x)))
    mine.train().AuxLogits = flow.nn.Identity()
    outputs = mine(flow.zeros(2, 3, 96, 96))
    assert type(outputs).__name__ == "InceptionOutputs" and outputs._fields == ("logits", "aux_logits")
    assert outputs.logits.shape == (2, 10) and outputs.aux_logits.shape == (2, 768, 4, 4)


def test_published_weights_of_googlenet(tmp_path, monkeypatch):
    """They were trained with images normalized otherwise, and have no auxiliary classifiers."""
    monkeypatch.setenv("MINIFLOW_CACHE", str(tmp_path))
    mine, other = pair("googlenet", **INIT, transform_input=True, aux_logits=False)
    (tmp_path / "models").mkdir()
    flow.save(mine.state_dict(), tmp_path / "models" / "googlenet.safetensors")
    compare_outputs(flow.vision.models.googlenet(pretrained=True, **INIT).eval(), other, 32)


@pytest.mark.parametrize("name", ["squeezenet1_1", "densenet121"])
def test_first_weights(name):
    check_first_weights(name, num_classes=10)


def test_first_weights_of_googlenet():
    check_first_weights("googlenet", num_classes=10, init_weights=True)


def test_training_of_squeezenet():
    check_training("squeezenet1_1", 32, num_classes=10)


@pytest.mark.parametrize("memory_efficient", [False, True])
def test_training_of_densenet(memory_efficient):
    networks = (vision.models.DenseNet for vision in (flow.vision, needed("torchvision")))
    compare_training(*equal(*(make(**SMALL_DENSENET, memory_efficient=memory_efficient) for make in networks)), 32)


def test_training_of_googlenet():
    check_training("googlenet", 32, **INIT)


def test_training_of_inception():
    check_training("inception_v3", 75, **INIT, aux_logits=False, batch=3)


@pytest.mark.parametrize(("name", "size", "features"), [("alexnet", 63, 256 * 6 * 6), ("vgg11_bn", 32, 512 * 7 * 7)])
def test_training_of_alexnet_and_vgg(name, size, features):
    compare_training(*small(name, features), size)


@pytest.mark.parametrize(("name", "size", "options"), [
    ("squeezenet1_1", 32, {"num_classes": 10}),
    ("googlenet", 32, {**INIT, "transform_input": True}),
    ("inception_v3", 75, INIT),
])  # fmt: skip
def test_graph_and_onnx(name, size, options, tmp_path):
    check_graph_and_onnx(name, size, tmp_path, **options)


@pytest.mark.parametrize(("name", "size", "features"), [("alexnet", 63, 256 * 6 * 6), ("vgg11_bn", 32, 512 * 7 * 7)])
def test_graph_and_onnx_of_alexnet_and_vgg(name, size, features, tmp_path):
    compare_graph_and_onnx(small(name, features)[0], size, tmp_path)


def test_graph_and_onnx_of_densenet(tmp_path):
    compare_graph_and_onnx(flow.vision.models.DenseNet(**SMALL_DENSENET), 32, tmp_path)
