"""Layers of miniflow.vision compute, from the same weights, what those of torchvision and timm compute."""

import operator

import numpy as np
import pytest
from checks import assert_close
from detectors import suppressed, with_operators
from models import compare_gradients, compare_values, needed, state_of, torch, vary

import miniflow as flow
from miniflow.vision import layers, ops


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
    "MLP": (
        lambda nn: {"args": (5, [7, 6, 4]), "norm_layer": nn.LayerNorm, "inplace": False, "bias": False},
        (2, 3, 5),
    ),
    "Permute": (lambda nn: {"args": ([0, 2, 3, 1],)}, (2, 3, 4, 5)),
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
    "ConvBnAct-same": (lambda nn: {"args": (3, 6, 3), "stride": 2, "padding": "same", "dilation": 2}, (2, 3, 9, 8)),
    "Conv2dSame": (lambda nn: {"args": (4, 6, (5, 3)), "stride": 2, "dilation": (1, 2), "groups": 2}, (2, 4, 8, 9)),
    "LayerNorm2d": (lambda nn: {"args": (6,)}, (2, 6, 4, 3)),
    "PatchEmbed": (lambda nn: {"args": ((12, 8), 4), "embed_dim": 10, "norm_layer": nn.LayerNorm}, (2, 3, 12, 8)),
    "Mlp": (lambda nn: {"args": (6, 9, 5), "norm_layer": nn.LayerNorm}, (2, 4, 6)),
    "Mlp-conv": (lambda nn: {"args": (6, 9), "use_conv": True, "bias": False, "act_layer": nn.ReLU}, (2, 6, 4, 3)),
    "GluMlp": (lambda nn: {"args": (6, 8), "norm_layer": nn.LayerNorm}, (2, 4, 6)),
    "GluMlp-conv": (lambda nn: {"args": (6, 8), "use_conv": True, "act_layer": nn.SiLU}, (2, 6, 4, 3)),
    "GatedMlp": (lambda nn: {"args": (6, 8), "norm_layer": nn.LayerNorm, "gate_layer": halving(nn)}, (2, 4, 6)),
    "ConvMlp": (lambda nn: {"args": (6, 8), "norm_layer": nn.BatchNorm2d}, (2, 6, 4, 3)),
    "Attention": (lambda nn: {"args": (12, 3), "qkv_bias": True}, (2, 5, 12)),
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


