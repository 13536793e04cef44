"""Layers: values against NumPy, initialisation, refusals. The ops behind them have tests of their own."""

import math

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, ArgumentTypeError, IndexRangeError, ShapeError

F = nn.functional


def array(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def tensor(*shape, seed=0):
    return flow.tensor(array(*shape, seed=seed))


def test_functional_gives_the_functions_of_ops_themselves():
    from miniflow.ops import activation, convolution, losses, matmul, normalization, padding, pooling, softmax

    assert F.relu is activation.relu is flow.relu and F.linear is matmul.linear and F.conv2d is convolution.conv2d
    assert F.layer_norm is normalization.layer_norm and F.cross_entropy is losses.cross_entropy
    assert F.softmax is softmax.softmax is flow.softmax and F.max_pool2d is pooling.max_pool2d
    assert F.tanh is activation.tanh is flow.tanh and F.pad is padding.pad
    assert all(callable(function) for name, function in vars(F).items() if name[0].islower())


def test_linear():
    layer = nn.Linear(4, 3, dtype=flow.float64)
    x = array(2, 5, 4)
    weight, bias = layer.weight.detach().cpu().numpy(), layer.bias.detach().cpu().numpy()
    assert_close(layer(flow.tensor(x)).detach(), x @ weight.T + bias)
    layer = nn.Linear(4, 3, bias=False)
    assert layer.bias is None and len(list(layer.parameters())) == 1 and list(layer.state_dict()) == ["weight"]
    with pytest.raises(ShapeError, match="4"):
        layer(flow.zeros(2, 5))
    with pytest.raises(ShapeError, match="in_features=-1"):
        nn.Linear(-1, 2)
    assert nn.Linear(0, 2)(flow.zeros(3, 0)).tolist() == [[0.0, 0.0]] * 3


def test_fused_mlp():
    for hidden in ([], [7], [7, 3]):
        for skips in (False, True):
            mlp = nn.FusedMLP(5, hidden, 4, skip_final_activation=skips)
            assert [name for name, _ in mlp.named_parameters()] == [
                f"{kind}_{k}" for k in range(len(hidden) + 1) for kind in ("weight", "bias")
            ]
            sizes = [5, *hidden, 4]
            layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
            for mine, other in zip(mlp.parameters(), [p for layer in layers for p in layer.parameters()], strict=True):
                assert mine.shape == other.shape
                other.data.copy_(mine.data)
            layers = [part for layer in layers for part in (layer, nn.ReLU())]
            x = flow.randn(2, 6, 5)
            assert_close(mlp(x).numpy(), nn.Sequential(*layers[: len(layers) - skips])(x).numpy())


def test_dropout_of_fused_mlp():
    flow.manual_seed(0)
    x, mlp = flow.randn(6, 5), nn.FusedMLP(5, [7, 3], 4, [0.0, 1.0], skip_final_activation=True)
    assert (mlp(x) == mlp.bias_2).all().item()  # nothing is left of the second layer
    assert (mlp.eval()(x) != mlp.bias_2).any().item()
    mlp = nn.FusedMLP(5, [7], 4, out_dropout_rate=1.0, skip_final_activation=True)
    assert (mlp(x) == 0).all().item() and (mlp.eval()(x) != 0).any().item()
    with pytest.raises(ArgumentError, match=r"hidden_dropout_rate=\[0.5\]; expected 2 rates"):
        nn.FusedMLP(5, [7, 3], 4, [0.5])


def assert_uniform(x, bound):
    x = np.sort(x.detach().cpu().numpy().ravel() / bound)
    assert -1 <= x[0] < -0.99 and 0.99 < x[-1] <= 1
    even = np.linspace(-1, 1, x.size)
    np.testing.assert_allclose(x, even, atol=4 / math.sqrt(x.size))


def test_initial_distributions():
    flow.manual_seed(0)
    linear = nn.Linear(50, 2000)
    assert_uniform(linear.weight, 1 / math.sqrt(50))
    assert_uniform(linear.bias, 1 / math.sqrt(50))
    conv = nn.Conv2d(8, 1000, (3, 5), groups=2)
    assert_uniform(conv.weight, 1 / math.sqrt(4 * 15))
    assert_uniform(conv.bias, 1 / math.sqrt(4 * 15))
    table = nn.Embedding(200, 300).weight.detach().cpu().numpy()
    assert abs(table.mean()) < 0.02 and abs(table.std() - 1) < 0.02
    for layer in (nn.LayerNorm((2, 3)), nn.BatchNorm2d(4)):
        assert_same(layer.weight.detach(), np.ones(layer.weight.shape, np.float32))
        assert_same(layer.bias.detach(), np.zeros(layer.bias.shape, np.float32))


def test_same_seed_same_network():
    networks = []
    for _ in range(2):
        flow.manual_seed(3)
        networks.append(nn.Sequential(nn.Linear(3, 4), nn.Conv2d(1, 2, 3)))
    for a, b in zip(*(n.parameters() for n in networks), strict=True):
        assert_same(a.detach(), b.detach().cpu().numpy())


def test_conv_is_the_function_with_its_parameters():
    layer = nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2, dtype=flow.float64)
    assert layer.weight.shape == (6, 2, 3, 2) and layer.bias.shape == (6,)
    x = tensor(2, 4, 7, 8)
    expected = F.conv2d(x, layer.weight, layer.bias, (2, 1), (1, 2), (1, 2), 2)
    assert_same(layer(x).detach(), expected.detach().cpu().numpy())
    assert nn.Conv2d(1, 1, 1, bias=False).bias is None


MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [(1, 2), "same", "valid"])
def test_conv_padding_modes(mode, padding):
    layer = nn.Conv2d(2, 3, (3, 4), padding=padding, padding_mode=mode, dtype=flow.float64)
    x = array(2, 2, 6, 7)
    (top, bottom), (left, right) = {"same": ((1, 1), (1, 2)), "valid": ((0, 0), (0, 0))}.get(padding, ((1, 1), (2, 2)))
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), mode=MODES[mode])
    expected = F.conv2d(flow.tensor(padded), layer.weight, layer.bias)
    assert_close(layer(flow.tensor(x)).detach(), expected.detach().cpu().numpy())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"groups": 2}, "groups=2; expected groups above 0 that divide both"),
        ({"groups": 0}, "groups=0"),
        ({"padding_mode": "mirror"}, "padding_mode='mirror'; expected 'zeros', 'reflect', 'replicate' or 'circular'"),
        ({"padding": "all"}, "padding='all'; expected 'same', 'valid'"),
        ({"padding": "same", "stride": 2}, "padding='same' with stride"),
        ({"stride": (1, 2, 3)}, "expected one or two integers of at least 1"),
        ({"padding": -1}, "padding=-1; expected one or two integers of at least 0"),
    ],
)
def test_conv_refusals(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        nn.Conv2d(3, 6, 3, **arguments)


def test_pools_hand_over_their_arguments():
    x = tensor(2, 3, 9, 8)
    layer = nn.MaxPool2d(3, 2, 1, 2, ceil_mode=True)
    assert_same(layer(x), F.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True).cpu().numpy())
    y, indices = nn.MaxPool2d(2, return_indices=True)(x)
    assert_same(y, F.max_pool2d(x, 2).cpu().numpy())
    planes, places = x.cpu().numpy().reshape(2, 3, -1), indices.cpu().numpy().reshape(2, 3, -1)
    assert_same(np.take_along_axis(planes, places, 2), y.cpu().numpy().reshape(2, 3, -1))
    assert nn.MaxPool2d(3).stride == 3
    layer = nn.AvgPool2d((3, 2), 2, (1, 0), True, False, None)
    assert_same(layer(x), F.avg_pool2d(x, (3, 2), 2, (1, 0), True, False, None).cpu().numpy())
    assert_close(nn.AvgPool2d(2, divisor_override=3)(x), F.avg_pool2d(x, 2).cpu().numpy() * 4 / 3)
    assert_close(nn.AdaptiveAvgPool2d(1)(x), x.cpu().numpy().mean((2, 3), keepdims=True))
    assert nn.AdaptiveAvgPool2d((None, 2))(x).shape == (2, 3, 9, 2)


