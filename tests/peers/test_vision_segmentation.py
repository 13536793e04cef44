"""Segmentation of miniflow.vision beside torchvision's."""

import numpy as np
import pytest
from models import compare_values, needed, state_of, torch, vary
from vision import check_graph_and_onnx, check_outputs, check_training, pair

import miniflow as flow

SIZE = 33
OPTIONS = {"num_classes": 3, "weights_backbone": None}
NAMES = ["fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large"]
ONNX = {"fcn_resnet50": {}, "deeplabv3_mobilenet_v3_large": {"aux_loss": True}, "lraspp_mobilenet_v3_large": {}}


@pytest.mark.parametrize("name", NAMES)
def test_outputs(name):
    check_outputs(name, SIZE, aux_loss=True, **OPTIONS)


def test_lraspp():
    check_outputs("lraspp_mobilenet_v3_large", SIZE, **OPTIONS)


def test_each_rate_of_the_pyramid_reaches_into_the_map():
    other = needed("torchvision.models.segmentation.deeplabv3").DeepLabHead(8, 3).eval()
    vary(other)
    mine = flow.vision.models.segmentation.deeplabv3.DeepLabHead(8, 3).eval()
    mine.load_state_dict(state_of(other))
    x = np.random.default_rng(0).standard_normal((1, 8, 40, 38), np.float32)
    with torch.no_grad(), flow.no_grad():
        compare_values(mine(flow.tensor(x)), other(torch.tensor(x)))


def test_fcn_resnet101():
    check_outputs("fcn_resnet101", SIZE, **OPTIONS)


def test_names_of_deeplabv3_resnet101():
    with torch.device("meta"):
        other = needed("torchvision").models.get_model("deeplabv3_resnet101", aux_loss=True, **OPTIONS)
    mine = flow.vision.models.create_model("deeplabv3_resnet101", aux_loss=True, **OPTIONS)
    shapes = [{name: tuple(x.shape) for name, x in model.state_dict().items()} for model in (mine, other)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", ["deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"])
def test_training(name):
    aux_loss = {} if name.startswith("lraspp") else {"aux_loss": True}
    check_training(name, SIZE, **aux_loss, **OPTIONS)


@pytest.mark.parametrize("name", ONNX)
def test_graph_and_onnx(name, tmp_path):
    check_graph_and_onnx(name, SIZE, tmp_path, **ONNX[name], **OPTIONS)


def test_trained_weights_have_an_auxiliary_classifier(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIFLOW_CACHE", str(tmp_path))
    name, options = "deeplabv3_mobilenet_v3_large", {"num_classes": 3, "weights_backbone": None}
    _, other = pair(name, aux_loss=True, **options)
    (tmp_path / "models").mkdir()
    flow.save(state_of(other), tmp_path / "models" / f"{name}.safetensors")
    for make in (
        flow.vision.models.segmentation.deeplabv3_mobilenet_v3_large(True, **options),
        flow.vision.models.get_model(name, weights="DEFAULT", **options),
    ):
        state = make.state_dict()
        assert "aux_classifier.4.weight" in state
        for key, value in state_of(other).items():
            np.testing.assert_array_equal(state[key].numpy(), value.numpy())
