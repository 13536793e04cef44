"""A loaded graph goes on with its schedules, and with what each parameter has seen of the steps."""

import copy

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.optim import lr_scheduler as schedules

X = flow.tensor(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))


class Train(nn.Graph):
    def __init__(self, model, optimizer, schedule=None, loss=None):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, lr_sch=schedule)
        self.config.disable_pass("elementwise_fusion", "fused_update")
        self.loss = loss or (lambda model, x: model(x).square().mean())

    def build(self, x):
        loss = self.loss(self.model, x)
        loss.backward()
        return loss


SCHEDULES = {
    "steps": lambda o: schedules.StepLR(o, 2, 0.5),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 4),
    "warmup": lambda o: schedules.WarmupLR(schedules.ExponentialLR(o, 0.9), 0.0, 3),
    "sequence": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o, 0.1, 1.0, 3), schedules.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=False)], [3]
    ),
    "chain": lambda o: schedules.ChainedScheduler([schedules.LinearLR(o), schedules.ExponentialLR(o, 0.9)]),
    "lambda": lambda o: schedules.LambdaLR(o, lambda t: 1 / (1 + t)),
}


def make(kind):
    flow.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = SCHEDULES[kind](optimizer)
    return Train(model, optimizer, schedule), optimizer, schedule


@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_schedule_goes_on(kind):
    whole, one, schedule = make(kind)
    for _ in range(5):
        whole(X)
    again, other, loaded = make(kind)
    again.load_state_dict(copy.deepcopy(whole.state_dict()))
    assert loaded.state_dict() == schedule.state_dict() and loaded.last_step == 5
    for _ in range(4):
        assert_same(again(X), whole(X).numpy())
        assert other.param_groups[0]["lr"] == one.param_groups[0]["lr"]


def test_momentum_that_a_schedule_moves():
    def train(in_graph):
        flow.manual_seed(0)
        model = nn.Linear(3, 2)
        o = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        parts = [schedules.LinearLR(o, 0.5, 1.0, 2), schedules.OneCycleLR(o, 0.2, 9, base_momentum=0.5)]
        schedule = schedules.SequentialLR(o, parts, [2])
        graph = Train(model, o, schedule)
        for _ in range(5):
            if in_graph:
                graph(X)
            else:
                o.zero_grad()
                graph.loss(model, X).backward()
                o.step(), schedule.step()
        return model.weight.detach(), o.param_groups[0]["momentum"]

    (ours, momentum), (eager, expected) = train(True), train(False)
    assert_same(ours, eager.numpy())
    assert momentum == expected < 0.95


def test_a_schedule_that_was_loaded_by_itself_is_left_alone():
    whole, one, schedule = make("steps")
    for i in range(5):
        one.param_groups[0]["lr"] *= 1.5 if i == 3 else 1.0
        whole(X)
    again, other, loaded = make("steps")
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    loaded.load_state_dict(schedule.state_dict())
    again.load_state_dict(copy.deepcopy(whole.state_dict()))
    assert loaded.state_dict() == schedule.state_dict()
    assert other.param_groups[0]["lr"] == one.param_groups[0]["lr"] != 0.025


def test_a_parameter_without_a_step_is_new_after_loading():
    def weight_only(model, x):
        return (x @ model.weight.t()).mean()

    def make(loss=None):
        flow.manual_seed(0)
        model = nn.Linear(3, 2)
        return Train(model, flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5), loss=loss)

    first = make(weight_only)
    for _ in range(2):
        first(X)
    state = copy.deepcopy(first.state_dict())
    assert state["model.bias-step"].tolist() == [0] and "model.weight-step" not in state
    again = make()
    again.load_state_dict(state)

    flow.manual_seed(0)
    twin = nn.Linear(3, 2)
    optimizer = flow.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    for loss in (weight_only, weight_only, again.loss, again.loss):
        optimizer.zero_grad()
        loss(twin, X).backward()
        optimizer.step()
    for _ in range(2):
        again(X)
    for p, q in zip(again.model.parameters(), twin.parameters(), strict=True):
        assert_same(p.detach(), q.detach().numpy())


def test_steps_of_eager_code_are_no_first_ones_after_loading():
    def make():
        flow.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
        return model, optimizer, Train(model, optimizer)

    model, optimizer, graph = make()
    graph.loss(model, X).backward()
    optimizer.step()
    _, _, again = make()
    again.load_state_dict(copy.deepcopy(graph.state_dict()))
    assert_same(again(X), graph(X).numpy())
    assert_same(again(X), graph(X).numpy())


def test_loading_the_model_alone_leaves_the_counts_of_steps():
    model = nn.Linear(3, 2)
    optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
    schedule = schedules.ExponentialLR(optimizer, 0.5)
    graph = Train(model, optimizer, schedule)
    for _ in range(3):
        graph.loss(model, X).backward()
        optimizer.step()
        schedule.step()
    graph.load_state_dict({"model": copy.deepcopy(model.state_dict())}, strict=False)
    assert [state["step"] for state in optimizer.state.values()] == [3, 3]
    assert schedule.last_step == 3 and optimizer.param_groups[0]["lr"] == 0.0125
