"""Neural style transfer: the network as PyTorch's example has it, and Gatys' method with torch.optim.LBFGS."""

import numpy as np
import pytest
from checks import assert_close
from models import compare_values, torch

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, CheckpointNotFoundError
from miniflow.vision import models
from miniflow.vision.models import style_transfer

DRAW = np.random.default_rng(0)


def example(state, x):
    """The forward pass of `TransformerNet`, from the state dict."""
    functional = torch.nn.functional

    def conv(x, name, stride=1, upsample=None):
        x = functional.interpolate(x, scale_factor=upsample, mode="nearest") if upsample else x
        weight, bias = (state[f"{name}.conv2d.{kind}"] for kind in ("weight", "bias"))
        return functional.conv2d(functional.pad(x, [weight.shape[-1] // 2] * 4, mode="reflect"), weight, bias, stride)

    def norm(x, name):
        return functional.instance_norm(x, weight=state[f"{name}.weight"], bias=state[f"{name}.bias"])

    for n, stride in ((1, 1), (2, 2), (3, 2)):
        x = norm(conv(x, f"conv{n}", stride), f"in{n}").relu()
    for n in range(1, 6):
        y = norm(conv(x, f"res{n}.conv1"), f"res{n}.in1").relu()
        x = x + norm(conv(y, f"res{n}.conv2"), f"res{n}.in2")
    for n in (1, 2):
        x = norm(conv(x, f"deconv{n}", upsample=2), f"in{n + 3}").relu()
    return conv(x, "deconv3").clamp(0, 255)


def test_network():
    flow.manual_seed(0)
    model = style_transfer.neural_style_transfer(style_model="candy")
    state = {name: torch.tensor(x.numpy()) for name, x in model.state_dict().items()}
    for name in state:
        state[name] += 0.2 * torch.tensor(DRAW.standard_normal(state[name].shape).astype(np.float32))
    state["deconv3.conv2d.bias"] += 100
    old = {**state, "in1.running_mean": torch.zeros(32), "res1.in2.running_var": torch.zeros(128)}
    assert len(state) == 62 and model.load_state_dict({name: x.numpy() for name, x in old.items()}) == ([], [])
    x = DRAW.uniform(0, 255, (2, 3, 16, 20)).astype(np.float32)
    want = example(state, torch.tensor(x))
    assert 0 < float(((want > 0) & (want < 255)).float().mean())
    compare_values(model(flow.tensor(x)), want)


@pytest.fixture
def features():
    """A small VGG of two groups, and the same in torch."""
    flow.manual_seed(0)
    ours = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(inplace=True),
        nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(inplace=True),
    )  # fmt: skip
    state = [torch.tensor(x.numpy()) for x in ours.state_dict().values()]

    def theirs(x):
        functional, found = torch.nn.functional, {}
        for n, name in enumerate(("relu1_1", "relu1_2", "relu2_1")):
            x = functional.max_pool2d(x, 2) if n == 2 else x
            found[name] = x = functional.conv2d(x, state[2 * n], state[2 * n + 1], padding=1).relu()
        return found

    return ours, theirs


def test_gatys_method(features):
    ours, theirs = features
    content, style = (DRAW.random((1, 3, *size)).astype(np.float32) for size in ((12, 10), (9, 14)))
    layers = {"content_layers": ["relu2_1"], "style_layers": ["relu1_1", "relu2_1"]}
    losses = []
    got = style_transfer.transfer_style(
        flow.tensor(content), flow.tensor(style), ours, steps=6, style_weight=1e4, callback=losses.append, **layers
    )

    def look(x):
        mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        return theirs((x - mean) / std)

    def gram(maps):
        return torch.einsum("nchw,ndhw->ncd", maps, maps) / maps[0].numel()

    image = torch.tensor(content, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [image], max_iter=6, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe"
    )
    expected = []

    def closure():
        optimizer.zero_grad()
        maps, wanted = look(image), look(torch.tensor(style))
        loss = (maps["relu2_1"] - look(torch.tensor(content))["relu2_1"]).square().mean()
        for name in layers["style_layers"]:
            loss = loss + 1e4 * (gram(maps[name]) - gram(wanted[name])).square().mean()
        loss.backward()
        expected.append(float(loss.detach()))
        return loss

    optimizer.step(closure)
    assert expected[-1] < 0.2 * expected[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-2)
    assert_close(got, image.detach().clamp(0, 1).numpy(), rtol=1e-3, atol=1e-3)
    assert all(p.grad is None for p in ours.parameters())


def test_what_is_refused(features):
    with pytest.raises(
        ArgumentError, match=r"vgg_features: got \['relu9_1'\]; expected some of \['relu1_1', 'relu1_2'"
    ):
        style_transfer.vgg_features(features[0], flow.zeros(1, 3, 8, 8), ["relu9_1"])
    with pytest.raises(ArgumentError, match="got style_model='monet'; expected one of .*'rain_princess'"):
        style_transfer.neural_style_transfer(style_model="monet")
    with pytest.raises(CheckpointNotFoundError, match=r"fast_neural_style's udnie, .*") as caught:
        models.create_model("neural_style_transfer", True, style_model="udnie")
    assert "neural_style_transfer_udnie.safetensors" in str(caught.value)