ATTENTION = {  # our class: timm's, arguments of ours, the channels
    "ECA": ("EcaModule", lambda n: {"channels": n}, 300),
    "CBAM": ("cbam.CbamModule", lambda n: {"channels": n, "rd_ratio": 0.5, "spatial_kernel_size": 3}, 12),
    "CoordAtt": ("coord_attn.CoordAttn", lambda n: {"channels": n}, 32),
    "GlobalContext": ("GlobalContext", lambda n: {"channels": n, "fuse_add": True}, 24),
    "GlobalContext-add": ("GlobalContext", lambda n: {"channels": n, "fuse_add": True, "fuse_scale": False}, 24),
    "NonLocal": ("NonLocalAttn", lambda n: {"in_channels": n}, 16),
    "NonLocal-unscaled": ("NonLocalAttn", lambda n: {"in_channels": n, "use_scale": False}, 16),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_timm(name):
    peer, options, channels = ATTENTION[name]
    options = options(channels)
    theirs = operator.attrgetter(peer)(needed("timm").layers)(**options)
    both(getattr(layers, name.partition("-")[0])(**options), theirs, image(2, channels, 5, 4))


@pytest.mark.parametrize("sr_ratio", [1, 2])
def test_attention_with_spatial_reduction(sr_ratio):
    needed("timm")
    from timm.models.pvt_v2 import Attention

    options = {"num_heads": 3, "sr_ratio": sr_ratio, "qkv_bias": sr_ratio == 1}
    both(layers.SRAttention(12, **options), Attention(12, **options), image(2, 24, 12), (4, 6))


def test_gated_channel_transformation_is_its_formula():
    x, draw = image(2, 5, 3, 4).astype(np.float64), np.random.default_rng(1)
    alpha, gamma, beta = draw.standard_normal((3, 1, 5, 1, 1))
    gct = layers.GCT(5, epsilon=0.01).double()
    assert_close(gct(flow.tensor(x)), x)  # at first
    gct.load_state_dict({"alpha": alpha, "gamma": gamma, "beta": beta})
    norm = alpha * np.sqrt((x**2).sum((2, 3), keepdims=True) + 0.01)
    gate = np.tanh(gamma * norm / np.sqrt((norm**2).mean(1, keepdims=True) + 0.01) + beta)
    assert_close(gct(flow.tensor(x)).detach(), x * (1 + gate))


def test_bottleneck_attention_is_its_formula():
    functional, x = torch.nn.functional, image(3, 8, 11, 12)
    bam = layers.BAM(8, reduction=2, dilation=3)
    state = {name: torch.tensor(value.numpy()) for name, value in bam.state_dict().items()}

    def conv_norm(x, name, **options):
        x = functional.conv2d(x, state[f"{name}.conv.weight"], state[f"{name}.conv.bias"], **options)
        return functional.batch_norm(x, None, None, state[f"{name}.bn.weight"], state[f"{name}.bn.bias"], training=True)

    images = torch.tensor(x)
    channel = conv_norm(conv_norm(images.mean((2, 3), keepdim=True), "channel.1").relu(), "channel.2")
    place = conv_norm(images, "spatial.0").relu()
    for name in ("spatial.1", "spatial.2"):
        place = conv_norm(place, name, padding=3, dilation=3).relu()
    want = images * (1 + (channel + conv_norm(place, "spatial.3")).sigmoid())
    assert_close(bam(flow.tensor(x)).detach(), want.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("distribution", ["normal", "truncated_normal", "uniform"])
@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg"])
def test_initial_weights_are_spread_as_timms(mode, distribution):
    """Quantiles of many numbers, within four of their standard errors."""
    timm, chances = needed("timm"), np.linspace(0.02, 0.98, 13)
    torch.manual_seed(0)
    flow.manual_seed(0)
    ours, theirs = flow.empty(60, 40, 5, 5), torch.empty(60, 40, 5, 5)
    assert layers.variance_scaling_(ours, 2.0, mode, distribution) is ours
    timm.layers.variance_scaling_(theirs, 2.0, mode, distribution)
    got, want = ours.numpy().flatten(), theirs.numpy().flatten()
    np.testing.assert_allclose(np.quantile(got, chances), np.quantile(want, chances), atol=0.05 * want.std())
    np.testing.assert_allclose([got.std(), got.mean()], [want.std(), 0], atol=0.02 * want.std())
    if distribution != "normal":
        np.testing.assert_allclose(got.max(), want.max(), rtol=0.01)


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


def boxes_like(n, seed=0, size=40):
    draw = np.random.default_rng(seed)
    first = draw.uniform(0, size / 2, (n, 2))
    return np.concatenate([first, first + draw.uniform(1, size / 2, (n, 2))], 1).astype(np.float32)


A, B = boxes_like(7), boxes_like(5, 1)
LOGITS, BINARY = image(4, 3), (image(4, 3) > 0.3).astype(np.float32)
FORMATS = ("xyxy", "xywh", "cxcywh")
BOX_OPERATORS = {
    **{f"box_convert {a} {b}": ("box_convert", A, a, b) for a in FORMATS for b in FORMATS},
    "box_area": ("box_area", A),
    **{f"box_iou {name}": ("box_iou", A, B, name) for name in FORMATS},
    "box_iou, integer": ("box_iou", (A * 3).astype(np.int64), (B * 3).astype(np.int64)),
    "generalized_box_iou": ("generalized_box_iou", A, B),
    **{f"giou loss {r}": ("generalized_box_iou_loss", A[:5], B, r) for r in ("none", "mean", "sum")},
    "giou loss of none": ("generalized_box_iou_loss", A[:0], B[:0], "mean"),
    **{f"focal loss {r}": ("sigmoid_focal_loss", LOGITS, BINARY, 0.25, 2.0, r) for r in ("none", "mean", "sum")},
    "focal loss, no weights": ("sigmoid_focal_loss", LOGITS, BINARY, -1, 1.5),
    "clip_boxes_to_image": ("clip_boxes_to_image", A * 2 - 20, (30, 25)),
    "remove_small_boxes": ("remove_small_boxes", A, 9.0),
}


@pytest.mark.parametrize("name", BOX_OPERATORS)
def test_boxes(name):
    function, *args = BOX_OPERATORS[name]
    needed("torchvision")
    import torchvision

    mine = [flow.tensor(x, requires_grad=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x for x in args]
    peer = [torch.tensor(x, requires_grad=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x for x in args]
    got, want = getattr(ops, function)(*mine), getattr(torchvision.ops, function)(*peer)
    assert_close(got.detach(), want.detach().numpy())
    if want.requires_grad:
        cotangent = np.random.default_rng(1).standard_normal(want.shape, np.float32)
        got.backward(flow.tensor(cotangent))
        want.backward(torch.tensor(cotangent))
        assert_close(mine[0].grad, peer[0].grad.numpy(), rtol=1e-5, atol=1e-6)


def test_batched_nms():
    boxes, draw = boxes_like(60), np.random.default_rng(2)
    scores, classes = draw.random(60).astype(np.float32), draw.integers(0, 3, 60)
    kept = ops.batched_nms(flow.tensor(boxes), flow.tensor(scores), flow.tensor(classes), 0.3).numpy()
    expected = []
    for k in range(3):
        of_class = np.flatnonzero(classes == k)
        chosen = suppressed(torch.tensor(boxes[of_class]), torch.tensor(scores[of_class]), 0.3)
        expected += list(of_class[chosen.numpy()])
    assert 10 < len(expected) < 50
    np.testing.assert_array_equal(kept, sorted(expected, key=lambda i: -scores[i]))
    apart = flow.tensor([[0.0, 0, 10, 10], [-11, -11, -1, -1]])  # where their place is negative, classes are apart, too
    assert ops.batched_nms(apart, flow.tensor([0.9, 0.8]), flow.tensor([0, 1]), 0.5).tolist() == [0, 1]
    assert ops.batched_nms(flow.zeros(0, 4), flow.zeros(0), flow.zeros(0), 0.5).shape == (0,)


@pytest.mark.parametrize("sampling_ratio", [2, -1])
def test_features_of_boxes(sampling_ratio, monkeypatch):
    peer = with_operators(monkeypatch)
    maps = {name: image(2, 3, n, n) for name, n in (("0", 32), ("1", 16), ("pool", 4), ("2", 8))}
    boxes = [boxes_like(6, 0, 256), boxes_like(9, 1, 128)]
    sizes = [(128, 120), (120, 100)]
    options = {"canonical_scale": 32, "canonical_level": 3}
    theirs = peer.ops.MultiScaleRoIAlign(["0", "1", "2"], 3, sampling_ratio, **options)
    ours = ops.MultiScaleRoIAlign(["0", "1", "2"], 3, sampling_ratio, **options)
    mine, other = (
        {name: tensor(x, requires_grad=True) for name, x in maps.items()} for tensor in (flow.tensor, torch.tensor)
    )
    got = ours(mine, [flow.tensor(x) for x in boxes], sizes)
    want = theirs(other, [torch.tensor(x) for x in boxes], sizes)
    compare_values(got, want)
    cotangent = np.random.default_rng(1).standard_normal(want.shape, np.float32)
    got.backward(flow.tensor(cotangent))
    want.backward(torch.tensor(cotangent))
    for name in ("0", "1", "2"):
        assert float(other[name].grad.abs().sum()) > 0
        compare_values(mine[name].grad, other[name].grad, name)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling_ratio", [2, 3, 0, -1])
def test_regions(sampling_ratio, aligned, monkeypatch):
    peer, x = with_operators(monkeypatch), image(2, 3, 16, 20)
    boxes = [boxes_like(6, 0, 256), boxes_like(9, 1, 128) - 40]  # some lie outside
    mine, other = (tensor(x, requires_grad=True) for tensor in (flow.tensor, torch.tensor))
    got = ops.roi_align(mine, [flow.tensor(x) for x in boxes], (2, 3), 0.125, sampling_ratio, aligned)
    want = peer.ops.roi_align(other, [torch.tensor(x) for x in boxes], (2, 3), 0.125, sampling_ratio, aligned)
    compare_values(got, want)
    cotangent = np.random.default_rng(1).standard_normal(want.shape, np.float32)
    got.backward(flow.tensor(cotangent))
    want.backward(torch.tensor(cotangent))
    compare_values(mine.grad, other.grad)
