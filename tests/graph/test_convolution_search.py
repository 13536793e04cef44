"""`enable_cudnn_conv_heuristic_search_algo(False)`: the methods of convolutions are timed, the fastest is kept."""

import time

import numpy as np
import pytest

import miniflow as flow
from miniflow import nn
from miniflow.backends.cpu import conv
from miniflow.backends.windows import Windows
from tests.checks import assert_close
from tests.ops.test_convolution import LARGE, RNG, numpy_conv2d, numpy_gradients, operands, pair


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch):
    monkeypatch.setattr(conv, "fastest", {})


class Train(nn.Graph):
    def __init__(self, model, heuristics):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))
        self.config.enable_cudnn_conv_heuristic_search_algo(heuristics)

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def train(heuristics):
    flow.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 6, 3, groups=2)
    )
    graph = Train(model, heuristics)
    losses = [graph(flow.randn(2, 2, 12, 11)).item() for _ in range(3)]
    return losses, [p.numpy() for p in model.parameters()], graph


def test_a_graph_times_each_geometry_once(monkeypatch):
    timed = []
    measured = conv.measured

    def noting(what, candidates, arrays):
        timed.append((what, {c.__name__ for c in candidates}))
        return measured(what, candidates, arrays)

    monkeypatch.setattr(conv, "measured", noting)
    expected, weights, graph = train(True)
    assert timed == [] and conv.fastest == {}
    losses, found, graph = train(False)
    each = ["data_grad"] * 3 + ["forward"] * 4 + ["weight_grad"] * 4  # one group of the last layer is a case, too
    assert sorted(what for what, _ in timed) == each and len(conv.fastest) == len(each)
    assert {"winograd", "columns", "direct"} in [names for _, names in timed], timed
    assert {"one_by_one", "direct"} in [names for _, names in timed], timed
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    for a, b in zip(found, weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    assert repr(graph.config) == "(CONFIG:config:GraphConfig(training=True, conv_heuristics=False, ))"
    graph.config.enable_cudnn_conv_heuristic_search_algo()
    assert repr(graph.config) == "(CONFIG:config:GraphConfig(training=True, ))"


def test_the_fastest_is_kept_where_it_is_a_tenth_faster(monkeypatch):
    def taking(seconds):
        return lambda *arrays: time.sleep(seconds)

    slow, fast, alike = taking(0.03), taking(0.01), taking(0.029)
    assert conv.measured("forward", [slow, fast], ()) is fast
    assert conv.measured("forward", [fast, slow], ()) is fast
    assert conv.measured("forward", [slow, alike], ()) is slow


def test_later_calls_take_what_was_the_fastest(monkeypatch):
    called = []

    def loops(what, *arrays):
        called.append(what)
        conv.direct(what, *arrays)

    monkeypatch.setattr(conv, "measured", lambda what, candidates, arrays: loops)
    x, weight = flow.randn(2, 3, 7, 8), flow.randn(4, 3, 3, 3)
    expected = nn.functional.conv2d(x, weight)
    assert called == []
    with conv.search():
        nn.functional.conv2d(x, weight)
    assert_close(nn.functional.conv2d(x, weight), expected, rtol=1e-4, atol=1e-5)
    nn.functional.conv2d(x[:1], weight)  # another shape
    assert called == ["forward", "forward"]


@pytest.mark.parametrize("name", LARGE)
def test_all_methods_compute_the_same(name):
    shape, weight_shape, (stride, padding, dilation, groups), _ = LARGE[name]
    x, weight, _ = (a.astype(np.float32) for a in operands(shape, weight_shape))
    windows = Windows(weight_shape[2:], pair(stride), tuple((p, p) for p in pair(padding)), pair(dilation))
    wide = x.astype(np.float64), weight.astype(np.float64)
    y = numpy_conv2d(*wide, None, stride, padding, dilation, groups)
    dy = RNG.standard_normal(y.shape).astype(np.float32)
    dx, dweight = numpy_gradients(dy.astype(np.float64), *wide, stride, padding, dilation, groups)
    calls = {"forward": (y, x, weight), "data_grad": (dx, dy, weight), "weight_grad": (dweight, dy, x)}
    for what, (expected, first, second) in calls.items():
        for method in conv.methods(x.shape, weight.shape, windows, groups, x.dtype):
            out = np.full(expected.shape, np.nan, np.float32)
            images, kernel = {"forward": (x, weight), "data_grad": (out, weight), "weight_grad": (x, out)}[what]
            method(what, out, first, second, images, kernel, windows, groups)
            atol = 2e-5 * np.abs(expected).max()
            assert_close(out, expected.astype(np.float32), rtol=1e-4, atol=atol, what=f"{what}, {method.__name__}")
