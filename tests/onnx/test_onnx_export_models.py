"""Every layer, and whole models, exported with sizes that vary: onnxruntime computes what miniflow computes."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import pytest
from checks import assert_close
from compare import count_comparison
from running import run, tensors
from twins import MODULES

import miniflow as flow
from miniflow import nn
from miniflow.errors import OnnxError

REFUSED = {
    ("CTCLoss", 0): "another path",
    ("CrossEntropyLoss", 0): "cross_entropy",
    ("CrossEntropyLoss", 1): "cross_entropy",
}


def compare_with_onnx(model, arrays, axes, others=(), opset=17, rtol=1e-4) -> onnx.ModelProto:
    """Export with these inputs, and compare for them and for inputs of other sizes."""
    names = [f"x{i}" for i in range(len(arrays))]
    model.eval()
    dynamic = {name: axes for name, x in zip(names, arrays, strict=True) if len(x) == len(arrays[0])}
    inputs = tuple(map(flow.tensor, arrays))
    found = flow.onnx.export(model, inputs, opset=opset, input_names=names, dynamic_axes=dynamic)
    for given in (arrays, *others):
        with flow.no_grad():
            want = tensors(model(*map(flow.tensor, given)))
        for got, y in zip(run(found, given), want, strict=True):
            y = y.numpy()
            assert_close(got, y, rtol=rtol, atol=rtol * float(np.abs(y).max(initial=1e-3)))
    return found


@pytest.mark.parametrize(("name", "i"), [(name, i) for name in MODULES for i in range(len(MODULES[name]))])
def test_layers(name, i):
    make, arrays = MODULES[name][i]
    flow.manual_seed(3)
    try:
        compare_with_onnx(make(), arrays, {0: "batch"})
    except OnnxError as error:
        assert REFUSED[name, i] in str(error)
        count_comparison()


def assigned(x):
    y = x.clone()
    y[:, 0], y[:, 1:3] = 5.0, x[:, 1:3] * 2
    y[:, 2] += 1
    return y


def assigned_in_other_ways(x):
    y = x.clone()
    y[:, 1:, [0, 2]] = x[:, 1:, :2] * 3  # slices and indices at once
    y.mT[:, 3] = 7.0
    y.permute(2, 0, 1)[1, :, -1] = x[:, 0, 0]
    y.view(x.shape[0], -1)[:, ::5] = -1.0
    return y


# of x: (batch, time, 6), both varying
OF_VARYING_SIZES = {
    "slices": lambda x: (x[:, -1], x[:, 1:], x[:, :-1], x[:, -2], x[:, ::2], x[:, [0, 2]], x.flip(1), x.roll(1, 1)),
    "picked": lambda x: (x[flow.arange(x.shape[0]), -1], x.gather(1, flow.zeros(x.shape[0], 1, 6).long())),
    "ordered": lambda x: (*x.topk(2, 1), *x.sort(1), x.argmax(1), nn.functional.one_hot(x.argmax(2), 6)),
    "reduced": lambda x: (x.mean(1), x.var(1, unbiased=False), x.cumsum(1), x.softmax(1), x * x.shape[1]),
    "padded": lambda x: (nn.functional.pad(x, (0, 0, 1, 2)), nn.functional.pad(x, (1, 1), mode="reflect")),
    "masked": lambda x: (x @ x.mT).masked_fill(flow.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e9).softmax(-1),
    "reshaped": lambda x: x.reshape(*x.shape[:2], 2, 3).transpose(1, 2).reshape(2 * x.shape[0], x.shape[1], 3),
    "joined": lambda x: flow.cat([flow.zeros(x.shape[0], 1, 6), flow.ones(1, 1, 6).expand(x.shape) + x], 1),
    "resized": lambda x: nn.functional.interpolate(x.mT, scale_factor=1.5, mode="linear"),
    "shuffled": lambda x: nn.PixelShuffle(h_upscale_factor=2, w_upscale_factor=3)(x.mT[..., None]),
    "where": lambda x: flow.where((x > 0).int(), x, 0.5).masked_fill((x > 1).long(), 2.0),
    "assigned": assigned,
    "assigned in other ways": assigned_in_other_ways,
}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("name", OF_VARYING_SIZES)
def test_varying_sizes(name):
    draw = np.random.default_rng(0)
    given, *others = (draw.normal(size=shape).astype("float32") for shape in ((2, 5, 6), (3, 8, 6), (1, 4, 6)))
    axes = {0: "batch", 1: "time"}
    compare_with_onnx(Function(OF_VARYING_SIZES[name]), [given], axes, [[x] for x in others])


def test_a_size_that_must_not_vary():
    x = np.ones((2, 5, 6), np.float32)
    with pytest.raises(OnnxError, match="std .*varies with dynamic axes"):
        compare_with_onnx(Function(lambda x: x.std(1)), [x], {1: "time"})


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.reshape(b, t, 2, c // 2).transpose(1, 2) for y in self.attention(self.norms[0](x)).split(c, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self, width: int = 24):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, width, scale_grad_by_freq=True), nn.Embedding(32, width)
        self.blocks, self.norm = nn.Sequential(Block(width), Block(width)), nn.LayerNorm(width)

    def forward(self, x):
        y = self.tokens(x) + self.places(flow.arange(x.shape[1]))
        return self.norm(self.blocks(y)) @ self.tokens.weight.T


@pytest.mark.parametrize("opset", [14, 17, 23])
def test_gpt_of_any_batch_and_length(opset):
    draw = np.random.default_rng(0)
    given, *others = (draw.integers(0, 50, shape) for shape in ((2, 7), (1, 11), (5, 1)))
    compare_with_onnx(GPT(), [given], {0: "batch", 1: "time"}, [[x] for x in others], opset)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_are_nodes_of_onnx(kind):
    model = getattr(nn, kind)(5, 7, num_layers=2, bidirectional=True, batch_first=True)
    draw = np.random.default_rng(0)
    given, other = (draw.normal(size=shape).astype("float32") for shape in ((2, 6, 5), (3, 4, 5)))
    for opset in (9, 17):
        found = compare_with_onnx(model, [given], {0: "batch", 1: "time"}, [[other]], opset)
        assert [node.op_type for node in found.graph.node].count(kind) == 4


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_cells_are_exported_operator_by_operator(kind):
    class OneStep(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = getattr(nn, f"{kind}Cell")(5, 7)

        def forward(self, x):
            state = self.cell(x)
            return state[0] if kind == "LSTM" else state

    compare_with_onnx(OneStep(), [np.random.default_rng(0).normal(size=(2, 5)).astype("float32")], {})


def test_a_given_state():
    draw = np.random.default_rng(0)
    x, h, c = (draw.normal(size=shape).astype("float32") for shape in ((6, 2, 5), (1, 2, 7), (1, 2, 7)))

    class WithState(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(5, 7, bias=False)

        def forward(self, x, h, c):
            y, (h, c) = self.lstm(x, (h, c))
            return y, h, c

    compare_with_onnx(WithState(), [x, h, c], {})


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.bottom = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x):
        skip = self.down(x).relu()
        y = self.up(self.bottom(nn.functional.max_pool2d(skip, 2)).relu())
        y = nn.functional.interpolate(y, size=skip.shape[2:], mode="bilinear", align_corners=True)
        return self.out(flow.cat([skip, y], 1))


def test_u_net_of_any_size():
    draw = np.random.default_rng(0)
    given, *others = (draw.normal(size=shape).astype("float32") for shape in ((2, 3, 16, 24), (1, 3, 12, 20)))
    compare_with_onnx(UNet(), [given], {0: "batch", 2: "height", 3: "width"}, [[x] for x in others])


class Context(nn.Module):
    """The mean of an image beside each of its parts: sizes after strides are those of a resize and a reshape."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.second = nn.Conv2d(6, 6, 3, stride=4, padding=1)

    def forward(self, x):
        y = self.second(self.first(x))
        mean = nn.functional.adaptive_avg_pool2d(y, 1)
        z = y + nn.functional.interpolate(mean, size=y.shape[-2:], mode="bilinear")
        z = z.flatten(2).transpose(1, 2).softmax(-1).transpose(1, 2).reshape(y.shape)
        return nn.functional.interpolate(z, size=x.shape[-2:], mode="nearest")


