"""From miniflow to ONNX and back, and again: exact, but for what the export folds into weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import miniflow as flow
from miniflow import nn
from miniflow.onnx.exporter import optimizer


class Block(nn.Module):
    """A block of a transformer, on the parts of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 2, stride=2)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.Linear(8, 24)
        self.out = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        q, k, v = [part.unflatten(2, (2, 4)).transpose(1, 2) for part in self.attention(self.norm(x)).chunk(3, 2)]
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(x + y.transpose(1, 2).flatten(2)).mean(1), y.argmax(3)


def convolutions() -> nn.Module:
    """A small network of images. Not with a global average, which is loaded as a mean: that adds in another order."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU6(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4), nn.Hardswish(), nn.AvgPool2d((3, 5)), nn.Flatten(),
        nn.Linear(4, 5), nn.Softmax(-1),
    )  # fmt: skip


def results(model: Any, x: Any) -> list[np.ndarray]:
    """As arrays."""
    with flow.no_grad():
        found = model(x)
    return [y.numpy() for y in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("make", [Block, convolutions])
def test_round_trips_are_exact(make: Any, dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.manual_seed(0)
    model, draw = make(), np.random.default_rng(0)
    x = flow.from_numpy(draw.standard_normal((3, 3, 10, 14), np.float32))
    results(model, x)  # the running statistics are no longer 0 and 1
    model.eval()
    axes = {"x" if make is Block else "input": [0]} if dynamic else None
    folded = flow.onnx.load(flow.onnx.export(model, x, dynamic_axes=axes)).eval()
    for a, b in zip(results(model, x), results(folded, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(optimizer, "RULES", [f for f in optimizer.RULES if f is not optimizer.fold_batch_norms])
    first = flow.onnx.export(model, x, dynamic_axes=axes)
    loaded = flow.onnx.load(first).eval()
    second = flow.onnx.export(loaded, x, dynamic_axes=axes)
    assert (second.graph.input[0].name, second.graph.output) == (first.graph.input[0].name, first.graph.output)
    again = flow.onnx.load(second)
    for a, b, c in zip(results(model, x), results(loaded, x), results(again, x), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(b, c)
    weights = [
        {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer if t.data_type == 1 and t.dims}
        for proto in (first, second)
    ]
    assert {name: w.tobytes() for name, w in weights[0].items()} == {n: w.tobytes() for n, w in weights[1].items()}


def test_names_that_a_loaded_model_has_are_not_given_again() -> None:
    """Initializers called like constants and nodes of the export, and an output called like a node."""
    graph = onnx.parser.parse_graph("""g (float[3] x) => (float[3, 1] Relu_1) {
        a = Mul(x, constant_1) b = Add(a, Mul_1) c = Relu(b) d = Add(c, Add_1) Relu_1 = Reshape(d, shape)}""")
    weights = {"constant_1": 2.0, "Mul_1": 4.0, "Add_1": 5.0}
    graph.initializer.extend(onnx.numpy_helper.from_array(np.full(3, v, np.float32), k) for k, v in weights.items())
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([3, 1]), "shape"))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    x = flow.tensor([-5.0, 0.5, 2.0])
    for _ in range(3):
        loaded = flow.onnx.load(model).eval()
        np.testing.assert_array_equal(results(loaded, x)[0], [[5.0], [10.0], [13.0]])
        model = flow.onnx.export(loaded, x)
        assert [t.name for t in model.graph.output] == ["Relu_1"]
        assert {t.name for t in model.graph.initializer} == {*weights, "constant_2"}
