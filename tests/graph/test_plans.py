"""Plans for several kinds of inputs: they share one memory, and a dropped one that is needed again is told."""

import gc
import warnings
import weakref

import numpy as np
import pytest
from checks import assert_close, assert_same
from networks import Predict, normal

import miniflow as flow
from miniflow import nn


def network():
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


class Train(nn.Graph):
    def __init__(self, model, lr=0.1):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=lr))

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


SIZES = [3, 40, 7, 41, 1, 40, 90, 3, 7, 90, 41, 1]  # it grows three times after the first


def memory_of(graph):
    """The memories of all plans that hold one."""
    return {id(plan.replay.memory) for plan in graph._plans if plan.replay.memory.size}


def test_steps_of_many_shapes_share_one_memory():
    graph, model = Train(network()), network()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    for count, size in enumerate(SIZES):
        x = normal(size, 4, seed=count)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        assert_close(graph(x), loss.detach().numpy(), rtol=1e-5, atol=1e-7)
        assert len(memory_of(graph)) == 1
        graph._last.replay.poison()
    needed = [plan.replay.plan.arena_bytes for plan in graph._plans]
    assert len(needed) == len(set(SIZES)) and graph._last.replay.memory.size == max(needed) > 4 * min(needed) > 0
    for ours, theirs in zip(graph.model.parameters(), model.parameters(), strict=True):
        assert_close(ours.detach(), theirs.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_memory_that_is_too_small_is_freed():
    graph = Predict(network())
    graph(normal(2, 4))
    graph(normal(3, 4))
    small = weakref.ref(graph._last.replay.memory)
    graph(normal(200, 4))
    gc.collect()
    assert small() is None
    large = weakref.ref(graph._last.replay.memory)
    graph(normal(2, 4))
    assert graph._last.replay.memory is large()
    graph.model = network()
    graph(normal(2, 4))
    gc.collect()
    assert large() is None and len(graph._plans) == 1


def test_results_outlive_calls_of_other_plans():
    model = network()
    graph = Predict(model)
    inputs = [normal(size, 4, seed=size) for size in (40, 500, 3, 700)]
    results = [graph(x) for x in inputs for _ in range(2)]
    for x, y in zip([x for x in inputs for _ in range(2)], results, strict=True):
        assert_close(y, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_graphs_have_memory_of_their_own():
    model = network()
    first, second = Predict(model), Predict(model)
    first(normal(8, 4)), second(normal(8, 4))
    assert first._last.replay.memory is not second._last.replay.memory


def test_a_dropped_plan_that_is_needed_again_is_told_once():
    graph = Predict(nn.Linear(4, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            for size in range(1, 11):
                graph(normal(size, 4))
        graph(normal(11, 4))  # the eleventh kind: that of size 1 is dropped
    expected = (
        r"compiled again for inputs tensor\(\.\.\., size=\(1, 4\), dtype=miniflow.float32\), whose plan was dropped: "
        r"the plans of 10 kinds of inputs are kept.*pad inputs, or sort them into buckets.*with_dynamic_input_shape\("
    )
    with pytest.warns(UserWarning, match=expected):
        graph(normal(1, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in range(1, 12):
            x = normal(size, 4)
            assert_same(graph(x), graph.model(x).detach().numpy())
    assert len(graph._plans) == 10


def test_numbers_among_the_arguments_are_kinds_too():
    class Times(nn.Graph):
        @nn.Graph.with_dynamic_input_shape(size=2)
        def __init__(self):
            super().__init__()

        def build(self, x, factor):
            return x * factor

    graph, x = Times(), normal(2)
    with pytest.warns(UserWarning, match="becomes a constant of the graph"):
        for factor in (1.0, 2.0, 3.0):
            graph(x, factor)
    with pytest.warns(UserWarning, match="plans of 2 kinds of inputs .* pass numbers that change as tensors"):
        assert_same(graph(x, 1.0), x.numpy())


def test_plans_for_other_modes_do_not_count_as_kinds():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    graph = Predict(model)
    compiled = []
    for _ in range(2):
        for size in range(1, 11):
            for training in (True, False):
                model.train(training)
                graph(normal(size, 4))
        compiled.append(sum(graph._compilations.values()))
    assert compiled == [20, 20] and len(graph._plans) == 20
    graph(normal(11, 4))
    assert len(graph._plans) == 19 and min(plan.metas[0][0][0] for plan in graph._plans) == 2


def test_a_plan_that_no_longer_fits_is_not_a_dropped_one():
    graph = Predict(nn.Linear(4, 3))
    graph(normal(2, 4))
    graph.model.double()
    x = flow.tensor(np.ones((2, 4)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph(x)
        graph.model.float()
        graph(x.float())
        graph.model.double()
        assert_same(graph(x), graph.model(x).detach().numpy())
