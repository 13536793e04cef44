"""SENets, Res2Nets and GhostNets of miniflow.vision beside timm's."""

import pytest
from vision import check_graph_and_onnx, check_names, check_outputs, check_training

SMALL = [
    "se_resnet18", "se_resnet34", "se_resnet50", "se_resnet101", "se_resnext26_32x4d", "se_resnext50_32x4d",
    "se_resnext101_32x4d", "res2net50_14w_8s", "res2net50_26w_4s", "res2net50_26w_6s", "res2net50_26w_8s",
    "res2net50_48w_2s", "res2net101_26w_4s", "res2next50", "ghostnet_050", "ghostnet_100", "ghostnet_130",
]  # fmt: skip


def theirs(name):
    return f"legacy_{name.replace('se_', 'se')}" if name.startswith("se") else name


@pytest.mark.parametrize("name", SMALL)
def test_outputs(name):
    check_outputs(name, 64, "timm", theirs(name), num_classes=10)


@pytest.mark.parametrize("name", ["se_resnet152", "senet154"])
def test_names(name):
    check_names(name, "timm", theirs(name))


def test_senet154_of_few_layers():
    check_outputs("senet154", 64, "timm", "legacy_senet154", num_classes=10, layers=(1, 1, 1, 1))


@pytest.mark.parametrize(
    ("name", "size"), [("se_resnet18", 64), ("se_resnext26_32x4d", 64), ("res2net50_26w_4s", 64), ("ghostnet_050", 64)]
)
def test_training(name, size):
    check_training(name, size, "timm", theirs(name), num_classes=10)


@pytest.mark.parametrize("name", ["se_resnet18", "res2net50_14w_8s", "ghostnet_050"])
def test_graph_and_onnx(name, tmp_path):
    check_graph_and_onnx(name, 64, tmp_path, num_classes=10)
