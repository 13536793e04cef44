"""The state of graphs: OneFlow's names, files, and going on where a graph stopped."""

from collections import OrderedDict

import numpy as np
import pytest
from checks import assert_same
from networks import Predict, Train, labels, normal

import miniflow as flow
from miniflow import nn
from miniflow.errors import CheckpointError, GraphError

RULES = {
    "SGD": (dict(momentum=0.9), ["-momentum"]),
    "Adam": (dict(amsgrad=True), ["-m", "-v", "-max_v"]),
    "AdamW": (dict(), ["-m", "-v"]),
    "RMSprop": (dict(momentum=0.5, centered=True), ["-mean_square", "-mean_gradient", "-momentum"]),
    "Adagrad": (dict(), ["-sum"]),
}
X, Y = normal(8, 4), labels(8)


def make(rule="Adam", **options):
    flow.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    return Train(model, getattr(flow.optim, rule)(model.parameters(), lr=0.05, **options))


@pytest.mark.parametrize("rule", RULES)
def test_names_are_those_of_oneflow(rule):
    options, endings = RULES[rule]
    graph = make(rule, **options)
    before = list(graph.state_dict())
    graph(X, Y)
    state = graph.state_dict()
    parameters = [f"model.{n}.{kind}" for n in range(3) for kind in ("weight", "bias")]
    assert list(state) == before == [
        "model", "loss_function", *[p + end for p in parameters for end in endings], "System-Train-TrainStep",
    ]  # fmt: skip
    assert isinstance(state["model"], OrderedDict) and list(state["model"])[:3] == ["0.weight", "0.bias", "1.weight"]
    step = state["System-Train-TrainStep"]
    assert step.dtype is flow.int64 and step.shape == (1,) and step.tolist() == [1]
    assert all(np.any(state[p + end].numpy() != 0) for p in ("model.0.weight", "model.2.bias") for end in endings)


@pytest.mark.parametrize("rule", RULES)
def test_going_on_from_a_file(rule, tmp_path):
    options, _ = RULES[rule]
    whole, first = make(rule, **options), make(rule, **options)
    expected = [whole(X, Y) for _ in range(6)][3:]
    for _ in range(3):
        first(X, Y)
    flow.save(first.state_dict(), tmp_path / "graph.safetensors")
    second = make(rule, **options)
    second.model[0].weight.data = flow.zeros(6, 4)
    keys = second.load_state_dict(flow.load(tmp_path / "graph.safetensors"))
    assert repr(keys) == "<All keys matched successfully>"
    for want in expected:
        assert_same(second(X, Y), want.numpy())
    assert second.state_dict()["System-Train-TrainStep"].tolist() == [6]


def test_the_first_step_of_momentum_is_not_fresh_again():
    """With dampening, the first step of all differs from the others."""
    whole, first = (make("SGD", momentum=0.9, dampening=0.5) for _ in range(2))
    expected = [whole(X, Y).item() for _ in range(4)]
    losses = [first(X, Y).item(), first(X, Y).item()]
    second = make("SGD", momentum=0.9, dampening=0.5)
    second.load_state_dict(first.state_dict())
    assert losses + [second(X, Y).item(), second(X, Y).item()] == expected


def test_after_the_first_call_it_is_too_late():
    graph = make()
    state = graph.state_dict()
    graph(X, Y)
    with pytest.raises(GraphError, match="nn.Graph's state dict can only be loaded before the first call of a graph."):
        graph.load_state_dict(state)


def test_what_does_not_fit_changes_nothing():
    graph, other = make(), make()
    other(X, Y)
    good = other.state_dict()
    bad = {**good, "model": {**good["model"], "0.weight": flow.zeros(2, 2)}, "odd": flow.zeros(1)}
    del bad["model.2.bias-v"]
    before = {name: value.tolist() for name, value in graph.model.state_dict().items()}
    with pytest.raises(CheckpointError) as caught:
        graph.load_state_dict(bad)
    message = str(caught.value)
    assert message.startswith("Train.load_state_dict: nothing was loaded, build the module as it was when saved")
    for line in (
        "size mismatch for model.0.weight: of shape (2, 2); expected of shape (6, 4)",
        "model.2.bias-v is missing; expected of shape (3,)",
        "odd is unexpected: of shape (1,)",
    ):
        assert line in message
    assert {name: value.tolist() for name, value in graph.model.state_dict().items()} == before
    assert graph.state_dict()["System-Train-TrainStep"].tolist() == [0]
    with pytest.raises(CheckpointError, match=r"load_state_dict: got a list; expected a dict from state_dict\(\)"):
        graph.load_state_dict([])


def test_not_strict_passes_over_names():
    graph, other = make(), make()
    other(X, Y)
    state = dict(other.state_dict(), odd=flow.zeros(1))
    del state["model.2.bias-v"]
    keys = graph.load_state_dict(state, strict=False)
    assert keys.missing_keys == ["model.2.bias-v"] and keys.unexpected_keys == ["odd"]
    np.testing.assert_array_equal(graph.model[0].weight.tolist(), other.model[0].weight.tolist())
    predict = Predict(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)))
    assert predict.load_state_dict(other.state_dict(), strict=False).missing_keys == []
    np.testing.assert_array_equal(predict.model[2].bias.tolist(), other.model[2].bias.tolist())
    assert list(predict.state_dict()) == ["model"]


def test_steps_that_differ_from_the_graphs_are_kept():
    def both():
        graph = make()
        return graph, graph._optimizers[0]

    first, optimizer = both()
    for p in first.model[0].parameters():
        p.grad = flow.ones_like(p)
    optimizer.step()  # in eager code
    first(X, Y)
    state = first.state_dict()
    assert state["model.0.weight-step"].tolist() == [2] and "model.2.weight-step" not in state
    second, optimizer = both()
    second.load_state_dict(state)
    assert [s["step"] for s in optimizer.state.values()] == [2, 2, 1, 1, 1, 1]
    assert second(X, Y).item() == first(X, Y).item()


def test_the_loss_scale_is_part_of_it():
    def both():
        model = nn.Linear(4, 3)
        scaler = flow.amp.GradScaler(init_scale=8.0, growth_interval=3)
        return Train(model, flow.optim.SGD(model.parameters(), lr=0.1), scaler=scaler), scaler

    graph, _ = both()
    for _ in range(4):
        graph(X, Y)
    state = graph.state_dict()
    assert state["System-Train-LossScale"].tolist() == [16.0]
    assert state["System-Train-GoodStepCounter"].tolist() == [1]
    graph, scaler = both()
    graph.load_state_dict(state)
    assert scaler.get_scale() == 16.0 and scaler.state_dict()["_growth_tracker"] == 1


def test_runtime_state_is_what_save_writes():
    graph = make()
    with pytest.raises(GraphError, match=r"use flow.save\(graph, folder\)"):
        graph.runtime_state_dict()
    with pytest.raises(GraphError, match=r"use nn.Graph.load\(folder\)"):
        graph.load_runtime_state_dict({})
    with pytest.raises(GraphError, match="graph must be compiled first."):
        flow.save(graph, "nowhere")
