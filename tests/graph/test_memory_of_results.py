"""Whose memory results, states and inputs lie in: what a caller or eager code does to them later changes no other."""

import numpy as np
import pytest

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphError

ON_EVERY_DEVICE = True
SMALL, LARGE = 8, 40  # rows of as many elements: below and above what is copied out of the planned memory


def graph_of(build):
    return nn.Graph.trace(build)


@pytest.mark.parametrize("n", [SMALL, LARGE])
@pytest.mark.parametrize(
    "build",
    [
        lambda x: (x * 2, x * 2),
        lambda x: [y := x.relu(), y.clone()],
        lambda x: [y := x.relu(), y * 1.0],
        lambda x: [y := x.exp(), y.view(-1).clone()],
        lambda x: (flow.zeros(3), flow.zeros(3)),
        lambda x: (x.clone(), x.clone()),
    ],
    ids=["computed twice", "a clone", "times one", "a clone of a view", "constants", "clones of the input"],
)
def test_no_two_results_share_memory(build, n):
    x = flow.randn(n, n)
    first, second = graph_of(build)(x)
    before = second.cpu().numpy().copy()
    first.add_(100)
    assert (second.cpu().numpy() == before).all()


@pytest.mark.parametrize("change", ["shape", "dtype", "flags"])
def test_a_result_whose_array_was_changed_is_not_used_again(change):
    graph = graph_of(lambda x: flow.softmax(x, -1))
    x = flow.randn(LARGE, LARGE, device="cpu")
    want = graph(x).numpy().copy()
    for _ in range(3):
        array = graph(x).numpy()
        if change == "shape":
            array.shape = (-1,)
        elif change == "dtype":
            array.dtype = np.int32
        else:
            array.setflags(write=False)
        del array
        np.testing.assert_array_equal(graph(x).numpy(), want)


class Weight(nn.Module):
    def __init__(self, values):
        super().__init__()
        self.w = nn.Parameter(values)

    def forward(self, x):
        return x @ self.w


def test_a_binding_that_fails_is_tried_again_at_every_call():
    """And never runs on the memory that the parameter had before."""
    module = Weight(flow.ones(2, 3, device="cpu"))
    x = flow.ones(1, 2, device="cpu")
    graph = graph_of(module.forward)
    graph(x)
    replay = graph._require_plan("memory").replay
    module.w.data = flow.full((2, 4), 5.0, device="cpu")
    for _ in range(2):
        with pytest.raises(GraphError, match=r"was recorded as f32\[2, 3\]"):
            replay([x._array])
    module.w.data = flow.full((2, 3), 7.0, device="cpu")
    np.testing.assert_array_equal(replay([x._array])[0], np.full((1, 3), 14.0))
    module.w.data = flow.full((3, 2), 7.0, device="cpu").t()
    with pytest.raises(GraphError, match="w has strides .* expected them unchanged"):
        replay([x._array])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_state_that_overlaps_several_is_not_updated_while_one_of_them_is_read(swapped):
    """The parameter is large enough for its update to be moved to where its gradient is ready."""
    layer = nn.Linear(300, 300, bias=False)
    late, soon = layer.weight.detach()[:2], layer.weight.detach()[200:]
    if swapped:
        late, soon = soon, late

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer
            self.add_optimizer(flow.optim.SGD(layer.parameters(), lr=0.1))

        def build(self, x):
            (self.layer(x) + soon.sum()).square().sum().backward()
            return late * 2

    x, step = flow.randn(4, 300), Step()
    for _ in range(2):
        want = (late * 2).cpu().numpy().copy()
        np.testing.assert_array_equal(step(x).cpu().numpy(), want)
        assert (want != (late * 2).cpu().numpy()).any()


def test_an_input_that_lies_in_a_written_state_is_copied():
    def build(x):
        y = x + module.a
        module.b.copy_(x)
        module.a.mul_(2)
        return y

    module = nn.Module()
    module.register_buffer("a", flow.ones(4))
    module.register_buffer("b", flow.zeros(4))
    graph = graph_of(build)
    assert graph(module.a).tolist() == [2.0] * 4
    assert module.a.tolist() == [2.0] * 4 and module.b.tolist() == [1.0] * 4


@pytest.mark.parametrize("function", [flow.relu, flow.exp, lambda x: x * 0.5, lambda x: x.clone()])
def test_transposed_operands_can_be_reshaped(function):
    x = flow.arange(24, dtype=flow.float32).reshape(4, 6).t()

    def build(x):
        return function(x).reshape(2, 12), function(x.t()).reshape(3, 8), x.reshape(-1)

    for got, want in zip(graph_of(build)(x), build(x), strict=True):
        np.testing.assert_allclose(got.cpu().numpy(), want.cpu().numpy(), rtol=1e-6)


def test_few_rows_are_multiplied_alike_however_the_weight_is_transposed():
    x, w = flow.randn(16, 256, device="cpu"), flow.randn(256, 256, device="cpu")
    want = flow.matmul(x, w.t())
    assert (flow.nn.functional.linear(x, w).numpy() == want.numpy()).all()
    assert (graph_of(lambda x: flow.matmul(x, w.t()))(x).numpy() == want.numpy()).all()


class TwoBuffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("u", flow.zeros(3))
        self.register_buffer("v", flow.ones(3))

    def forward(self, x):
        self.u.add_(x)
        return self.v * 2


def test_states_that_come_to_overlap_after_the_recording_are_recorded_again():
    module = TwoBuffers()
    graph = graph_of(module.forward)
    x = flow.ones(3)
    assert graph(x).tolist() == [2, 2, 2]
    memory = flow.zeros(6)
    module.u.data, module.v.data = memory[:3], memory[3:]
    assert graph(x).tolist() == [0, 0, 0]
    module.v.data = memory[2:5]
    with pytest.raises(GraphError, match="u and .*v share memory"):
        graph(x)
