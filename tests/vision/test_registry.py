"""Models by name, and the files of their weights."""

import re

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, CheckpointError, CheckpointNotFoundError
from miniflow.vision import models


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIFLOW_CACHE", str(tmp_path))
    return tmp_path


def test_an_unknown_name_is_refused_with_what_may_be_meant():
    with pytest.raises(ArgumentError, match=re.escape("Unknown model (resnet-18): did you mean resnet18")):
        models.create_model("resnet-18")
    with pytest.raises(ArgumentError, match=r"Unknown model \(3\): list_models\(\) has all names"):
        models.create_model(3)


def test_names():
    assert models.list_models("resnet?8") == ["resnet18"]
    assert (
        models.list_models("wide") == ["wide_resnet101_2", "wide_resnet50_2"] == models.ModelCreator.model_list("wide")
    )
    assert models.ModelCreator.model_table("resnet18").split() == "model network weights resnet18 ResNet -".split()
    assert models.ModelCreator.model_table(pretrained=True).split() == ["model", "network", "weights"]


@pytest.mark.parametrize("make", [
    lambda **options: models.resnet18(**options),
    lambda **options: models.create_model("resnet18", **options),
])  # fmt: skip
def test_trained_weights(cache, make):
    with pytest.raises(
        CheckpointNotFoundError, match=r"no trained weights at .*/models/resnet18.safetensors; put https:"
    ):
        make(pretrained=True)
    source = models.resnet18(num_classes=4)
    (cache / "models").mkdir()
    flow.save(source.state_dict(), cache / "models" / "resnet18.safetensors")
    state = make(pretrained=True, num_classes=4).state_dict()
    for name, value in source.state_dict().items():
        np.testing.assert_array_equal(state[name].numpy(), value.numpy())
    assert "resnet18.safetensors" in models.ModelCreator.model_table(pretrained=True)
    assert models.get_model("resnet18", weights="DEFAULT", num_classes=4).fc.weight.shape == (4, 512)


def test_weights_without_a_file_on_the_hub(cache):
    with pytest.raises(CheckpointNotFoundError, match="the state dict of torchvision's resnext101_64x4d, written by"):
        models.resnext101_64x4d._published(download=True)
    with pytest.raises(CheckpointNotFoundError, match="the state dict of timm's legacy_senet154, written by"):
        models.senet154._published(download=False)
    with pytest.raises(CheckpointNotFoundError, match="the state dict of timm's ghostnet_050, written by"):
        models.ghostnet_050._published(download=True)


def test_weights_for_other_classes_leave_the_last_layer(tmp_path):
    source, path = models.resnet18(num_classes=4), tmp_path / "weights.safetensors"
    flow.save(source.state_dict(), path)
    with pytest.warns(UserWarning, match="is for other classes: not loaded are fc.weight, fc.bias"):
        model = models.create_model("resnet18", checkpoint=path, num_classes=3)
    np.testing.assert_array_equal(model.conv1.weight.numpy(), source.conv1.weight.numpy())
    assert model.fc.weight.shape == (3, 512)
    with pytest.raises(CheckpointError, match="layer1.0.conv1.weight: of shape"):
        models.create_model("resnet50", checkpoint=path)


@pytest.mark.slow
@pytest.mark.parametrize("name, last", [("resnet18", "fc"), ("efficientnet_b0", "classifier.1")])
def test_without_classes_there_are_features(name, last, tmp_path):
    source, path, inputs = models.create_model(name, num_classes=4).eval(), tmp_path / "weights.safetensors", []
    flow.save(source.state_dict(), path)
    source.get_submodule(last).register_forward_hook(lambda _, args, __: inputs.append(args[0]))
    images = flow.rand(2, 3, 32, 32)
    source(images)
    with pytest.warns(UserWarning, match=f"not loaded are {last}.weight, {last}.bias"):
        model = models.create_model(name, checkpoint=path, num_classes=0).eval()
    np.testing.assert_array_equal(model(images).detach().numpy(), inputs[0].detach().numpy())


def test_squeezenet_without_classes():
    model = models.create_model("squeezenet1_1", num_classes=0).eval()
    images = flow.rand(2, 3, 32, 32)
    expected = model.features(images).mean((2, 3))
    assert model(images).shape == (2, 512)
    np.testing.assert_allclose(model(images).detach().numpy(), expected.detach().numpy(), rtol=1e-5)


def test_models_of_ones_own(monkeypatch):
    monkeypatch.setattr(models.registry, "MODELS", dict(models.registry.MODELS))

    @models.ModelCreator.register_model
    def tiny(pretrained=False, progress=True, width=2):
        return flow.nn.Linear(width, 1)

    assert models.create_model("tiny", width=5).weight.shape == (1, 5) and models.list_models("tiny") == ["tiny"]
