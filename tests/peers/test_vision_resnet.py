"""ResNets of miniflow.vision beside torchvision's."""

import pytest
from vision import check_graph_and_onnx, check_outputs, check_training

import miniflow as flow

NAMES = flow.vision.models.list_models("*resne[tx]*")


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("resne", "wide_"))])
def test_outputs(name):
    check_outputs(name, 64, num_classes=10)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2"])
def test_training(name):
    check_training(name, 64, num_classes=10)


def test_dilated():
    check_outputs("resnet50", 64, num_classes=10, replace_stride_with_dilation=[False, True, True])


@pytest.mark.parametrize("name", ["resnet18", "resnext50_32x4d"])
def test_graph_and_onnx(name, tmp_path):
    check_graph_and_onnx(name, 64, tmp_path, num_classes=10)
