"""Calls in a worker thread compute what calls compute, in order, while the program goes on."""

import threading
import time
import warnings
from concurrent.futures import Future

import numpy as np
import pytest
from checks import assert_same
from networks import Net, Predict, Train, check_states, labels, normal, pair

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentTypeError, GraphTraceError


def batches(count=6):
    return [(normal(8, 4, seed=i), labels(8)) for i in range(count)]


def made(model):
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = flow.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, 20)
    return Train(model, optimizer, scheduler=schedule)


def test_steps_are_those_of_calls_with_the_same_random_numbers():
    first, second = pair(Net)
    called, submitted = made(first), made(second)
    flow.manual_seed(1)
    expected = []
    for x, y in batches():
        expected += [called(x, y), flow.rand(3)]
    flow.manual_seed(1)
    got, waiting = [], []
    for x, y in batches():
        waiting.append(submitted.submit(x, y))
        got += [waiting[-1], flow.rand(3)]
    assert all(isinstance(future, Future) for future in waiting)
    for a, b in zip(got, expected, strict=True):
        assert_same(a.result() if isinstance(a, Future) else a, b.numpy())
    check_states(first, second)
    assert submitted._train_step == called._train_step == 6 and len(submitted._plans) == 1
    momenta = [graph._optimizers[0].param_groups[0]["momentum"] for graph in (called, submitted)]
    assert momenta[0] == momenta[1] != 0.9


def test_many_shapes_and_modes():
    model, twin = pair(Net)
    graph, expected, waiting = Predict(model), [], []
    flow.manual_seed(2)
    for i in range(12):
        twin.train(i % 3 != 0)
        expected.append(twin(normal(2 + i % 4, 4, seed=i)).detach())
    flow.manual_seed(2)
    for i in range(12):
        model.train(i % 3 != 0)  # what a call computes is decided when it is submitted
        waiting.append(graph.submit(normal(2 + i % 4, 4, seed=i)))
    for future, y in zip(waiting, expected, strict=True):
        np.testing.assert_allclose(future.result().numpy(), y.numpy(), rtol=1e-5, atol=1e-6)
    check_states(model, twin)


def test_the_program_goes_on_meanwhile():
    graph, x = Predict(nn.Linear(4, 3)), normal(8, 4)
    graph(x)
    replay, begun, go_on = graph._last.replay, threading.Event(), threading.Event()

    class Slow(type(replay)):
        def __call__(self, *args):
            begun.set()
            assert go_on.wait(20) and threading.current_thread() is not threading.main_thread()
            return super().__call__(*args)

    replay.__class__ = Slow
    future, later = graph.submit(x), graph.submit(2 * x)
    assert begun.wait(20) and not future.done() and not later.done()
    go_on.set()
    assert_same(later.result(20), graph.model(2 * x).detach().numpy())
    assert future.done()


def test_order_over_graphs():
    class Add(nn.Graph):
        def __init__(self, owner, amount):
            super().__init__()
            self.owner, self.amount = owner, amount

        def build(self):
            self.owner.total.mul_(2.0).add_(self.amount)
            return self.owner.total * 1

    owner = nn.Module()
    owner.register_buffer("total", flow.zeros(()))
    one, two = Add(owner, 1.0), Add(owner, 2.0)
    waiting = [graph.submit() for graph in (one, two, two, one)]
    assert [future.result().item() for future in waiting] == [1.0, 4.0, 10.0, 21.0]


class Stops(nn.Graph):
    def build(self, x):
        raise RuntimeError("stop here")


def test_arguments_with_names_and_errors():
    class Scaled(nn.Graph):
        def build(self, x, *, factor):
            return x * factor

    graph, x = Scaled(), normal(3)
    assert_same(graph.submit(x, factor=flow.tensor(2.0)).result(), (x * 2).numpy())
    with pytest.raises(ArgumentTypeError, match="factor"):
        graph.submit(x)
    with pytest.raises(RuntimeError, match="stop here"):
        type(
            "Stops", (nn.Graph,), {"build": lambda self, x: (_ for _ in ()).throw(RuntimeError("stop here"))}
        )().submit(x)
    lookup = type("Lookup", (nn.Graph,), {"build": lambda self, i: flow.zeros(3)[i]})()
    lookup.submit(flow.tensor([0, 1])).result()
    future = lookup.submit(flow.tensor([0, 7]))
    with pytest.raises(flow.errors.IndexRangeError):
        future.result()
    assert lookup.submit(flow.tensor([2])).result().tolist() == [0.0]


def test_a_submitted_call_in_the_build_of_another_is_refused():
    inner = Predict(nn.Linear(4, 3))
    outer = type("Outer", (nn.Graph,), {"build": lambda self, x: inner.submit(x).result()})()
    with pytest.raises(GraphTraceError, match="cannot be called within the build of another"):
        outer(normal(2, 4))


def test_gradient_modes_and_warnings_are_those_of_the_program():
    graph, x = Predict(nn.Linear(4, 3)), normal(2, 4)
    with pytest.warns(UserWarning, match="does not see the autocast around its call"), flow.autocast("cpu"):
        graph.submit(x).result()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with flow.no_grad():
            y = graph.submit(x.clone().requires_grad_()).result()
    assert not y.requires_grad


def test_threads_that_submit_at_the_same_time():
    model = nn.Linear(4, 3)
    graph, failures = Predict(model), []

    def work(seed):
        for i in range(20):
            x = normal(1 + (seed + i) % 5, 4, seed=seed * 100 + i)
            y = graph.submit(x).result()
            if not np.allclose(y.numpy(), model(x).detach().numpy(), atol=1e-6):
                failures.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and time.monotonic() - start < 60 and len(graph._plans) == 5
