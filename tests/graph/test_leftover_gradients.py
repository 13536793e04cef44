"""What eager code left in `.grad` is not part of a graph's step, and is there afterwards; what build may not do."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn
from miniflow.errors import ArgumentError, GraphError
from miniflow.optim import lr_scheduler as schedules

X = flow.tensor(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, x):
        return self.used(self.body(x)).square().mean()


def graph_of(build, *optimizers, scaler=None, steps=1, **modules):
    class Anonymous(nn.Graph):
        def __init__(self):
            super().__init__()
            for name, module in modules.items():
                setattr(self, name, module)
            for optimizer in optimizers:
                self.add_optimizer(optimizer)
            self.set_grad_scaler(scaler)
            self.config.set_gradient_accumulation_steps(steps)
            self.config.disable_pass("elementwise_fusion", "fused_update")

        def build(self, x):
            return build(x)

    return Anonymous()


def heads(rule="SGD", frozen=False, **options):
    """A model of which eager code has trained all, with the gradients of that, and its optimizer."""
    flow.manual_seed(0)
    model = Heads()
    optimizer = getattr(flow.optim, rule)([{"params": list(model.parameters()), **options}], lr=0.1)
    (model(X) + 100 * model.unused(model.body(X)).mean()).backward()
    optimizer.step()
    if frozen:
        model.body.requires_grad_(False)
    return model, optimizer


def backward(model):
    def build(x):
        loss = model(x)
        loss.backward()
        return loss

    return build


@pytest.mark.parametrize("rule", ["SGD", "Adam"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("scale", [None, 4.0])
@pytest.mark.parametrize("options", [{}, {"clip_grad_max_norm": 0.01}], ids=["plain", "clipped"])
def test_parameters_that_backward_does_not_reach_stay(rule, frozen, scale, options):
    (model, optimizer), (twin, other) = heads(rule, frozen, **options), heads(rule, frozen, **options)
    left = {name: p.grad.clone() for name, p in model.named_parameters()}
    scaler = None if scale is None else flow.amp.GradScaler(init_scale=scale)
    graph = graph_of(backward(model), optimizer, scaler=scaler, model=model)
    for _ in range(3):
        graph(X)
        other.zero_grad()
        twin(X).backward()
        other.clip_grad()
        other.step()
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert_same(p.detach(), q.detach().numpy())
        assert_same(p.grad, left[name].numpy())


def test_an_infinite_gradient_left_over_skips_no_step():
    model, optimizer = heads()
    model.unused.bias.grad = flow.tensor([float("inf")])
    scaler = flow.amp.GradScaler(init_scale=16.0)
    graph = graph_of(backward(model), optimizer, scaler=scaler, model=model)
    graph(X)
    assert scaler.get_scale() == 16.0 and graph.state_dict()["System-Train-TrainStep"].tolist() == [1]


def test_a_norm_in_build_counts_no_gradient_left_over():
    model, optimizer = heads()
    met_later = nn.Linear(3, 3)
    met_later.weight.grad = flow.full((3, 3), 100.0)
    found = []

    def build(x):
        loss = model(met_later(x).detach())
        loss.backward()
        found.append([p.grad is None for p in met_later.parameters()])
        return nn.utils.clip_grad_norm_([*model.parameters(), *met_later.parameters()], 10.0)

    norm = graph_of(build, optimizer, model=model)(X)
    assert found == [[True, True]] and norm.item() < 100
    assert met_later.weight.grad.tolist() == [[100.0] * 3] * 3


FORGETTING = {
    "optimizer": lambda model, optimizer: optimizer.zero_grad(),
    "zeros": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "model": lambda model, optimizer: model.zero_grad(),
    "assigned": lambda model, optimizer: [setattr(p, "grad", p.detach() * 2) for p in model.parameters()],
}


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("how", FORGETTING)
def test_gradients_are_there_after_build_has_changed_them(how, trains):
    model, optimizer = heads()
    left = [p.grad for p in model.parameters()]
    values = [gradient.clone() for gradient in left]

    def build(x):
        FORGETTING[how](model, optimizer)
        loss = model(x)
        if trains:
            loss.backward()
        return loss

    graph_of(build, *[optimizer] * trains, model=model)(X)
    for p, gradient, value in zip(model.parameters(), left, values, strict=True):
        assert p.grad is gradient
        assert_same(gradient, value.numpy())


def test_a_gradient_assigned_in_build_is_that_of_the_update():
    p = nn.Parameter(flow.zeros(2))
    model = nn.Linear(3, 1)

    def build(x):
        model(x).mean().backward()
        p.grad = x[0, :2] * 1.0

    graph_of(build, flow.optim.SGD([p, *model.parameters()], lr=1.0), model=model)(X)
    assert_same(p.detach(), -X[0, :2].numpy())
    assert p.grad is None


# what the graph does itself


def decay(optimizer):
    return schedules.StepLR(optimizer, 1, 0.5)


WITHIN = {
    "optimizer": (lambda o: o.step, "SGD.step was called in build; the graph steps its optimizers itself: use add_opt"),
    "schedule": (lambda o: decay(o).step, "StepLR.step was called in build; the graph steps its schedules itself"),
    "plateau": (
        lambda o: (lambda s: lambda: s.step(1.0))(schedules.ReduceLROnPlateau(o)),
        "ReduceLROnPlateau.step was called in build; the metric has no value yet",
    ),
    "scale": (
        lambda o: lambda: flow.amp.GradScaler().scale(flow.ones(1)),
        "GradScaler.scale was called in build; the graph scales the loss and the gradients itself: use set_grad_scaler",
    ),
    "scaled step": (lambda o: lambda: flow.amp.StaticGradScaler(2.0).step(o), "StaticGradScaler.step was called"),
    "unscale": (lambda o: lambda: flow.amp.GradScaler().unscale_(o), "GradScaler.unscale_ was called"),
    "update": (lambda o: lambda: flow.amp.GradScaler().update(2.0), "GradScaler.update was called"),
}


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("what", WITHIN)
def test_build_does_not_do_what_the_graph_does(what, added):
    model, optimizer = heads()
    make, message = WITHIN[what]
    step = make(optimizer)
    before = model.used.weight.detach().clone()

    def build(x):
        loss = model(x)
        if added:
            loss.backward()
        step()
        return loss

    with pytest.raises(GraphError, match=message):
        graph_of(build, *[optimizer] * added, model=model)(X)
    assert_same(model.used.weight.detach(), before.numpy())
    optimizer.step()


def test_one_optimizer_is_added_once():
    _, optimizer = heads()
    graph = graph_of(None, optimizer)
    with pytest.raises(ArgumentError, match="add_optimizer: got the same SGD twice; expected every optimizer once"):
        graph.add_optimizer(optimizer)


CLIPPING = {
    "norm": lambda model, optimizer: nn.utils.clip_grad_norm_(model.parameters(), 0.1),
    "value": lambda model, optimizer: nn.utils.clip_grad_value_(model.parameters(), 0.1),
    "group": lambda model, optimizer: optimizer.clip_grad(),
}


@pytest.mark.parametrize("clip", CLIPPING)
@pytest.mark.parametrize(
    "case, message",
    [
        ({"scaler": flow.amp.GradScaler()}, "gradients are still multiplied by the scale; give .*'clip_grad_max_norm'"),
        ({"scaler": flow.amp.StaticGradScaler(8.0)}, "gradients are still multiplied by the scale"),
        ({"steps": 2}, "gradients are those of one micro-batch; give .*'clip_grad_max_norm'"),
    ],
    ids=["scaled", "scaled by a fixed number", "accumulated"],
)
def test_gradients_are_not_clipped_before_they_are_those_of_the_update(clip, case, message):
    model, optimizer = heads(clip_grad_max_norm=0.1)

    def build(x):
        model(x).backward()
        CLIPPING[clip](model, optimizer)

    with pytest.raises(GraphError, match=message):
        graph_of(build, optimizer, model=model, **case)(X)


def test_gradients_may_be_clipped_under_a_scaler_that_is_not_enabled():
    model, optimizer = heads()

    def build(x):
        model(x).backward()
        return nn.utils.clip_grad_norm_(model.parameters(), 0.1)

    assert graph_of(build, optimizer, model=model, scaler=flow.amp.GradScaler(enabled=False))(X).item() > 0


def test_leaves_with_an_equal_gradient_are_clipped_once_each():
    a, b = (nn.Parameter(flow.ones(1)) for _ in range(2))
    optimizer = flow.optim.SGD([{"params": [a, b], "clip_grad_max_norm": 1.0}], lr=1.0)

    def build(x):
        ((a + b) * 3 * x.mean() ** 0).sum().backward(create_graph=True)

    graph_of(build, optimizer, scaler=flow.amp.GradScaler(init_scale=16.0))(X)
    assert 1 - a.item() == pytest.approx(0.5**0.5, abs=1e-5) and 1 - b.item() == pytest.approx(0.5**0.5, abs=1e-5)
