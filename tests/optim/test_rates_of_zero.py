"""Schedules that pass through a learning rate of 0, and rates set to 0 by hand: neither ends a schedule."""

import numpy as np
import pytest

import miniflow as flow
from miniflow import nn, optim
from miniflow.errors import CheckpointError
from miniflow.optim import lr_scheduler as schedules


def optimizer(lr=0.1):
    return optim.SGD([flow.zeros(1, requires_grad=True)], lr=lr)


def rates(o, *schedulers, steps, by_hand=None):
    """The learning rates of all steps; `by_hand` sets some of them before they are used."""
    found = []
    for i in range(steps):
        o.param_groups[0]["lr"] = (by_hand or {}).get(i, o.param_groups[0]["lr"])
        found.append(o.param_groups[0]["lr"])
        for scheduler in schedulers:
            scheduler.step()
    return found


def assert_rates(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decays_first", [False, True])
def test_a_warmup_from_zero_writes_over_another_schedule(decays_first):
    o = optimizer()
    decay = schedules.ExponentialLR(o, 0.9) if decays_first else None
    rise = schedules.LambdaLR(o, lambda t: min(1.0, t / 5))
    decay = decay or schedules.ExponentialLR(o, 0.9)
    want = [0.1 * min(1.0, t / 5) * 0.9 for t in range(8)]
    assert_rates(rates(o, rise, decay, steps=8), want)


def test_a_cosine_that_reaches_zero_and_rises_again_times_another_schedule():
    o = optimizer()
    cosine, steps = schedules.CosineAnnealingLR(o, 4), schedules.StepLR(o, 100)
    want = [0.05 * (1 + np.cos(np.pi * t / 4)) for t in range(9)]
    assert_rates(rates(o, cosine, steps, steps=9), want)


def test_warmup_by_factor_zero_before_another_schedule():
    o = optimizer()
    schedule = schedules.WarmupLR(schedules.StepLR(o, 5, 0.5), 0.0, 3)
    want = [0.1 * min(t / 3, 1) * 0.5 ** (t // 5) for t in range(12)]
    assert_rates(rates(o, schedule, steps=12), want)


def test_zero_by_hand_holds_until_another_rate_is_set():
    o = optimizer()
    got = rates(o, schedules.StepLR(o, 100), steps=6, by_hand={2: 0.0, 4: 0.1})
    assert_rates(got, [0.1, 0.1, 0.0, 0.0, 0.1, 0.1])


def test_a_schedule_goes_on_after_zero_by_hand():
    o = optimizer(1.0)
    decay = schedules.ExponentialLR(o, 0.5)
    assert_rates(rates(o, decay, steps=3, by_hand={1: 0.0}), [1.0, 0.0, 0.0])
    decay.load_state_dict(decay.state_dict())
    assert_rates(rates(o, decay, steps=3, by_hand={0: 0.125}), [0.125, 0.0625, 0.03125])
    assert decay.base_lrs == [1.0]


def test_a_rate_that_begins_at_zero_is_set_by_hand():
    o = optimizer(0.0)
    got = rates(o, schedules.StepLR(o, 2, 0.5), steps=6, by_hand={1: 0.4})
    assert_rates(got, [0.0, 0.4, 0.2, 0.2, 0.1, 0.1])


def test_a_new_schedule_after_one_that_ended_at_zero():
    o = optimizer()
    rates(o, schedules.CosineAnnealingLR(o, 4), steps=4)
    new = schedules.StepLR(o, 1, 0.5)
    assert_rates(rates(o, new, steps=4, by_hand={1: 0.2}), [0.0, 0.2, 0.1, 0.05])


def test_a_warmup_after_a_schedule_that_ended_at_zero():
    for make in (
        lambda o: schedules.WarmupLR(o, 0.5, 2),
        lambda o: schedules.LambdaLR(o, lambda t: min(1, (t + 2) / 4)),
    ):
        o = optimizer()
        rates(o, schedules.CosineAnnealingLR(o, 4), steps=4)
        assert_rates(rates(o, make(o), steps=4), [0.05, 0.075, 0.1, 0.1])


def test_a_warmup_over_a_schedule_and_one_over_an_optimizer_have_different_states():
    over_schedule = schedules.WarmupLR(schedules.ExponentialLR(optimizer(), 0.9))
    over_optimizer = schedules.WarmupLR(optimizer(), warmup_factor=0.5)
    before = over_optimizer.state_dict()
    with pytest.raises(CheckpointError, match="got entries .*'scheduler.gamma'.*; expected .*'scheduler'"):
        over_optimizer.load_state_dict(over_schedule.state_dict())
    assert over_optimizer.state_dict() == before and over_optimizer.scheduler is None
    before = over_schedule.state_dict()
    with pytest.raises(CheckpointError, match="got entries .*'scheduler'.*; expected .*'scheduler.gamma'"):
        over_schedule.load_state_dict(over_optimizer.state_dict())
    assert over_schedule.state_dict() == before


def test_a_warmup_over_another_kind_of_schedule_leaves_the_state_as_it_was():
    one = schedules.WarmupLR(schedules.ExponentialLR(optimizer(), 0.9))
    other = schedules.WarmupLR(schedules.CosineAnnealingLR(optimizer(), 4), warmup_factor=0.5)
    before = one.state_dict()
    with pytest.raises(CheckpointError, match="another kind of scheduler"):
        one.load_state_dict(other.state_dict())
    assert one.state_dict() == before


# states and gradients of optimizers


@pytest.mark.parametrize("how", ["by hand", "loaded"])
def test_a_state_of_none_is_made_again(how):
    p = flow.ones(3, requires_grad=True)
    o = optim.SGD([p], lr=0.5, momentum=0.9)
    if how == "by hand":
        o.state[p]["momentum_buffer"] = None
    else:
        o.load_state_dict({**o.state_dict(), "state": {0: {"momentum_buffer": None}}})
    p.grad = flow.ones(3)
    o.step()
    assert p.tolist() == [0.5] * 3 and o.state[p]["momentum_buffer"].tolist() == [1.0] * 3


@pytest.mark.parametrize("rule", ["SGD", "Adam"])
@pytest.mark.parametrize("dtype", [flow.float32, flow.float16])
def test_transposed_parameters_of_one_memory_get_both_updates(rule, dtype):
    weight = flow.arange(6, dtype=flow.float32).view(2, 3).to(dtype)
    one = nn.Parameter(weight)
    two = nn.Parameter(one.data.t())
    one.grad, two.grad = flow.full((2, 3), 0.25, dtype=dtype), flow.full((3, 2), 0.5, dtype=dtype)
    before = one.detach().clone()
    getattr(optim, rule)([one, two], lr=1.0).step()
    moved = (before - one.detach()).cpu().numpy()
    np.testing.assert_allclose(moved, 0.75 if rule == "SGD" else 2.0, rtol=1e-2)