class Halved(nn.Module):
    """Halves an image three times, and doubles it again: the rest of a division by 8 has to be 0."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(n, 4, 3, stride=2, padding=1) for n in (3, 4, 4)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(4, n, 2, 2) for n in (4, 4, 3)])

    def forward(self, x):
        left = [x]
        for layer in self.down:
            left.append(layer(left[-1]))
        y = left.pop()
        for layer in self.up:
            y = layer(y) + left.pop()
        return y


@pytest.mark.parametrize("size", [16, 64, 224])
def test_images_of_any_size(size):
    axes = {0: "batch", 2: "height", 3: "width"}
    image = flow.rand(1, 3, size, size).numpy()
    others = [[flow.rand(2, 3, h, w).numpy()] for h, w in ((96, 128), (41, 27), (65, 63), (256, 32))]
    compare_with_onnx(Context(), [image], axes, others)
    compare_with_onnx(Halved(), [image], axes, [others[0], others[3]])


def boxes_and_scores(count, seed):
    draw = np.random.default_rng(seed)
    corners = draw.uniform(0, 9, (count, 2))
    boxes = np.concatenate([corners, corners + draw.uniform(0, 4, (count, 2))], 1)
    return [boxes.astype("float32"), draw.permutation(count).astype("float32") / count]


class Detector(nn.Module):
    """The best boxes of two kinds: how many there are depends on values."""

    def forward(self, boxes, scores):
        kept = flow.nms(boxes, scores, 0.3), flow.nms(boxes, 1 - scores, 0.5)
        first, second = (boxes[k] for k in kept)
        both = flow.cat([first, second])
        best, rois = kept[0][:5], flow.cat([flow.zeros(len(both), 1), both], 1)
        return (
            *kept, both, scores[best], first.reshape(-1, 2, 2).mean(0), both.T.reshape(2, 2 * len(both)),
            flow.zeros(len(both), 4) + both, first * len(first),
            flow.roi_align(flow.ones(1, 2, 9, 9) * scores.sum(), rois, 1.0, 2, 2),
        )  # fmt: skip


@pytest.mark.parametrize("opset", [10, 13, 17, 23])
@pytest.mark.parametrize("axes", [{}, {0: "boxes"}])
def test_sizes_that_depend_on_values(opset, axes):
    given, *others = (boxes_and_scores(count, i) for i, count in enumerate((40, 40, 40, 7, 150)))
    others = others if axes else others[:2]
    found = compare_with_onnx(Detector(), given, axes, others, opset)
    assert [node.op_type for node in found.graph.node].count("NonMaxSuppression") == 2
    assert len({len(flow.nms(*map(flow.tensor, x), 0.3)) for x in (given, *others)}) > 1


def test_nms_is_what_torchvision_exports():
    """NonMaxSuppression of one image and one class without a limit, and of its (image, class, box) the last column."""
    inputs = tuple(map(flow.tensor, boxes_and_scores(9, 0)))
    model = Detector()
    model.forward = lambda boxes, scores: flow.nms(boxes, scores, 0.5)
    model.eval()
    found = flow.onnx.export(model, inputs, input_names=["boxes", "scores"])
    assert [x.op_type for x in found.graph.node] == ["Unsqueeze", "Unsqueeze", "NonMaxSuppression", "Gather"]
    values = {x.name: onnx.numpy_helper.to_array(x) for x in found.graph.initializer}
    limit, threshold = (values[name] for name in found.graph.node[2].input[2:])
    assert limit == np.iinfo(np.int64).max and threshold == 0.5 and values[found.graph.node[3].input[1]] == 2
    with pytest.raises(OnnxError, match="nms .*opset 9 has no NonMaxSuppression"):
        flow.onnx.export(model, inputs, opset=9)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("library", "name", "size"),
    [
        ("torchvision", "resnet18", 32),
        ("torchvision", "swin_v2_t", 32),
        ("torchvision", "efficientnet_b0", 32),
        ("timm", "convnextv2_atto", 64),
        ("timm", "mobilevit_xxs", 64),
    ],
)
def test_models_of_libraries(library, name, size):
    models = pytest.importorskip("models")
    models.needed(library)
    draw = np.random.default_rng(0)
    images = [draw.normal(size=(count, 3, size, size)).astype("float32") for count in (2, 3)]
    with models.on_miniflow():
        package = importlib.import_module(library)
        make = package.models.get_model if library == "torchvision" else package.create_model
        compare_with_onnx(make(name), images[:1], {0: "batch"}, [images[1:]])
