"""Learning rate schedules beside PyTorch's, over forty steps."""

import math

import numpy as np
import pytest

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

CASES = [
    ("StepLR", {"step_size": 7}),
    ("StepLR", {"step_size": 3, "gamma": 0.7}),
    ("MultiStepLR", {"milestones": [3, 8, 8, 30], "gamma": 0.5}),
    ("ExponentialLR", {"gamma": 0.93}),
    ("LambdaLR", {"lr_lambda": lambda t: 0.95**t}),
    ("LambdaLR", {"lr_lambda": [lambda t: 1 / (1 + t), lambda t: math.cos(t)]}),
    ("CosineAnnealingLR", {"T_max": 10}),
    ("CosineAnnealingLR", {"T_max": 17, "eta_min": 0.01}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.5, "end_factor": 0.1, "total_iters": 12}),
]


def optimizer(framework):
    groups = [{"params": [framework.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.5, 0.03)]
    return framework.optim.SGD(groups)


def trace(framework, make, step=lambda schedule, t: schedule.step(), steps=40):
    o = optimizer(framework)
    schedule = make(framework.optim.lr_scheduler, o)
    rows = []
    for t in range(steps):
        rows.append([group["lr"] for group in o.param_groups])
        assert schedule is None or list(schedule.get_last_lr()) == rows[-1]
        o.step()
        step(schedule, t)
    return np.array(rows)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_schedule(name, options):
    def make(schedules, o):
        return getattr(schedules, name)(o, **options)

    np.testing.assert_allclose(trace(flow, make), trace(torch, make), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    "pair", [("StepLR", "ExponentialLR"), ("LinearLR", "MultiStepLR"), ("LinearLR", "CosineAnnealingLR")]
)
def test_schedules_stepped_one_after_the_other(pair):
    arguments = {
        "StepLR": (3, 0.5),
        "ExponentialLR": (0.9,),
        "LinearLR": (),
        "MultiStepLR": ([4, 9], 0.5),
        "CosineAnnealingLR": (50,),
    }
    rows = []
    for framework in (flow, torch):
        o = optimizer(framework)
        schedules = [getattr(framework.optim.lr_scheduler, name)(o, *arguments[name]) for name in pair]
        found = []
        for _ in range(40):
            o.step()
            for schedule in schedules:
                schedule.step()
            found.append([group["lr"] for group in o.param_groups])
        rows.append(found)
    np.testing.assert_allclose(*rows, rtol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "constant"])
def test_warmup_is_a_sequence_of_schedules(kind):
    def ours(schedules, o):
        return schedules.WarmupLR(schedules.StepLR(o, 5, 0.5), 0.25, 4, kind, warmup_prefix=True)

    def theirs(schedules, o):
        first = schedules.LinearLR(o, 0.25, 1.0, 4) if kind == "linear" else schedules.ConstantLR(o, 0.25, 4)
        return schedules.SequentialLR(o, [first, schedules.StepLR(o, 5, 0.5)], [4])

    np.testing.assert_allclose(trace(flow, ours), trace(torch, theirs), rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"factor": 0.5, "patience": 2},
        {"factor": 0.5, "patience": 1, "mode": "max", "threshold": 0.05},
        {"factor": 0.5, "patience": 1, "threshold": 0.1, "threshold_mode": "abs", "cooldown": 3},
        {
            "factor": 0.3,
            "patience": 1,
            "mode": "max",
            "threshold": 0.1,
            "threshold_mode": "abs",
            "min_lr": [0.1, 0.001],
        },
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_plateau(options, sign):
    draw = np.random.default_rng(0)
    metrics = sign * (np.exp(-np.arange(40) / 8) + 0.3 * draw.normal(size=40))

    def make(schedules, o):
        return schedules.ReduceLROnPlateau(o, **options)

    def step(schedule, t):
        schedule.step(metrics[t])

    ours, theirs = trace(flow, make, step), trace(torch, make, step)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert len(np.unique(ours[:, 0])) > 1
