"""Five steps of a graph equal five eager steps: every layer, optimizer, schedule and way to clip.

Bit for bit without elementwise fusion; with all passes within 1e-6 of the largest value of each tensor. Classes are
found in the packages; their examples stand in `twins.py`.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from checks import assert_close, assert_same, on_device
from twins import CLIPS, MODULES, OPTIMIZERS, ROWS, SCHEDULERS, classes

import miniflow as flow
from miniflow import nn, optim
from miniflow.graph.codegen import expressions
from miniflow.optim import lr_scheduler

ON_EVERY_DEVICE = True
STEPS = 5
# the passes that make several operations one: they round differently, or add in another order
REWRITES = ("elementwise_fusion", "normalization_activation", "fused_update", "add_to_output")
ABSTRACT = {"Module", "Optimizer", "LRScheduler"}
NOT_IN_GRAPHS = {"ReduceLROnPlateau", "LBFGS", "SparseAdam"}  # their steps look at values


@pytest.fixture(autouse=True)
def fusing_also_what_is_small(monkeypatch):
    monkeypatch.setitem(expressions.SMALLEST, "cpu", 1)


def classes_of(package, base):
    """The public classes of a package, aliases once."""
    found = {c.__name__ for c in vars(package).values() if inspect.isclass(c) and issubclass(c, base)}
    return sorted(found - ABSTRACT - NOT_IN_GRAPHS)


FOUND = {
    "modules": (classes_of(nn, nn.Module) + ["LeNet", "MLP"], MODULES),
    "optimizers": (classes_of(optim, optim.Optimizer), OPTIMIZERS),
    "schedulers": (classes_of(lr_scheduler, lr_scheduler.LRScheduler), SCHEDULERS),
}


@pytest.mark.parametrize("kind", FOUND)
def test_everything_public_has_a_twin(kind):
    names, examples = FOUND[kind]
    assert set(names) == set(examples), f"add examples to tests/graph/twins.py: {set(names) ^ set(examples)}"


class Training(nn.Graph):
    def __init__(self, model, optimizer, scheduler, exact):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer, lr_sch=scheduler)
        if exact:
            for name in REWRITES:
                self.config.disable_pass(name)

    def build(self, *inputs):
        y, loss = loss_of(self.model, inputs)
        loss.backward()
        return y, loss


def loss_of(model, inputs):
    y = model(*inputs)
    target = (y.detach() * 7).sin()  # of no symmetry: a permuted gradient must differ
    return y, ((y - target) * (y - target)).mean()  # of positive terms: they do not cancel


def eager_step(model, optimizer, scheduler, inputs):
    optimizer.zero_grad()
    y, loss = loss_of(model, inputs)
    loss.backward()
    optimizer.clip_grad()
    optimizer.step()
    if scheduler is not None:
        scheduler.step()
    return y, loss


def made(make_module, make_optimizer, make_scheduler):
    flow.manual_seed(5)
    model = make_module()
    if flow.get_default_device().type == "cuda":
        model.to(flow.get_default_device())
    optimizer = make_optimizer(model.parameters())
    return model, optimizer, make_scheduler(optimizer) if make_scheduler else None


def assert_five_steps_equal(make_module, arrays, make_optimizer, make_scheduler=None, exact=True, train=True):
    eager, twin = (made(make_module, make_optimizer, make_scheduler) for _ in range(2))
    eager[0].train(train), twin[0].train(train)
    graph = Training(*twin, exact)
    compare = assert_same if exact else close_to_the_largest
    inputs = [on_device(a) for a in arrays]
    for _ in range(STEPS):
        state = flow.get_rng_state()
        got = graph(*inputs)
        after = flow.get_rng_state()
        flow.set_rng_state(state)
        want = eager_step(*eager, inputs)
        assert_same(flow.get_rng_state(), after.numpy(), what="random draws taken")
        assert np.isfinite(want[1].item()), "the example diverges"
        for name, a, b in zip(("output", "loss"), got, want, strict=True):
            compare(a, b.detach().cpu().numpy(), what=name)
    mine, theirs = twin[0].state_dict(), eager[0].state_dict()
    for name, value in theirs.items():
        compare(mine[name], value.cpu().numpy(), what=f"{name} after {STEPS} steps")
    if any(p.requires_grad for p in eager[0].parameters()):
        first = fresh(make_module)
        changed = [not np.array_equal(v.cpu().numpy(), old) for v, old in zip(theirs.values(), first, strict=True)]
        assert any(changed), "no parameter changed: the comparison shows nothing"
    assert [g["lr"] for g in twin[1].param_groups] == [g["lr"] for g in eager[1].param_groups]


def fresh(make_module):
    flow.manual_seed(5)
    return [v.cpu().numpy().copy() for v in make_module().state_dict().values()]


def close_to_the_largest(a, b, what):
    assert_close(a, b, rtol=1e-6, atol=1e-6 * max(1e-3, float(np.abs(b).max(initial=0.0))), what=what)


def sgd(parameters):
    return optim.SGD(parameters, lr=0.05, momentum=0.9)


CASES = [(name, i) for name in MODULES for i in range(len(MODULES[name]))]


@pytest.mark.few(len(CASES) // 6)  # each compiles loops of its own
@pytest.mark.parametrize(("name", "i"), CASES, ids=[f"{name}-{i}" for name, i in CASES])
def test_modules(name, i):
    assert_five_steps_equal(*MODULES[name][i], sgd, exact=False)


@pytest.mark.few(len(CASES) // 2)
@pytest.mark.parametrize(("name", "i"), CASES, ids=[f"{name}-{i}" for name, i in CASES])
def test_modules_unfused(name, i):
    assert_five_steps_equal(*MODULES[name][i], sgd, exact=True)


@pytest.mark.parametrize("name", ["Dropout", "BatchNorm2d", pytest.param("LeNet", marks=pytest.mark.slow)])
def test_modules_in_evaluation(name):
    assert_five_steps_equal(*MODULES[name][0], sgd, train=False)


RULES = [(name, i) for name in OPTIMIZERS for i in range(len(OPTIMIZERS[name]))]
NET = (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 6)), [ROWS])


@pytest.mark.few(6 * len(RULES) // 5)  # of each example one of the two, or both
@pytest.mark.parametrize("exact", [True, False], ids=["unfused", "fused"])
@pytest.mark.parametrize(("name", "i"), RULES, ids=[f"{name}-{i}" for name, i in RULES])
def test_optimizers(name, i, exact):
    # steps of rules that divide by a root are about lr long, however small the gradient: large ones amplify rounding
    options = {"lr": 0.05 if name == "SGD" else 0.002, **OPTIMIZERS[name][i]}
    assert_five_steps_equal(*NET, lambda params: getattr(optim, name)(params, **options), exact=exact)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers(name):
    for make in SCHEDULERS[name]:
        assert_five_steps_equal(*NET, sgd, make)


@pytest.mark.parametrize("exact", [True, False], ids=["unfused", "fused"])
@pytest.mark.parametrize("clip", CLIPS, ids=[f"{c}" for c in range(len(CLIPS))])
@pytest.mark.parametrize("rule", ["SGD", "Adam"])
def test_clipping(clip, rule, exact):
    def make(params):
        return getattr(optim, rule)([{"params": list(params), "lr": 0.05, **clip}])

    assert_five_steps_equal(*NET, make, exact=exact)


def test_parameter_groups_with_options_of_their_own():
    def make(params):
        params = list(params)
        groups = [{"params": params[:2], "lr": 0.1}, {"params": params[2:], "weight_decay": 0.1, "momentum": 0.0}]
        return optim.SGD(groups, lr=0.01, momentum=0.9)

    assert_five_steps_equal(*NET, make, lambda o: lr_scheduler.StepLR(o, 2, 0.5))


def test_a_frozen_layer_stays():
    def make():
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        model[0].requires_grad_(False)
        return model

    assert_five_steps_equal(make, [ROWS], lambda params: optim.SGD(list(params), lr=0.1))


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
            self.out.weight = self.table.weight

        def forward(self, tokens):
            return self.out(self.table(tokens).tanh())

    assert_five_steps_equal(Tied, [classes(5, 2, count=6)], sgd)
