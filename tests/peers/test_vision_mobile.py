"""Networks for small devices beside torchvision's and timm's."""

import pytest
from vision import check_graph_and_onnx, check_outputs, check_training


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small"])
def test_outputs(name):
    check_outputs(name, 64, num_classes=10)


@pytest.mark.parametrize("options", [{"width_mult": 0.35}, {"width_mult": 1.4, "round_nearest": 4}])
def test_widths_of_mobilenet_v2(options):
    check_outputs("mobilenet_v2", 64, num_classes=10, **options)


@pytest.mark.parametrize("name", ["mobilenet_v3_large", "mobilenet_v3_small"])
def test_tails_of_mobilenet_v3(name):
    """Backbones of segmentation are dilated, those of detection have fewer channels at the end."""
    check_outputs(name, 64, num_classes=10, dilated=True, reduced_tail=True)
    check_outputs(name, 64, num_classes=10, width_mult=0.75)


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_small"])
def test_training(name):
    check_training(name, 64, num_classes=10)


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_small"])
def test_graph_and_onnx(name, tmp_path):
    check_graph_and_onnx(name, 64, tmp_path, num_classes=10)
