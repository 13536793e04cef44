"""Losses, averages of weights, meters and schedules, beside formulas on paper."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, ShapeError
from miniflow.vision import loss, metrics, scheduler
from miniflow.vision.model_ema import ModelEma

RNG = np.random.default_rng(0)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_losses():
    logits, labels = RNG.normal(size=(5, 4)), RNG.integers(0, 4, 5)
    soft = RNG.dirichlet(np.ones(4), 5)
    smoothed = 0.8 * np.eye(4)[labels] + 0.2 / 4
    x, target = flow.tensor(logits), flow.tensor(labels)
    for got, weights in (
        (loss.LabelSmoothingCrossEntropy(0.2)(x, target), smoothed),
        (loss.SoftTargetCrossEntropy()(x, flow.tensor(soft)), soft),
    ):
        np.testing.assert_allclose(got.item(), -(weights * log_softmax(logits)).sum(-1).mean(), rtol=1e-10)
    with pytest.raises(ArgumentError, match="got smoothing=1.5; expected a number from 0 to 1"):
        loss.LabelSmoothingCrossEntropy(1.5)
    with pytest.raises(ShapeError, match=r"got x \(5, 4\) and target \(4,\); expected equal shapes"):
        loss.SoftTargetCrossEntropy()(x, flow.tensor(soft)[0])


def test_accuracy_and_meter():
    logits, labels = RNG.normal(size=(40, 7)), RNG.integers(0, 7, 40)
    ranks = (logits > logits[np.arange(40), labels][:, None]).sum(1)
    got = metrics.accuracy(flow.tensor(logits), flow.tensor(labels), topk=(1, 3, 9))
    np.testing.assert_allclose([x.item() for x in got], [100 * (ranks < k).mean() for k in (1, 3, 7)], rtol=1e-5)
    for output, target, topk in ((logits, labels[:1], (1,)), (logits, labels, (0,)), (logits[:0], labels[:0], (1,))):
        with pytest.raises(ArgumentError, match=r"accuracy: got output \(.*expected logits \(N, classes\), N labels"):
            metrics.accuracy(flow.tensor(output), flow.tensor(target), topk)
    meter = metrics.AverageMeter()
    for value, count in ((2.0, 3), (8.0, 1), (1.0, 0)):
        meter.update(value, count)
    assert (meter.val, meter.sum, meter.count, meter.avg) == (1.0, 14.0, 4, 3.5)
    meter.reset()
    assert (meter.sum, meter.avg) == (0, 0)


def test_moving_average():
    model = flow.nn.Sequential(flow.nn.Linear(2, 3), flow.nn.BatchNorm1d(3))
    average = ModelEma(model, decay=0.75)
    expected = {name: value.numpy().astype(np.float64) for name, value in model.state_dict().items()}
    for step in range(3):
        with flow.no_grad():
            for p in model.parameters():
                p.copy_(flow.tensor(RNG.normal(size=p.shape).astype(np.float32)))
        model(flow.randn(4, 2))
        average.update(model)
        for name, value in model.state_dict().items():
            new = value.numpy()
            expected[name] = step + 1 if name.endswith("tracked") else 0.75 * expected[name] + 0.25 * new
    for name, value in average.ema.state_dict().items():
        np.testing.assert_allclose(value.numpy(), expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert not average.ema.training and not any(p.requires_grad for p in average.ema.parameters())
    assert average.ema is average.module and model.training and next(model.parameters()).requires_grad
    with pytest.raises(ArgumentError, match="decay=2"):
        ModelEma(model, decay=2)


def optimizer(*rates: float) -> flow.optim.SGD:
    return flow.optim.SGD([{"params": [flow.zeros(1, requires_grad=True)], "lr": lr} for lr in rates])


def rates(schedule, times) -> list[list[float]]:
    found = []
    for t in times:
        schedule.step(t)
        found.append([group["lr"] for group in schedule.optimizer.param_groups])
    return found


def test_linear_schedule_after_a_warm_up():
    groups = optimizer(0.4, 2.0)
    groups.param_groups[1]["lr_scale"] = 0.5
    schedule = scheduler.LinearLRScheduler(groups, 10, lr_min_rate=0.1, warmup_t=2, warmup_lr_init=0.1)
    part = np.interp(range(13), [2, 10], [1.0, 0.1])
    expected = np.stack([0.4 * part, 2.0 * part], 1)
    expected[:2] = [[0.1, 0.1], [0.25, 1.05]]
    np.testing.assert_allclose(rates(schedule, range(13)), expected * [1, 0.5], rtol=1e-12)


def test_a_schedule_of_updates_leaves_epochs_alone():
    args = SimpleNamespace(sched="cosine", epochs=2, warmup_epochs=0, sched_on_updates=True, cooldown_epochs=3)
    schedule, epochs = scheduler.create_scheduler(args, optimizer(1.0), updates_per_epoch=4)
    schedule.step_update(6)
    schedule.step(1)
    assert schedule.get_last_lr() == pytest.approx([(1 + math.cos(math.pi * 6 / 8)) / 2]) and epochs == 5
    of_epochs = scheduler.StepLRScheduler(optimizer(1.0), 2, 0.1)
    of_epochs.step_update(7)
    assert of_epochs.get_last_lr() == [1.0]
    with pytest.raises(ArgumentError, match="updates_per_epoch=0; expected how many batches an epoch has"):
        scheduler.create_scheduler(args, optimizer(1.0))


def test_a_schedule_is_saved_and_stepped_without_numbers():
    first, second = (scheduler.CosineLRScheduler(optimizer(1.0), 10, warmup_t=3) for _ in range(2))
    for _ in range(5):
        first.step()
    second.load_state_dict(first.state_dict())
    first.step()
    second.step()
    assert second.get_last_lr() == first.get_last_lr() == pytest.approx([(1 + math.cos(math.pi * 6 / 10)) / 2])


def test_linear_by_name_and_names_that_are_none():
    args = SimpleNamespace(sched="linear", epochs=4, warmup_epochs=0, min_lr=0.1)
    schedule, epochs = scheduler.create_scheduler(args, optimizer(0.5))
    np.testing.assert_allclose(rates(schedule, range(5)), np.linspace(0.5, 0.1, 5)[:, None])
    assert epochs == 4 and scheduler.create_scheduler(SimpleNamespace(sched="none", epochs=4), optimizer(1)) == (
        None,
        4,
    )
    with pytest.raises(ArgumentError, match="got sched='up'; expected one of cosine, tanh, poly, linear, step"):
        scheduler.create_scheduler(SimpleNamespace(sched="up", epochs=4), optimizer(0.5))
    with pytest.raises(ArgumentError, match="CosineLRScheduler: got t_initial=0; expected a number above 0"):
        scheduler.CosineLRScheduler(optimizer(0.5), 0)


def test_a_graph_steps_the_schedule():
    model = flow.nn.Linear(1, 1, bias=False)
    sgd = flow.optim.SGD(model.parameters(), lr=1.0)
    schedule = scheduler.StepLRScheduler(sgd, 1, 0.5, t_in_epochs=False)

    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(sgd, lr_sch=schedule)

        def build(self, x):
            y = self.model(x).sum()
            y.backward()
            return y

    graph, before = Train(), model.weight.item()
    for _ in range(3):
        graph(flow.ones(1, 1))
    assert model.weight.item() == pytest.approx(before - (1 + 0.5 + 0.25))
