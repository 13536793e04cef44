"""Layers of miniflow.vision compute, from the same weights, what those of torchvision and timm compute."""

import numpy as np
import pytest
from checks import assert_close
from models import compare_gradients, compare_values, needed, state_of, torch, vary

import miniflow as flow
from miniflow.vision import layers


def both(ours, theirs, *inputs, train=False):
    """Give both the same weights, and compare outputs, and the gradients of inputs and weights."""
    torch.manual_seed(0)
    vary(theirs)
    ours.load_state_dict(state_of(theirs))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours, theirs = ours.train(train), theirs.train(train)
    mine = [flow.tensor(x, requires_grad=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x for x in inputs]
    peer = [torch.tensor(x, requires_grad=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x for x in inputs]
    got, want = ours(*mine), theirs(*peer)
    compare_values(got, want)
    cotangent = np.random.default_rng(1).standard_normal(want.shape, np.float32)
    got.backward(flow.tensor(cotangent))
    want.backward(torch.tensor(cotangent))
    for x, y in zip(mine, peer, strict=True):
        if isinstance(y, torch.Tensor):
            compare_values(x.grad, y.grad, "gradient of an input")
    if list(theirs.parameters()):
        compare_gradients(ours, theirs)


def image(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


TORCHVISION = {  # our class, torchvision's name of it if another, arguments by framework's nn, the shape of the input
    "Conv2dNormActivation": (lambda nn: {"args": (3, 8), "stride": 2, "activation_layer": nn.Hardswish}, (2, 3, 9, 7)),
    "Conv2dNormActivation-bias": (
        lambda nn: {"args": (4, 8), "kernel_size": (3, 1), "groups": 2, "norm_layer": None, "inplace": None},
        (2, 4, 9, 7),
    ),
    "SqueezeExcitation": (lambda nn: {"args": (12, 5), "scale_activation": nn.Hardsigmoid}, (2, 12, 5, 4)),
    "FrozenBatchNorm2d": (lambda nn: {"args": (5,), "eps": 1e-3}, (2, 5, 3, 4)),
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_layers_of_torchvision(name):
    options, shape = TORCHVISION[name]
    needed("torchvision")
    import torchvision

    kind = name.partition("-")[0]
    mine, peer = options(flow.nn), options(torch.nn)
    theirs = getattr(torchvision.ops, kind)(*peer.pop("args"), **peer)
    both(getattr(layers, kind)(*mine.pop("args"), **mine), theirs, image(*shape), train=name.startswith("Conv"))


TIMM = {  # our class, timm's, arguments, the shape of the input
    "ConvBnAct": (lambda nn: {"args": (3, 6, 3), "stride": 2}, (2, 3, 9, 8)),
    "Conv2dSame": (lambda nn: {"args": (4, 6, (5, 3)), "stride": 2, "dilation": (1, 2), "groups": 2}, (2, 4, 8, 9)),
    "LayerNorm2d": (lambda nn: {"args": (6,)}, (2, 6, 4, 3)),
    "PatchEmbed": (lambda nn: {"args": ((12, 8), 4), "embed_dim": 10, "norm_layer": nn.LayerNorm}, (2, 3, 12, 8)),
    "Mlp": (lambda nn: {"args": (6, 9, 5), "norm_layer": nn.LayerNorm}, (2, 4, 6)),
    "Mlp-conv": (lambda nn: {"args": (6, 9), "use_conv": True, "bias": False, "act_layer": nn.ReLU}, (2, 6, 4, 3)),
    "GluMlp": (lambda nn: {"args": (6, 8), "norm_layer": nn.LayerNorm}, (2, 4, 6)),
    "GluMlp-conv": (lambda nn: {"args": (6, 8), "use_conv": True, "act_layer": nn.SiLU}, (2, 6, 4, 3)),
    "GatedMlp": (lambda nn: {"args": (6, 8), "norm_layer": nn.LayerNorm, "gate_layer": halving(nn)}, (2, 4, 6)),
    "ConvMlp": (lambda nn: {"args": (6, 8), "norm_layer": nn.BatchNorm2d}, (2, 6, 4, 3)),
    "SEModule": (lambda nn: {"args": (40,), "act_layer": nn.SiLU}, (2, 40, 3, 5)),
}  # fmt: skip


def halving(nn):
    """Makes a gate without parameters: one half of the features times the tanh of the other."""

    class Gate(nn.Module):
        def __init__(self, features, device=None, dtype=None):
            super().__init__()

        def forward(self, x):
            return x[..., ::2] * x[..., 1::2].tanh()

    return Gate


@pytest.mark.parametrize("name", TIMM)
def test_layers_of_timm(name):
    options, shape = TIMM[name]
    kind = name.partition("-")[0]
    mine, peer = options(flow.nn), options(torch.nn)
    theirs = getattr(needed("timm").layers, kind)(*peer.pop("args"), **peer)
    both(getattr(layers, kind)(*mine.pop("args"), **mine), theirs, image(*shape))


@pytest.mark.parametrize("extra", [None, "LastLevelMaxPool", "LastLevelP6P7"])
def test_feature_pyramids(extra):
    needed("torchvision")
    from torchvision.ops import feature_pyramid_network as peer

    arguments = (4, 6) if extra == "LastLevelP6P7" else ()
    theirs = peer.FeaturePyramidNetwork(
        [3, 5, 4], 6, getattr(peer, extra)(*arguments) if extra else None, torch.nn.BatchNorm2d if not extra else None
    )
    ours = layers.FPN(
        [3, 5, 4], 6, getattr(layers, extra)(*arguments) if extra else None, flow.nn.BatchNorm2d if not extra else None
    )
    maps = {f"c{i}": image(2, c, 17 >> i, 12 >> i) for i, c in enumerate((3, 5, 4))}
    vary(theirs)
    ours.load_state_dict(state_of(theirs))
    got = ours({name: flow.tensor(x) for name, x in maps.items()})
    want = theirs({name: torch.tensor(x) for name, x in maps.items()})
    assert list(got) == list(want) and list(ours.state_dict()) == list(theirs.state_dict())
    for name in want:
        compare_values(got[name], want[name], name)
    weights = {name: image(*x.shape) for name, x in want.items()}
    sum((got[name] * flow.tensor(x)).sum() for name, x in weights.items()).backward()
    sum((want[name] * torch.tensor(x)).sum() for name, x in weights.items()).backward()
    compare_gradients(ours, theirs)
    if extra == "LastLevelMaxPool":  # files have no version: the names of the first are known too
        state = {name.replace("blocks.0.0", "blocks.0"): x for name, x in state_of(theirs).items()}
        assert "inner_blocks.0.weight" in state and ours.load_state_dict(state) == ([], [])


def test_a_frozen_norm_takes_the_state_of_a_norm():
    state = flow.nn.BatchNorm2d(3).state_dict()
    assert "num_batches_tracked" in state and layers.FrozenBatchNorm2d(3).load_state_dict(state) == ([], [])


def test_initial_weights_of_pyramids_have_the_spread_of_torchvisions():
    needed("torchvision")
    from torchvision.ops import FeaturePyramidNetwork

    states = [make([64], 64).state_dict() for make in (layers.FPN, FeaturePyramidNetwork)]
    for (name, x), y in zip(states[0].items(), states[1].values(), strict=True):
        assert_close(np.abs(x.numpy()).max(), np.abs(y.numpy()).max(), rtol=0.02, atol=0), name


@pytest.mark.parametrize("v", [3, 10, 11, 20, 27.5, 44, 255])
def test_make_divisible(v):
    theirs = needed("timm").layers.make_divisible
    for options in ({}, {"divisor": 4}, {"divisor": 1, "round_limit": 0.0}, {"divisor": 16, "min_value": 32}):
        assert layers.make_divisible(v, **options) == theirs(v, **options)


class Drawn:
    """Zeros and ones in the place of both frameworks' random ones."""

    def __init__(self, monkeypatch, p):
        self.draw, self.p, self.kept = np.random.default_rng(3), p, {}
        monkeypatch.setattr(torch.Tensor, "bernoulli_", lambda x, p: x.copy_(torch.tensor(self(x.shape, p))))
        monkeypatch.setattr(
            layers.regularization.F, "dropout", lambda x, p: flow.tensor(self(x.shape, 1 - p)) / (1 - p)
        )
        monkeypatch.setattr(layers.regularization, "bernoulli", lambda x, p: flow.tensor(self(x.shape, p)))

    def __call__(self, shape, p):
        """The same array each time, whose probabilities are right."""
        shape = tuple(shape)
        if shape not in self.kept:
            self.kept[shape] = (np.random.default_rng(len(shape)).random(shape) < p).astype(np.float32), p
        assert self.kept[shape][1] == pytest.approx(p)
        return self.kept[shape][0]


@pytest.mark.parametrize("mode", ["row", "batch", "path", "unscaled path", "block"])
def test_regularization(mode, monkeypatch):
    torchvision, timm = needed("torchvision"), needed("timm")
    Drawn(monkeypatch, 0.3)
    x = image(7, 3, 12, 9)
    mine, theirs = {
        "row": (layers.StochasticDepth(0.3, "row"), torchvision.ops.StochasticDepth(0.3, "row")),
        "batch": (layers.StochasticDepth(0.3, "batch"), torchvision.ops.StochasticDepth(0.3, "batch")),
        "path": (layers.DropPath(0.3), timm.layers.DropPath(0.3)),
        "unscaled path": (layers.DropPath(0.3, False), timm.layers.DropPath(0.3, False)),
        "block": (layers.DropBlock2d(0.2, 3), torchvision.ops.DropBlock2d(0.2, 3)),
    }[mode]
    want = theirs(torch.tensor(x)).numpy()
    assert (want == 0).any() or mode == "batch"
    assert_close(mine(flow.tensor(x)), want)
    assert_close(mine.eval()(flow.tensor(x)), x)
