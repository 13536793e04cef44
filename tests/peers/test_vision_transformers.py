"""Transformers, MLPs and ConvNeXts of miniflow.vision beside torchvision's and timm's."""

import numpy as np
import pytest
from compare import count_comparison
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

RUN = {  # and the size of images; the others have more blocks of the same kinds, or wider ones
    "swin_t": 64, "swin_v2_t": 64, "convnext_tiny": 32, "deit_tiny_patch16_224": 48, "deit_small_patch16_224": 32,
    "deit_tiny_distilled_patch16_224": 32, "pvt_v2_b0": 96, "pvt_v2_b1": 64, "mixer_s32_224": 64, "mixer_s16_224": 32,
    "resmlp_12_224": 32, "gmlp_ti16_224": 32,
}  # fmt: skip
FEW = {  # blocks, where there is an option for that
    "deit_tiny_distilled_patch16_224": {"depth": 2}, "pvt_v2_b0": {"depths": (1, 2, 1, 1)}, "mixer_s32_224": {},
    "resmlp_12_224": {}, "gmlp_ti16_224": {},
}  # fmt: skip
FAMILIES = ("vit_*", "deit*", "swin*", "pvt*", "convnext*", "mixer*", "resmlp*", "gmlp*")
NAMES = [name for family in FAMILIES for name in flow.vision.models.list_models(family)]


def options(name):
    """Of the model: few classes, and small images where it has to be told."""
    library, size = library_of(name), RUN[name]
    sized = {"img_size": size} if library == "timm" and not name.startswith("pvt") else {}
    return {"size": size, "library": library, "num_classes": 10, **sized}


def library_of(name):
    return "torchvision" if name.startswith(("vit", "swin", "convnext")) else "timm"


def small(name):
    """A small network of the class, ours and torchvision's, with windows of 3 x 3 in images of 10, 5 and 3 patches."""
    ours, theirs = flow.vision.models, needed("torchvision").models
    vit = {
        "image_size": 40, "patch_size": 8, "num_layers": 2, "num_heads": 3, "hidden_dim": 48, "mlp_dim": 64,
        "representation_size": 20,
    }  # fmt: skip
    window, depths, heads = [3, 3], [2, 2, 1], [2, 4, 8]
    mine, peer = ({
        "block": module.SwinTransformerBlockV2,
        "downsample_layer": module.PatchMergingV2,
    } for module in (ours.swin_transformer, theirs.swin_transformer))  # fmt: skip
    stages = [theirs.convnext.CNBlockConfig(16, 24, 2), theirs.convnext.CNBlockConfig(24, None, 1)]
    return equal(*{
        "vit": lambda: (ours.VisionTransformer(**vit), theirs.VisionTransformer(**vit)),
        "swin": lambda: (
            ours.SwinTransformer(16, depths, heads, 3), theirs.SwinTransformer([4, 4], 16, depths, heads, window),
        ),
        "swin_v2": lambda: (
            ours.SwinTransformer(16, depths, heads, 3, **mine),
            theirs.SwinTransformer([4, 4], 16, depths, heads, window, **peer),
        ),
        "convnext": lambda: (ours.ConvNeXt((16, 24), (2, 1)), theirs.ConvNeXt(stages)),
    }[name]())  # fmt: skip


@pytest.mark.parametrize("name", ["vit", "swin", "swin_v2", "convnext"])
def test_small_networks(name, tmp_path):
    compare_outputs(*small(name), 40)
    compare_training(*small(name), 40, batch=2)
    compare_graph_and_onnx(small(name)[0], 40, tmp_path)


def test_cosines_are_multiplied_by_100_at_most():
    mine, theirs = small("swin_v2")
    for model in (mine, theirs):
        for name, parameter in model.named_parameters():
            if name.endswith("logit_scale"):
                parameter.data.fill_(5.5)  # a logarithm
    compare_outputs(mine, theirs, 40)


@pytest.mark.parametrize("name", RUN)
def test_outputs(name):
    check_outputs(name, **options(name))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in RUN])
def test_names(name):
    check_names(name, library_of(name))


@pytest.mark.parametrize("name", FEW)
def test_training(name):
    check_training(name, batch=2, **options(name), **FEW[name])


def test_distilled_training():
    mine, theirs = pair("deit_tiny_distilled_patch16_224", "timm", img_size=32, depth=2, num_classes=10)
    images = np.random.default_rng(1).standard_normal((2, 3, 32, 32), np.float32)
    mine.distilled_training = True
    theirs.set_distilled_training(True)
    for got, want in zip(mine.train()(flow.tensor(images)), theirs.train()(torch.tensor(images)), strict=True):
        compare_values(got, want)


@pytest.mark.parametrize(
    ("name", "rate"),
    [("swin_t", None), ("convnext_tiny", None), ("convnext_tiny", "stochastic_depth_prob"),
     ("pvt_v2_b0", "drop_path_rate"), ("deit_tiny_patch16_224", "drop_path_rate"), ("resmlp_12_224", "drop_path_rate")],
)  # fmt: skip
def test_rates_of_dropped_branches(name, rate):
    with undrawn():
        mine, theirs = pair(name, library_of(name), **({rate: 0.35} if rate else {}))
    assert rates(theirs)[-1] == pytest.approx(0.35 if rate else {"s": 0.2, "c": 0.1}[name[0]])
    np.testing.assert_allclose(rates(mine), rates(theirs), rtol=1e-5)
    count_comparison()


def rates(model):
    """The probabilities with which a model drops branches, without repetition."""
    names = {"StochasticDepth": "p", "DropPath": "drop_prob"}
    found = (getattr(module, names.get(type(module).__name__, ""), 0) for module in model.modules())
    return sorted({round(rate, 6) for rate in found} - {0})


@pytest.mark.parametrize(
    "name", ["swin_v2_t", "deit_tiny_distilled_patch16_224", "pvt_v2_b0", "gmlp_ti16_224", "resmlp_12_224"]
)
def test_first_weights(name):
    torch.manual_seed(0)  # of some seeds timm draws a number of -2 among those of a deviation of 0.02
    flow.manual_seed(0)
    check_first_weights(name, library_of(name), num_classes=10)


@pytest.mark.parametrize("name", ["swin_t", "swin_v2_t"])
def test_positions_in_windows(name):
    with undrawn():
        mine, theirs = flow.vision.models.create_model(name), needed("torchvision").models.get_model(name)
    want = dict(theirs.named_buffers())
    for key, got in mine.named_buffers():
        compare_values(got.double(), want.pop(key).double(), key)
    assert not want


@pytest.mark.parametrize("name", FEW)
def test_graph_and_onnx(name, tmp_path):
    given = {key: value for key, value in options(name).items() if key != "library"}
    check_graph_and_onnx(name, tmp_path=tmp_path, **given, **FEW[name])
