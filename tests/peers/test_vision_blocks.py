"""SENets, Res2Nets and GhostNets of miniflow.vision beside timm's."""

import pytest
from vision import check_graph_and_onnx, check_names, check_outputs, check_training

import miniflow as flow

RUN = [  # the others have more blocks of the same kinds
    "se_resnet18", "se_resnet34", "se_resnet50", "se_resnext26_32x4d", "res2net50_14w_8s", "res2net50_26w_4s",
    "res2net50_48w_2s", "res2next50", "ghostnet_050", "ghostnet_100", "ghostnet_130",
]  # fmt: skip
NAMES = [name for family in ("se_*", "senet*", "res2*", "ghost*") for name in flow.vision.models.list_models(family)]
FEW = {"layers": (2, 1, 1, 1)}  # blocks


def theirs(name):
    """timm's name of it."""
    return f"legacy_{name.replace('se_', 'se')}" if name.startswith("se") else name


@pytest.mark.parametrize("name", RUN)
def test_outputs(name):
    check_outputs(name, 64, "timm", theirs(name), num_classes=10)


@pytest.mark.parametrize("name", ["senet154", "res2net50_26w_6s", "res2net50_26w_8s"])
def test_outputs_of_few_blocks(name):
    check_outputs(name, 64, "timm", theirs(name), num_classes=10, **FEW)


@pytest.mark.parametrize("name", sorted({*NAMES} - {*RUN}))
def test_names(name):
    check_names(name, "timm", theirs(name))


@pytest.mark.parametrize(
    ("name", "options"),
    [("se_resnet18", {}), ("se_resnext50_32x4d", FEW), ("res2net50_26w_4s", FEW), ("ghostnet_050", {})],
)
def test_training(name, options):
    check_training(name, 64, "timm", theirs(name), num_classes=10, **options)


@pytest.mark.parametrize(("name", "options"), [("se_resnet50", FEW), ("res2net50_26w_4s", FEW), ("ghostnet_050", {})])
def test_graph_and_onnx(name, options, tmp_path):
    check_graph_and_onnx(name, 64, tmp_path, num_classes=10, **options)
