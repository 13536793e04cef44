"""Learning rate schedules against their formulas."""

import math

import numpy as np
import pytest

import miniflow as flow
from miniflow import optim
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError
from miniflow.optim import lr_scheduler as schedules

pytestmark = pytest.mark.cpu_only("no test here looks at the device")

STEPS = 20


def optimizer(*lrs):
    groups = [{"params": [flow.zeros(1, requires_grad=True)], "lr": lr} for lr in lrs or (0.5,)]
    return optim.SGD(groups)


def lrs_of(scheduler, steps=STEPS):
    """The learning rates at each step, one row a step."""
    rows = []
    for _ in range(steps):
        rows.append([group["lr"] for group in scheduler.optimizer.param_groups])
        assert scheduler.get_last_lr() == rows[-1]
        scheduler.step()
    return np.array(rows)


FORMULAS = {
    "step": (lambda o: schedules.StepLR(o, 3, 0.5), lambda t: 0.5 ** (t // 3)),
    "multistep": (lambda o: schedules.MultiStepLR(o, [7, 2, 7], 0.5), lambda t: 0.5 ** ((t >= 2) + 2 * (t >= 7))),
    "exponential": (lambda o: schedules.ExponentialLR(o, 0.9), lambda t: 0.9**t),
    "lambda": (lambda o: schedules.LambdaLR(o, lambda t: 1 / (1 + t)), lambda t: 1 / (1 + t)),
    "cosine": (lambda o: schedules.CosineAnnealingLR(o, 8), lambda t: (1 + math.cos(math.pi * t / 8)) / 2),
    "linear": (lambda o: schedules.LinearLR(o, 0.25, 0.75, 4), lambda t: 0.25 + 0.5 * min(t, 4) / 4),
    "warmup": (lambda o: schedules.WarmupLR(o, 0.2, 4), lambda t: 0.2 + 0.8 * min(t, 4) / 4),
    "constant warmup": (lambda o: schedules.WarmUpLR(o, 0.2, 4, "constant"), lambda t: 0.2 if t < 4 else 1.0),
    "no warmup": (lambda o: schedules.WarmupLR(schedules.ExponentialLR(o, 0.9), warmup_iters=0), lambda t: 0.9**t),
    "warmup over": (
        lambda o: schedules.WarmupLR(schedules.ExponentialLR(o, 0.9), 0.2, 4),
        lambda t: 0.9**t if t >= 4 else 0.2 + (0.9**4 - 0.2) * t / 4,
    ),
    "warmup over a ramp": (
        lambda o: schedules.WarmupLR(schedules.LinearLR(o, 0.5, 1.0, 10), 0.2, 4),
        lambda t: 0.5 + 0.05 * min(t, 10) if t >= 4 else 0.2 + (0.7 - 0.2) * t / 4,
    ),
    "warmup before": (
        lambda o: schedules.WarmupLR(schedules.StepLR(o, 3, 0.5), 0.2, 4, warmup_prefix=True),
        lambda t: 0.5 ** ((t - 4) // 3) if t >= 4 else 0.2 + 0.8 * t / 4,
    ),
    "constant warmup over": (
        lambda o: schedules.WarmupLR(schedules.CosineAnnealingLR(o, 9), 0.2, 4, "constant"),
        lambda t: (1 + math.cos(math.pi * t / 9)) / 2 if t >= 4 else 0.2,
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    make, factor = FORMULAS[name]
    expected = [[base * factor(t) for base in (0.5, 0.1)] for t in range(STEPS)]
    np.testing.assert_allclose(lrs_of(make(optimizer(0.5, 0.1))), expected, rtol=1e-12)


def test_cosine_with_a_lower_bound():
    found = lrs_of(schedules.CosineAnnealingLR(optimizer(0.5), 6, eta_min=0.1))[:, 0]
    np.testing.assert_allclose(
        found, [0.1 + 0.4 * (1 + math.cos(math.pi * t / 6)) / 2 for t in range(STEPS)], rtol=1e-12
    )


def test_one_function_for_each_group():
    scheduler = schedules.LambdaLR(optimizer(1.0, 10.0), [lambda t: t + 1, lambda t: 0.5**t])
    np.testing.assert_allclose(lrs_of(scheduler, 3), [[1, 10], [2, 5], [3, 2.5]])


@pytest.mark.parametrize("name", FORMULAS)
def test_going_on_by_state_dict(name, tmp_path):
    make, _ = FORMULAS[name]
    straight = lrs_of(make(optimizer(0.5, 0.1)))
    first = make(optimizer(0.5, 0.1))
    np.testing.assert_array_equal(lrs_of(first, 7), straight[:7])
    state = {"optimizer": first.optimizer.state_dict(), "scheduler": first.state_dict()}
    flow.save(state, tmp_path / "state.safetensors")
    state = flow.load(tmp_path / "state.safetensors")
    second = make(optimizer(0.5, 0.1))
    second.optimizer.load_state_dict(state["optimizer"])
    second.load_state_dict(state["scheduler"])
    np.testing.assert_array_equal(lrs_of(second, STEPS - 7), straight[7:])


def test_going_on_by_last_step():
    straight = lrs_of(schedules.ExponentialLR(optimizer(0.5), 0.9))
    for name in ("last_step", "last_epoch"):  # in OneFlow, in PyTorch
        resumed = optimizer(straight[7, 0])
        resumed.param_groups[0]["initial_lr"] = 0.5
        schedule = schedules.ExponentialLR(resumed, 0.9, **{name: 7})
        assert schedule.last_step == schedule.last_epoch == 8
        np.testing.assert_allclose(lrs_of(schedule, 5), straight[8:13], rtol=1e-12)
    with pytest.raises(ArgumentError, match="last_step=3, but group 0 of the optimizer has no 'initial_lr'"):
        schedules.ExponentialLR(optimizer(0.5), 0.9, last_step=3)


def test_a_learning_rate_changed_by_hand_scales_the_rest():
    scheduler = schedules.ExponentialLR(optimizer(1.0), 0.5)
    scheduler.step()
    scheduler.optimizer.param_groups[0]["lr"] *= 3
    scheduler.step()
    assert scheduler.get_last_lr() == [0.75]


def test_schedules_multiply_when_stepped_one_after_the_other():
    o = optimizer(1.0)
    first, second = schedules.LinearLR(o, 0.5, 1.0, 4), schedules.ExponentialLR(o, 0.5)
    for t in range(1, 8):
        first.step()
        second.step()
        assert o.param_groups[0]["lr"] == pytest.approx((0.5 + 0.5 * min(t, 4) / 4) * 0.5**t)


def test_a_schedule_of_ones_own():
    class Inverse(schedules.LRScheduler):
        def get_lr(self, base_lr, step):
            return base_lr / (1 + step)

    np.testing.assert_allclose(lrs_of(Inverse(optimizer(1.0)), 4)[:, 0], [1, 1 / 2, 1 / 3, 1 / 4])
    with pytest.raises(NotImplementedError, match=r"must override get_lr\(base_lr, step\)"):
        schedules.LRScheduler(optimizer())


def test_a_schedule_written_for_pytorch():
    class Warm(schedules._LRScheduler):
        def __init__(self, optimizer, steps, last_epoch=-1):
            self.steps = steps
            super().__init__(optimizer, last_epoch)

        def get_lr(self):
            return [lr * min(1.0, (self.last_epoch + 1) / self.steps) for lr in self.base_lrs]

    rows = lrs_of(Warm(optimizer(0.5, 1.0), 4), 6)
    np.testing.assert_allclose(rows, np.outer(np.minimum(1, np.arange(1, 7) / 4), [0.5, 1.0]), rtol=1e-12)


def test_the_optimizer_uses_the_schedule():
    p = flow.zeros(1, requires_grad=True)
    o = optim.SGD([p], lr=1.0)
    scheduler = schedules.StepLR(o, 1, 0.5)
    for _ in range(3):
        p.grad = flow.ones(1)
        o.step()
        scheduler.step()
    assert p.item() == -1.75


def test_groups_added_later_are_refused():
    scheduler = schedules.StepLR(optimizer(), 1)
    scheduler.optimizer.add_param_group({"params": [flow.zeros(1, requires_grad=True)]})
    with pytest.raises(ArgumentError, match="make the scheduler after add_param_group"):
        scheduler.step()


def test_refusals():
    o = optimizer()
    cases = [
        (lambda: schedules.StepLR(o, 0), ArgumentError, "step_size=0"),
        (lambda: schedules.CosineAnnealingLR(o, 0), ArgumentError, "T_max=0"),
        (lambda: schedules.LinearLR(o, 0.0), ArgumentError, "start_factor=0.0"),
        (lambda: schedules.LinearLR(o, 0.5, 2.0), ArgumentError, "end_factor=2.0"),
        (lambda: schedules.LinearLR(o, total_iters=0), ArgumentError, "total_iters=0"),
        (lambda: schedules.LambdaLR(o, [lambda t: 1.0] * 2), ArgumentError, "got 2 functions; expected 1"),
        (
            lambda: schedules.WarmupLR(o, warmup_method="cubic"),
            ArgumentError,
            "warmup_method='cubic'; expected 'linear'",
        ),
        (lambda: schedules.WarmupLR(o, warmup_factor=-1), ArgumentError, "warmup_factor=-1"),
        (
            lambda: schedules.WarmupLR(schedules.ReduceLROnPlateau(o)),
            TypeError,
            "got a ReduceLROnPlateau; expected an Optimizer",
        ),
        (lambda: schedules.StepLR([1], 1), TypeError, "StepLR: got a list; expected an Optimizer"),
        (lambda: schedules.StepLR(o, 1, last_epch=3), TypeError, "last_epch"),
        (lambda: schedules.ReduceLROnPlateau(o, factor=1.0), ArgumentError, "factor=1.0"),
        (lambda: schedules.ReduceLROnPlateau(o, mode="best"), ArgumentError, "mode='best'"),
        (lambda: schedules.ReduceLROnPlateau(o, threshold_mode="x"), ArgumentError, "threshold_mode='x'"),
        (lambda: schedules.ReduceLROnPlateau(o, min_lr=[0.1, 0.1]), ArgumentError, "2 values for min_lr; expected 1"),
        (lambda: schedules.ReduceLROnPlateau(3), TypeError, "got a int"),
        (
            lambda: schedules.StepLR(o, 1).load_state_dict({"T_max": 3}),
            CheckpointError,
            r"got entries \['T_max'\]; expected",
        ),
        (lambda: schedules.StepLR(o, 1).load_state_dict(None), CheckpointError, "expected .*gamma"),
    ]
    for make, error, words in cases:
        with pytest.raises(error, match=words):
            make()


def plateau(metrics, **options):
    scheduler = schedules.ReduceLROnPlateau(optimizer(1.0), **options)
    found = []
    for metric in metrics:
        scheduler.step(metric)
        found.append(scheduler.get_last_lr()[0])
    return found


def test_plateau():
    assert plateau([3, 2, 2, 2, 2], factor=0.5, patience=1) == [1, 1, 1, 0.5, 0.5]
    assert plateau([3, 2, 2, 2, 2], factor=0.5, patience=0, cooldown=1) == [1, 1, 0.5, 0.5, 0.25]
    assert plateau([1, 2, 3, 3, 3], factor=0.5, patience=0, mode="max") == [1, 1, 1, 0.5, 0.25]
    assert plateau([5, 4.8, 4.5], factor=0.5, patience=0, threshold=0.05) == [1, 0.5, 0.5]
    assert plateau([5, 4.8, 4.5], factor=0.5, patience=0, threshold=0.1, threshold_mode="abs") == [1, 1, 1]
    assert plateau([1, 1, 1, 1], factor=0.5, patience=0, min_lr=0.3) == [1, 0.5, 0.3, 0.3]
    assert plateau([1, math.nan], factor=0.5, patience=0) == [1, 0.5]
    assert plateau([flow.tensor(1.0), flow.tensor(1.0)], factor=0.5, patience=0) == [1, 0.5]
    assert plateau([1, 1], factor=0.5, patience=0, eps=0.9) == [1, 1]


def test_plateau_state_dict():
    first = schedules.ReduceLROnPlateau(optimizer(1.0), factor=0.5, patience=1)
    for metric in (2, 2):
        first.step(metric)
    second = schedules.ReduceLROnPlateau(optimizer(1.0), factor=0.5, patience=9)
    second.load_state_dict(first.state_dict())
    second.step(2)
    assert second.get_last_lr() == [0.5] and second.last_step == 3


def test_polynomials_of_oneflow():
    def line(step, total):
        return 0.01 + (0.1 - 0.01) * (1 - min(step, total) / total) ** 2

    schedule = schedules.PolynomialLR(optimizer(0.1), steps=10, end_learning_rate=0.01, power=2.0)
    np.testing.assert_allclose(lrs_of(schedule, 14)[:, 0], [line(t, 10) for t in range(14)], rtol=1e-12)
    schedule = schedules.PolynomialLR(optimizer(0.1), steps=4, end_learning_rate=0.01, power=2.0, cycle=True)
    want = [line(t, 4 * max(1, math.ceil(t / 4))) for t in range(14)]
    np.testing.assert_allclose(lrs_of(schedule, 14)[:, 0], want, rtol=1e-12)


def test_restarts_that_decay_and_end():
    schedule = schedules.CosineAnnealingWarmRestarts(
        optimizer(1.0), 2, T_mult=2, eta_min=0.1, decay_rate=0.5, restart_limit=2
    )
    cosine = [0.1 + 0.9 * (1 + math.cos(math.pi * t / 2)) / 2 for t in range(2)]
    cosine += [0.1 + 0.4 * (1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)]
    np.testing.assert_allclose(lrs_of(schedule, 9)[:, 0], [*cosine, 0.1, 0.1, 0.1], rtol=1e-12)


@pytest.mark.parametrize("rescaled", [True, False, [True, False]])
def test_schedules_one_after_the_other_by_their_own_steps_or_by_all(rescaled):
    o = optimizer(1.0)
    parts = [schedules.ConstantLR(o, 0.5, 9), schedules.ExponentialLR(o, 0.5)]
    schedule = schedules.SequentialLR(o, parts, [3], interval_rescaling=rescaled)
    want = [0.5, 0.5, 0.5, *[0.5 ** (t - 3 if rescaled is True else t) for t in range(3, 6)]]
    np.testing.assert_allclose(lrs_of(schedule, 6)[:, 0], want, rtol=1e-12)


def momenta_of(make, key="momentum"):
    """Learning rate and momentum at each of ten steps, under a schedule of schedules."""
    p = [flow.zeros(1, requires_grad=True)]
    o = optim.SGD(p, lr=0.5, momentum=0.5) if key == "momentum" else optim.Adam(p, lr=0.5)
    schedule, rows = make(o), []
    for _ in range(10):
        group = o.param_groups[0]
        rows.append((group["lr"], group[key] if key == "momentum" else group[key][0]))
        schedule.step()
    return np.array(rows)


@pytest.mark.parametrize("key", ["momentum", "betas"])
def test_a_schedule_of_schedules_moves_the_momentum_of_its_parts(key):
    def line(o):
        return schedules.CyclicLR(o, 0.1, 0.5, 4, base_momentum=0.6, max_momentum=0.8)

    up, down = [0.1, 0.2, 0.3, 0.4, 0.5], [0.8, 0.75, 0.7, 0.65, 0.6]
    chained = momenta_of(lambda o: schedules.ChainedScheduler([schedules.StepLR(o, 3), line(o)]), key)
    np.testing.assert_allclose(chained[:5], np.stack([up, down], 1), rtol=1e-12)
    warmup = momenta_of(
        lambda o: schedules.SequentialLR(o, [schedules.LinearLR(o, 0.2, 1.0, 4), line(o)], [4]), key
    )  # the warm-up is to the optimizer's own rate, 0.5
    np.testing.assert_allclose(warmup[:9], np.stack([up[:4] + up, [0.8] * 4 + down], 1), rtol=1e-12)
    prefixed = momenta_of(lambda o: schedules.WarmupLR(line(o), 0.5, 2, warmup_prefix=True), key)
    np.testing.assert_allclose(prefixed[:7], np.stack([[0.05, 0.075, *up], [0.8, 0.8, *down]], 1), rtol=1e-12)


def test_a_schedule_of_schedules_moves_to_any_step():
    def make(o):
        parts = [schedules.ExponentialLR(o, 0.9), schedules.StepLR(o, 2, 0.5)]
        parts = [schedules.ChainedScheduler(parts), schedules.OneCycleLR(o, 0.4, 20, cycle_momentum=False)]
        return schedules.SequentialLR(o, parts, [5])

    straight = lrs_of(make(optimizer(0.5, 0.1)))
    np.testing.assert_allclose(straight[:5, 0], [0.4 / 25 * 0.9**t * 0.5 ** (t // 2) for t in range(5)], rtol=1e-12)
    schedule = make(optimizer(0.5, 0.1))
    for step in (3, 9, 2, 7):
        schedule.move_to(step)
        np.testing.assert_array_equal(schedule.get_last_lr(), straight[step])
    np.testing.assert_array_equal(lrs_of(schedule, 3), straight[7:10])
    other = make(optimizer(0.5, 0.1))
    schedule, other = schedules.WarmupLR(schedule, 0.1, 2), schedules.WarmupLR(other, 0.1, 2)
    schedule.move_to(8)
    other.load_state_dict(schedule.state_dict())
    np.testing.assert_array_equal(lrs_of(other, 3), straight[8:11])


def test_the_last_schedule_of_weight_averaging_goes_on_from_the_present_rates():
    o = optimizer(1.0)
    decay, last = schedules.ExponentialLR(o, 0.5), optim.swa_utils.SWALR(o, 0.05, 5, "linear")
    decay.step(), decay.step()
    last.step()
    np.testing.assert_allclose(lrs_of(last, 7)[:, 0], [0.21, 0.17, 0.13, 0.09, 0.05, 0.05, 0.05], rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda sgd: schedules.MultiStepLR(sgd, 3), "MultiStepLR: got milestones=3: 'int' object is not iterable"),
        (lambda sgd: schedules.LambdaLR(sgd, 0.5), "LambdaLR: got lr_lambda=0.5: 'float' object is not callable"),
        (lambda sgd: schedules.ExponentialLR(sgd, "0.5"), "ExponentialLR: got gamma='0.5': unsupported operand"),
    ],
)
def test_arguments_that_python_refuses_are_named(make, words):
    sgd = flow.optim.SGD([flow.ones(1, requires_grad=True)])
    with pytest.raises(ArgumentTypeError, match=words):
        make(sgd)


@pytest.mark.parametrize("fail", [lambda step: [].remove(step), lambda step: np.linalg.inv(np.zeros((2, 2)))])
def test_errors_of_functions_that_a_schedule_calls_stay(fail):
    with pytest.raises(ValueError, match="^list.remove|^Singular matrix$") as caught:
        schedules.LambdaLR(optimizer(), fail)
    assert caught.type in (ValueError, np.linalg.LinAlgError)


def test_errors_of_a_constructor_of_the_user_stay():
    class Own(schedules.StepLR):
        def __init__(self, optimizer):
            super().__init__(optimizer, 2)
            np.linalg.inv(np.zeros((2, 2)))

    with pytest.raises(np.linalg.LinAlgError, match="^Singular matrix$"):
        Own(optimizer())


@pytest.mark.parametrize(
    "make",
    [lambda sgd: schedules.SequentialLR(sgd, "a", ""), lambda sgd: schedules.ChainedScheduler([3, 4])],
)
def test_what_is_no_schedule_is_refused(make):
    with pytest.raises(ArgumentError, match="(LR|Scheduler): expected at least one scheduler, and all of them for the"):
        make(optimizer())