def normalised(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.BatchNorm1d, (6, 3)), (nn.BatchNorm1d, (6, 3, 4)), (nn.BatchNorm2d, (5, 3, 4, 2))]
)
@pytest.mark.parametrize("momentum", [0.3, None])
def test_batch_norm(layer, shape, momentum):
    layer = layer(3, momentum=momentum, dtype=flow.float64)
    axes = (0, *range(2, len(shape)))
    mean, var = np.zeros(3), np.ones(3)
    for step in range(1, 4):
        x = array(*shape, seed=step) * 2 + 1
        assert_close(layer(flow.tensor(x)).detach(), normalised(x, axes))
        part = 1 / step if momentum is None else momentum
        mean += part * (x.mean(axes) - mean)
        var += part * (x.var(axes, ddof=1) - var)
    assert_close(layer.running_mean, mean)
    assert_close(layer.running_var, var)
    assert layer.num_batches_tracked.item() == 3 and layer.num_batches_tracked.dtype is flow.int64
    layer.eval()
    per_channel = (3,) + (1,) * (len(shape) - 2)
    expected = (x - mean.reshape(per_channel)) / np.sqrt(var.reshape(per_channel) + 1e-5)
    assert_close(layer(flow.tensor(x)).detach(), expected)
    assert layer.num_batches_tracked.item() == 3
    layer.reset_running_stats()
    assert layer.running_mean.tolist() == [0.0] * 3 and layer.num_batches_tracked.item() == 0


def test_batch_norm_without_running_statistics_or_parameters():
    layer = nn.BatchNorm2d(3, affine=False, track_running_stats=False).eval()
    assert list(layer.state_dict()) == [] and layer.weight is None and layer.running_mean is None
    x = array(4, 3, 2, 2)
    assert_close(layer(flow.tensor(x)), normalised(x, (0, 2, 3)))
    with pytest.raises(ShapeError, match=r"BatchNorm2d: got shape \(4, 3\); expected \(N, C, H, W\)"):
        layer(flow.zeros(4, 3))
    with pytest.raises(ShapeError, match=r"BatchNorm1d: got shape \(4,\)"):
        nn.BatchNorm1d(4)(flow.zeros(4))


def test_batch_norm_that_stops_tracking_leaves_its_statistics_alone():
    layer = nn.BatchNorm1d(2)
    layer.track_running_stats = False
    layer(flow.randn(5, 2))
    assert layer.running_mean.tolist() == [0.0, 0.0] and layer.num_batches_tracked.item() == 0


def test_layer_norm():
    x = array(2, 3, 4)
    layer = nn.LayerNorm((3, 4), eps=1e-3, dtype=flow.float64)
    assert_close(layer(flow.tensor(x)).detach(), normalised(x, (1, 2), 1e-3))
    layer = nn.LayerNorm(4, bias=False, dtype=flow.float64)
    with flow.no_grad():
        layer.weight.copy_(flow.tensor([1.0, 2.0, 3.0, 4.0]))
    assert layer.bias is None and layer.normalized_shape == (4,)
    assert_close(layer(flow.tensor(x)).detach(), normalised(x, (2,)) * [1, 2, 3, 4])
    assert list(nn.LayerNorm(4, elementwise_affine=False).parameters()) == []


def test_dropout_follows_the_mode():
    flow.manual_seed(0)
    x = flow.ones(1000, 10)
    layer = nn.Dropout(0.25)
    y = layer(x).cpu().numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)} and abs((y == 0).mean() - 0.25) < 0.02
    assert_same(layer.eval()(x), x.cpu().numpy())
    z = flow.ones(1000)
    assert nn.Dropout(0.5, inplace=True)(z) is z and (z == 0).any().item()
    with pytest.raises(ArgumentError, match="p=1.5; expected a number from 0 to 1"):
        nn.Dropout(1.5)


