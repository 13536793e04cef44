"""`python -m miniflow.vision`: it learns, draws, goes on after an interrupt, and fine-tunes on a folder of images."""

import importlib
import os
import signal

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.utils.data import Subset

program = importlib.import_module("miniflow.vision.__main__")


@pytest.fixture
def few_digits(monkeypatch, tmp_path):
    """48 digits to train on and 16 to test on."""
    whole = {split: flow.data.mnist(split, normalize=False) for split in ("train", "test")}
    counts = {"train": 48, "test": 16}
    monkeypatch.setattr(flow.data, "mnist", lambda split, normalize: Subset(whole[split], range(counts[split])))
    monkeypatch.chdir(tmp_path)


def interrupt_after(monkeypatch, count):
    """Let Ctrl-C come within that step."""
    calls, compute = [], program.loss_and_logits

    def counted(*args):
        calls.append(0)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGINT)
        return compute(*args)

    monkeypatch.setattr(program, "loss_and_logits", counted)


@pytest.mark.slow
@pytest.mark.parametrize("epochs, options", [(2, []), (1, ["--workers", "1", "--amp"])], ids=["alone", "workers, amp"])
def test_a_run_goes_on_after_ctrl_c_as_if_there_had_been_none(
    epochs, options, few_digits, monkeypatch, tmp_path, capsys
):
    common = ["--epochs", str(epochs), "--batch-size", "16", *options]
    assert program.main([*common, "--save", "whole.safetensors"]) == 0
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        assert program.main([*common, "--save", "parts.safetensors"]) == 130
    assert "interrupted; --resume goes on with parts.safetensors" in capsys.readouterr().err
    progress = flow.load("parts.safetensors")["progress"]
    assert (progress["epoch"], progress["step"]) == (0, 2) and signal.getsignal(signal.SIGINT) is not None
    assert program.main([*common, "--save", "parts.safetensors", "--resume"]) == 0
    whole, parts = (flow.load(f"{name}.safetensors") for name in ("whole", "parts"))
    assert whole["progress"]["losses"] == parts["progress"]["losses"] and len(parts["progress"]["losses"]) == 3 * epochs
    for name, value in whole["model"].items():
        np.testing.assert_array_equal(parts["model"][name].numpy(), value.numpy())
    assert "test accuracy" in capsys.readouterr().out
    for name in ("whole", "parts"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_ctrl_c_while_the_file_is_written_waits_for_it(few_digits, monkeypatch):
    save = program.flow.save

    def interrupted(state, path):
        os.kill(os.getpid(), signal.SIGINT)
        save(state, path)

    monkeypatch.setattr(program.flow, "save", interrupted)
    assert program.main(["--epochs", "2", "--batch-size", "16"]) == 130
    progress = flow.load("miniflow_vision.safetensors")["progress"]
    assert (progress["epoch"], progress["step"], len(progress["losses"])) == (1, 0, 3)


@pytest.mark.slow
def test_a_graph_computes_the_same_losses_and_goes_on_too(few_digits):
    losses = {}
    for options in ([], ["--graph"]):
        assert program.main(["--epochs", "1", "--batch-size", "16", *options]) == 0
        losses[bool(options)] = flow.load("miniflow_vision.safetensors")["progress"]["losses"]
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-4)
    assert program.main(["--epochs", "2", "--batch-size", "16", "--graph", "--resume"]) == 0
    assert flow.load("miniflow_vision.safetensors")["optimizer"]["state"][0]["step"] == 6


@pytest.mark.slow
def test_fine_tuning_on_a_folder(monkeypatch, tmp_path, capsys):
    """Red images and blue ones."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install miniflow-edu[vision]")
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name, channel in (("blue", 2), ("red", 0)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(20):
            pixels = draw.integers(0, 60, (40, 50, 3)).astype(np.uint8)
            pixels[..., channel] += 150
            images.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    options = ["--data", "images", "--model", "resnet18", "--size", "32", "--epochs", "1", "--batch-size", "12"]
    assert program.main(options) == 0
    assert "on 4 images held out from training" in capsys.readouterr().out
    state = flow.load("miniflow_vision.safetensors")
    assert state["model"]["fc.weight"].shape == (2, 512) and len(state["progress"]["losses"]) == 3
    assert program.main(["--data", "nowhere"]) == 1
    assert "error: ImageFolder: found no folder in nowhere" in capsys.readouterr().err


def test_a_model_that_does_not_classify_images(tmp_path, capsys):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(b"")
    with_data = ["--data", str(tmp_path), "--model", "lraspp_mobilenet_v3_large"]
    assert program.main([*with_data, "--save", str(tmp_path / "run.safetensors")]) == 1
    assert "error: got --model lraspp_mobilenet_v3_large; expected one that classifies" in capsys.readouterr().err


def test_activation_maps_are_those_of_the_last_layer():
    """Zhou et al., equation 2: the weights of the class, times the feature maps before the mean."""
    flow.manual_seed(0)
    model = program.digits().model.eval()
    images = flow.randn(3, 1, 28, 28)
    found = program.activation_maps(model, images)
    features, weight = model[:3](images).detach().numpy(), model[-1].weight.detach().numpy()
    chosen = model(images).argmax(dim=1).numpy()
    expected = np.einsum("nchw,nc->nhw", features, weight[chosen]).clip(0)
    assert found.shape == (3, 7, 7) and expected.any()
    assert_close(found, expected / expected.max(axis=(1, 2), keepdims=True), rtol=1e-3, atol=1e-4)


def test_what_cannot_be_written_or_read(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        program.parse(["--save", str(tmp_path / "nowhere" / "run.safetensors")])
    assert "its folder is not there" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert program.main(["--resume"]) == 1
    assert "miniflow_vision.safetensors" in capsys.readouterr().err


@pytest.mark.slow
def test_an_image_in_the_style_of_another(monkeypatch, tmp_path, capsys):
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install miniflow-edu[vision]")
    monkeypatch.chdir(tmp_path)
    layers = [flow.nn.Conv2d(3, 8, 3, padding=1), flow.nn.ReLU(), flow.nn.MaxPool2d(2)]
    layers += [layer for _ in range(4) for layer in (flow.nn.Conv2d(8, 8, 3, padding=1), flow.nn.ReLU())]
    names = {"content_layers": ["relu2_1"], "style_layers": ["relu1_1"], "style_weight": 1e8}
    small = type("VGG", (), {"features": flow.nn.Sequential(*layers)})
    transfer = program.models.transfer_style
    monkeypatch.setattr(program.models, "create_model", lambda name, *_: small if name == "vgg19" else None)
    monkeypatch.setattr(program.models, "transfer_style", lambda *args, **kw: transfer(*args, **{**kw, **names}))
    red, blue = np.zeros((2, 20, 30, 3), np.uint8)
    red[..., 0] = blue[..., 2] = 200
    images.fromarray(red).save("content.png")
    images.fromarray(blue).save("style.png")
    options = ["--style", "content.png", "style.png", "--size", "16", "--epochs", "1", "--save", "painted.safetensors"]
    assert program.main(options) == 0
    assert "picture: painted.png" in capsys.readouterr().out
    painted = np.asarray(images.open("painted.png")).astype(int)
    assert painted.shape == (16, 24, 3) and painted[..., 2].mean() > 100 + red[..., 2].mean()


@pytest.mark.parametrize("option", ["--epochs", "--batch-size", "--size"])
def test_counts_are_at_least_1(option, capsys):
    with pytest.raises(SystemExit) as ended:
        program.parse([option, "0"])
    assert ended.value.code == 2 and f"got {option} 0; expected at least 1" in capsys.readouterr().err
