"""Losses, averages of weights, accuracy and schedules of vision beside timm's."""

import importlib
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from checks import assert_close
from models import needed, torch

import miniflow as flow
from miniflow.vision import loss, metrics, scheduler
from miniflow.vision.model_ema import ModelEma

pytestmark = pytest.mark.cpu_only("no test here looks at the device")
RNG = np.random.default_rng(0)


def timm(part: str) -> ModuleType:
    """A part of timm on torch."""
    needed("timm")
    return importlib.import_module(f"timm.{part}")


@pytest.mark.parametrize("name", ["LabelSmoothingCrossEntropy", "SoftTargetCrossEntropy"])
def test_losses(name):
    logits, labels = RNG.normal(size=(6, 5)).astype("float32"), RNG.integers(0, 5, 6)
    target = labels if name.startswith("Label") else RNG.dirichlet(np.ones(5), 6).astype("float32")
    found = []
    for framework, source in ((flow, loss), (torch, timm("loss"))):
        x = framework.tensor(logits, requires_grad=True)
        value = getattr(source, name)()(x, framework.tensor(target))
        value.backward()
        found.append((value, x.grad))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_accuracy():
    logits, labels = RNG.normal(size=(30, 6)).astype("float32"), RNG.integers(0, 6, 30)
    ours = metrics.accuracy(flow.tensor(logits), flow.tensor(labels), (1, 5, 8))
    theirs = timm("utils").accuracy(torch.tensor(logits), torch.tensor(labels), (1, 5, 8))
    np.testing.assert_allclose([x.item() for x in ours], [x.item() for x in theirs], rtol=1e-6)


def test_moving_average():
    found = []
    for framework, kind in ((flow, ModelEma), (torch, timm("utils").ModelEma)):
        model = framework.nn.Sequential(framework.nn.Linear(3, 2), framework.nn.BatchNorm1d(2, momentum=0.5))
        with framework.no_grad():
            for p in model.parameters():
                p.fill_(0.25)
        average = kind(model, decay=0.8)
        for step in range(4):
            draw = np.random.default_rng(step)
            with framework.no_grad():
                for p in model.parameters():
                    p.copy_(framework.tensor(draw.normal(size=tuple(p.shape)).astype("float32")))
            model(framework.tensor(draw.normal(size=(5, 3)).astype("float32")))
            average.update(model)
        found.append(average.ema.state_dict())
    assert found[0].pop("1.num_batches_tracked").item() == 4 and found[1].pop("1.num_batches_tracked") is not None
    assert list(found[0]) == list(found[1])
    for name, value in found[1].items():
        assert_close(found[0][name], value, rtol=1e-5, atol=1e-6, what=name)


WARM = {"warmup_t": 3, "warmup_lr_init": 0.01}
SCHEDULES = [
    ("CosineLRScheduler", {"t_initial": 10, "lr_min": 0.001}),
    ("CosineLRScheduler", {"t_initial": 6, "cycle_mul": 2.0, "cycle_decay": 0.5, "cycle_limit": 3, "k_decay": 0.7}),
    ("CosineLRScheduler", {"t_initial": 5, "cycle_decay": 0.5, "cycle_limit": 2, **WARM}),
    ("TanhLRScheduler", {"t_initial": 10, "lr_min": 0.001, **WARM}),
    ("TanhLRScheduler", {"t_initial": 8, "lb": -3.0, "ub": 2.0, "warmup_prefix": True, "cycle_limit": 2, **WARM}),
    ("PolyLRScheduler", {"t_initial": 10, "power": 2.0, "lr_min": 0.001, "k_decay": 1.5, **WARM}),
    ("PolyLRScheduler", {"t_initial": 4, "cycle_mul": 1.5, "cycle_limit": 3, "warmup_prefix": True, **WARM}),
    ("StepLRScheduler", {"decay_t": 4, "decay_rate": 0.5, **WARM}),
    ("StepLRScheduler", {"decay_t": 2.5, "decay_rate": 0.5, "warmup_prefix": False, **WARM}),
    ("MultiStepLRScheduler", {"decay_t": [3, 7, 8], "decay_rate": 0.5}),
    ("MultiStepLRScheduler", {"decay_t": [3, 7], "decay_rate": 0.5, "t_in_epochs": False, **WARM}),
]


def optimizers() -> list:
    """One of each framework, with three groups."""
    made = []
    for framework in (flow, torch):
        groups = [{"params": [framework.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.5, 0.03, 0.1)]
        groups[2]["lr_scale"] = 0.25
        made.append(framework.optim.SGD(groups))
    return made


def rates(schedule, count: int, on_updates: bool) -> list[list[float]]:
    """The learning rates at the beginning, and after each step."""
    groups = schedule.optimizer.param_groups
    found = [[group["lr"] for group in groups]]
    for t in range(1, count):
        (schedule.step_update if on_updates else schedule.step)(t)
        found.append([group["lr"] for group in groups])
    return found


@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_schedules(name, options):
    on_updates = not options.get("t_in_epochs", True)
    ours, theirs = (
        getattr(source, name)(optimizer, **options)
        for source, optimizer in zip((scheduler, timm("scheduler")), optimizers(), strict=True)
    )
    np.testing.assert_allclose(rates(ours, 50, on_updates), rates(theirs, 50, on_updates), rtol=1e-9, atol=1e-12)
    if hasattr(theirs, "get_cycle_length"):
        assert [ours.get_cycle_length(n) for n in (0, 1, 4)] == [theirs.get_cycle_length(n) for n in (0, 1, 4)]


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("on_updates", [False, True])
@pytest.mark.parametrize("sched", ["cosine", "tanh", "poly", "step", "multistep", "none"])
def test_schedules_by_name(sched, on_updates, prefix):
    args = SimpleNamespace(
        sched=sched, epochs=6, warmup_epochs=2, warmup_prefix=prefix, decay_epochs=2, decay_milestones=[3, 5],
        decay_rate=0.3, min_lr=0.01, cooldown_epochs=2, lr_cycle_limit=2, lr_cycle_mul=2, lr_k_decay=0.9,
        sched_on_updates=on_updates,
    )  # fmt: skip
    mine, their = optimizers()
    ours, epochs = scheduler.create_scheduler(args, mine, updates_per_epoch=3)
    theirs, their_epochs = timm("scheduler").create_scheduler(args, their, updates_per_epoch=3)
    assert epochs == their_epochs
    if sched == "none":
        assert ours is theirs is None
    else:
        np.testing.assert_allclose(rates(ours, 40, on_updates), rates(theirs, 40, on_updates), rtol=1e-9, atol=1e-12)


def test_defaults_of_schedules_by_name():
    for sched in ("cosine", "multistep", "step"):
        args = SimpleNamespace(sched=sched, epochs=90)
        mine, their = optimizers()
        ours, epochs = scheduler.create_scheduler(args, mine)
        theirs, their_epochs = timm("scheduler").create_scheduler(args, their)
        np.testing.assert_allclose(rates(ours, 95, False), rates(theirs, 95, False), rtol=1e-9, err_msg=sched)
        assert epochs == their_epochs