def test_embedding():
    layer = nn.Embedding(5, 3, padding_idx=-2)
    assert layer.padding_idx == 3 and layer.weight[3].tolist() == [0.0] * 3
    index = flow.tensor([[0, 3], [4, 0]])
    y = layer(index)
    assert_same(y.detach(), layer.weight.detach().cpu().numpy()[index.cpu().numpy()])
    y.sum().backward()
    assert_same(layer.weight.grad, np.array([[2.0], [0], [0], [0], [1]], np.float32) * np.ones((1, 3), np.float32))
    table = flow.randn(4, 2)
    frozen = nn.Embedding.from_pretrained(table)
    assert not frozen.weight.requires_grad and (frozen.num_embeddings, frozen.embedding_dim) == (4, 2)
    assert_same(frozen(flow.tensor([2])), table.cpu().numpy()[[2]])
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad
    bags = nn.EmbeddingBag.from_pretrained(table, True, None, 2.0, False, "sum", False, True, 1)
    assert bags.mode == "sum" and bags.include_last_offset and bags.padding_idx == 1
    assert nn.EmbeddingBag.from_pretrained(table, padding_idx=3, mode="max").padding_idx == 3
    scaled = nn.Embedding.from_pretrained(table, False, -1, None, 2.0, True, True)
    assert_same(scaled.weight.detach(), table.cpu().numpy())
    assert scaled.weight.requires_grad
    assert repr(scaled) == "Embedding(4, 2, padding_idx=3, scale_grad_by_freq=True, sparse=True)"
    assert repr(bags) == "EmbeddingBag(4, 2, mode='sum', padding_idx=1)" and repr(nn.Embedding(5, 3)).endswith("(5, 3)")
    with pytest.raises(IndexRangeError, match="padding_idx=5; expected -5 to 4"):
        nn.Embedding(5, 3, padding_idx=5)
    with pytest.raises(IndexRangeError):
        layer(flow.tensor([5]))
    with pytest.raises(ShapeError, match="expected two dims"):
        nn.Embedding.from_pretrained(flow.zeros(3))


ACTIVATIONS = {
    nn.ReLU: lambda x: np.maximum(x, 0),
    nn.SiLU: lambda x: x / (1 + np.exp(-x)),
    nn.Sigmoid: lambda x: 1 / (1 + np.exp(-x)),
    nn.Tanh: np.tanh,
    nn.GELU: lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    nn.Softplus: lambda x: np.log1p(np.exp(x)),
    nn.Identity: lambda x: x,
}


@pytest.mark.parametrize("layer", ACTIVATIONS)
def test_activations(layer):
    x = array(3, 5) * 3
    assert_close(layer()(flow.tensor(x)), ACTIVATIONS[layer](x))


def test_options_of_activations():
    x = array(3, 5)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    assert_close(nn.GELU("tanh")(flow.tensor(x)), 0.5 * x * (1 + np.tanh(inner)))
    assert_close(nn.Softplus(2.0, 1.0)(flow.tensor(x)), np.where(2 * x > 1, x, np.log1p(np.exp(2 * x)) / 2))
    for layer in (nn.ReLU, nn.SiLU):
        y = flow.tensor(x)
        assert layer(inplace=True)(y) is y
        assert_close(y, ACTIVATIONS[layer](x))
    exponentials = np.exp(x)
    share = exponentials / exponentials.sum(0)
    assert_close(nn.Softmax(dim=0)(flow.tensor(x)), share)
    assert_close(nn.LogSoftmax(dim=0)(flow.tensor(x)), np.log(share))
    with pytest.raises(ArgumentTypeError, match=r"LogSoftmax: missing a required argument: 'dim'; expected \(dim\)"):
        nn.LogSoftmax()


def test_shape_layers():
    x = tensor(2, 3, 4, 5)
    assert nn.Flatten()(x).shape == (2, 60) and nn.Flatten(0, 1)(x).shape == (6, 4, 5)
    assert nn.Unflatten(1, (3, -1))(flow.zeros(2, 12)).shape == (2, 3, 4)
    assert_same(nn.ZeroPad2d((1, 2, 0, 3))(x), np.pad(x.cpu().numpy(), ((0, 0), (0, 0), (0, 3), (1, 2))))
    assert_same(
        nn.ConstantPad2d(1, 7.0)(x), np.pad(x.cpu().numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=7.0)
    )
    with pytest.raises(ArgumentError, match=r"ZeroPad2d: got padding=\(1, 2\); expected one int or 4"):
        nn.ZeroPad2d((1, 2))


