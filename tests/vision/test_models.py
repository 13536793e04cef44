"""What networks for images refuse."""

import re

import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, ShapeError
from miniflow.vision import models


def test_a_transformer_has_positions_for_one_size_of_images():
    model = models.VisionTransformer(16, 8, num_layers=1, num_heads=1, hidden_dim=4, mlp_dim=4)
    message = "VisionTransformer: got x (1, 3, 24, 16); expected (N, 3, 16, 16)"
    with pytest.raises(ShapeError, match=re.escape(message)):
        model(flow.zeros(1, 3, 24, 16))
    with pytest.raises(
        ArgumentError, match=r"VisionTransformer: got image_size=20 and patch_size=8; expected an image_size"
    ):
        models.VisionTransformer(20, 8, num_layers=1, num_heads=1, hidden_dim=4, mlp_dim=4)
    with pytest.raises(ShapeError, match=re.escape("PatchEmbed: got x (1, 3, 24, 16)")):
        models.DeiT(16, 8, embed_dim=4, depth=1, num_heads=1)(flow.zeros(1, 3, 24, 16))


def test_what_resnets_refuse():
    with pytest.raises(ArgumentError, match="BasicBlock: got groups=1, base_width=64 and dilation=2; expected 1, 64"):
        models.resnet18(replace_stride_with_dilation=(False, False, True))
    with pytest.raises(ArgumentError, match="ResNet: got replace_stride_with_dilation=.True.; expected three truth"):
        models.resnet50(replace_stride_with_dilation=[True])
    with pytest.raises(ArgumentError, match="resnet_fpn_backbone: got 'resnet99', expected a ResNet"):
        models.detection.resnet_fpn_backbone("resnet99")
