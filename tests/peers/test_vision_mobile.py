"""Networks for small devices, and those found by search, beside torchvision's and timm's."""

import pytest
from models import needed, torch
from vision import (
    check_first_weights,
    check_graph_and_onnx,
    check_names,
    check_outputs,
    check_training,
    compare_training,
    equal,
)

import miniflow as flow

MNASNET, SHUFFLENET = (flow.vision.models.list_models(family) for family in ("mnasnet", "shufflenet"))
LARGE = ["efficientnet_b7", "efficientnet_v2_l"]
LARGE_REGNETS = ["regnet_x_32gf", "regnet_y_16gf", "regnet_y_32gf", "regnet_y_128gf"]
FAMILIES = [
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mnasnet0_5",
    "shufflenet_v2_x0_5",
    "efficientnet_b0",
    "regnet_y_400mf",
]


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", *MNASNET, *SHUFFLENET])
def test_outputs(name):
    check_outputs(name, 32, num_classes=10)


@pytest.mark.parametrize("name", ["mobilenetv1_100", "mobilenetv1_125"])
def test_mobilenet_v1(name):
    check_outputs(name, 32, "timm", num_classes=10)


@pytest.mark.parametrize("name", sorted({*flow.vision.models.list_models("efficientnet_")} - {*LARGE}))
def test_efficientnet(name):
    check_outputs(name, 32, num_classes=10)


@pytest.mark.parametrize("name", sorted({*flow.vision.models.list_models("regnet_")} - {*LARGE_REGNETS}))
def test_regnet(name):
    check_outputs(name, 32, num_classes=10)


@pytest.mark.parametrize("name", LARGE)
def test_names(name):
    check_names(name)


@pytest.mark.parametrize("name", LARGE_REGNETS)
def test_names_of_regnets(name, monkeypatch):
    parameters = needed("torchvision").models.regnet.BlockParams
    compute = parameters.from_init_params

    def widths(*arguments, **options):
        with torch.device("cpu"):  # not "meta": it computes with tensors
            return compute(*arguments, **options)

    monkeypatch.setattr(parameters, "from_init_params", widths)
    check_names(name)


@pytest.mark.parametrize("options", [{"width_mult": 0.35}, {"width_mult": 1.4, "round_nearest": 4}])
def test_widths_of_mobilenet_v2(options):
    check_outputs("mobilenet_v2", 64, num_classes=10, **options)


@pytest.mark.parametrize("name", ["mobilenet_v3_large", "mobilenet_v3_small"])
def test_tails_of_mobilenet_v3(name):
    """Backbones of segmentation are dilated, those of detection have fewer channels at the end."""
    check_outputs(name, 64, num_classes=10, dilated=True, reduced_tail=True)
    check_outputs(name, 32, num_classes=10, width_mult=0.75)


@pytest.mark.parametrize("name", ["mobilenet_v2", "mnasnet0_5", "efficientnet_b0", "regnet_x_400mf"])
def test_first_weights(name):
    check_first_weights(name, num_classes=100)


def test_first_weights_of_mobilenet_v1():
    check_first_weights("mobilenetv1_100", "timm", num_classes=100)


@pytest.mark.parametrize("name", FAMILIES)
def test_training(name):
    check_training(name, 32, num_classes=10)


def test_training_of_efficientnet_v2():
    """Of two stages with one convolution for two, and one stage as in the first version."""
    theirs = needed("torchvision").models.efficientnet
    fused, usual = theirs.FusedMBConvConfig, theirs.MBConvConfig
    stages = [fused(1, 3, 1, 24, 24, 1), fused(4, 3, 2, 24, 40, 2), usual(4, 3, 2, 40, 64, 2)]
    other = theirs.EfficientNet(stages, dropout=0.2, num_classes=10, last_channel=128)
    table = [(1, 3, 1, 24, 1), (4, 3, 2, 40, 2), (4, 3, 2, 64, 2)]
    mine = flow.vision.models.EfficientNet(table, 24, fused=2, num_classes=10, last_channel=128)
    compare_training(*equal(mine, other), 32)


def test_training_of_mobilenet_v1():
    check_training("mobilenetv1_100", 32, "timm", num_classes=10)


@pytest.mark.parametrize("name", ["mobilenetv1_100", *FAMILIES])
def test_graph_and_onnx(name, tmp_path):
    check_graph_and_onnx(name, 32, tmp_path, num_classes=10)