def test_losses_hand_over_their_options():
    x, y = array(4, 3), array(4, 3, seed=1)
    p, t = 1 / (1 + np.exp(-x)), (y > 0).astype(float)
    weight, positive = np.array([0.5, 1.0, 2.0]), np.array([3.0, 1.0, 0.5])
    inputs = {
        name: flow.tensor(v) for name, v in {"x": x, "y": y, "p": p, "t": t, "w": weight, "pos": positive}.items()
    }
    assert_close(nn.MSELoss("sum")(inputs["x"], inputs["y"]), np.asarray(((x - y) ** 2).sum()))
    assert_close(nn.L1Loss(reduction="none")(inputs["x"], inputs["y"]), np.abs(x - y))
    binary = -(t * np.log(p) + (1 - t) * np.log(1 - p))
    assert_close(nn.BCELoss(inputs["w"])(inputs["p"], inputs["t"]), np.asarray((binary * weight).mean()))
    with_logits = -(positive * t * np.log(p) + (1 - t) * np.log(1 - p)) * weight
    loss = nn.BCEWithLogitsLoss(inputs["w"], "none", inputs["pos"])
    assert_close(loss(inputs["x"], inputs["t"]), with_logits)
    log_p = x - np.log(np.exp(x).sum(1, keepdims=True))
    target = np.array([2, 0, 1, 2])
    picked = -log_p[np.arange(4), target] * weight[target]
    expected = np.asarray(picked[[0, 2, 3]].sum() / weight[target][[0, 2, 3]].sum())
    classes = flow.tensor(target)
    assert_close(nn.CrossEntropyLoss(inputs["w"], ignore_index=0)(inputs["x"], classes), expected)
    assert_close(nn.NLLLoss(inputs["w"], ignore_index=0)(flow.tensor(log_p), classes), expected)
    smooth = 0.8 * -log_p[np.arange(4), target] + 0.2 * -log_p.mean(1)
    assert_close(nn.CrossEntropyLoss(reduction="none", label_smoothing=0.2)(inputs["x"], classes), smooth)
    assert list(nn.CrossEntropyLoss(inputs["w"]).state_dict()) == ["weight"]
    with pytest.raises(ArgumentError, match="reduction"):
        nn.MSELoss("average")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.CrossEntropyLoss(None, False), "CrossEntropyLoss: got ignore_index=False; expected an integer"),
        (lambda: nn.NLLLoss(None, True), "NLLLoss: got ignore_index=True"),
        (lambda: nn.Embedding(3, 2, None, 1.0), "Embedding: got max_norm"),
    ],
)
def test_arguments_in_the_places_of_others(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_a_layer_of_ones_own_with_other_arguments_prints_those_of_its_base():
    class Capped(nn.Hardtanh):
        def __init__(self, top):
            super().__init__(0.0, top)

    class Pooled(nn.AdaptiveAvgPool2d):
        def __init__(self):
            super().__init__(1)

    assert repr(Capped(6.0)) == "Capped(min_val=0.0, max_val=6.0)" and repr(Pooled()) == "Pooled(output_size=1)"
    with pytest.raises(ArgumentTypeError, match=r"Capped: got an unexpected keyword argument 'max'; expected \(top\)"):
        Capped(6.0, max=7.0)


@pytest.mark.parametrize("tracked", [False, True])
def test_instance_norm_in_training_and_in_evaluation(tracked):
    """In training each channel of each sample by itself; in evaluation by the running statistics, if there are."""
    x = np.random.default_rng(5).normal(size=(2, 3, 4, 5)) * 2 + 1
    layer = nn.InstanceNorm2d(3, track_running_stats=tracked, momentum=0.3, dtype=flow.float64)
    mean, variance = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    of_samples = (x - mean) / np.sqrt(variance + 1e-5)
    assert_close(layer(flow.tensor(x)), of_samples, rtol=1e-11, atol=1e-12)
    running = 0.3 * mean.mean(0)[None], 0.7 + 0.3 * x.var((2, 3), ddof=1, keepdims=True).mean(0)[None]
    expected = (x - running[0]) / np.sqrt(running[1] + 1e-5) if tracked else of_samples
    assert_close(layer.eval()(flow.tensor(x)), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("groups", [0, -2, 3])
def test_group_norm_refuses_groups_that_do_not_divide(groups):
    with pytest.raises(ArgumentError, match=f"GroupNorm: got 4 channels in {groups} groups; expected a multiple"):
        nn.GroupNorm(groups, 4)
