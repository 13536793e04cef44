"""Numbers that options take: the first and the last are accepted, the next one beyond is refused by name."""

import ast
import math
from pathlib import Path

import pytest

import miniflow as flow
from miniflow import nn, optim
from miniflow.optim import lr_scheduler
from miniflow.utils.data import DataLoader
from miniflow.vision import loss, scheduler, transforms
from miniflow.vision.data.mixup import Mixup

TINY = math.ulp(0.0)
AT_LEAST_0, ABOVE_0, PART = ([0, 1e30], [-TINY]), ([TINY, 1e30], [0, -1]), ([0, 1], [-TINY, math.nextafter(1, 2)])
COUNT_FROM_0, COUNT_FROM_1 = ([0, 3], [-1]), ([1, 3], [0])


def parameters():
    return [flow.zeros(2, 2, requires_grad=True)]


def optimizer(make, **options):
    return lambda **limited: make(parameters(), **options, **limited)


def schedule(make, *arguments, **options):
    return lambda **limited: make(optim.SGD(parameters(), lr=0.1), *arguments, **options, **limited)


def shared_by_optimizers():
    for make in (
        optim.Adam,
        optim.AdamW,
        optim.NAdam,
        optim.RMSprop,
        optim.Adadelta,
        optim.Adagrad,
        optim.ASGD,
        optim.SGD,
    ):
        for name in ("lr", "eps", "weight_decay"):
            if not (make in (optim.ASGD, optim.SGD) and name == "eps"):
                yield f"{make.__name__}.{name}", optimizer(make), name, AT_LEAST_0


CASES = [
    ("RNN.hidden_size", lambda **limited: nn.RNN(2, **limited), "hidden_size", COUNT_FROM_1),
    ("GRUCell.hidden_size", lambda **limited: nn.GRUCell(2, **limited), "hidden_size", COUNT_FROM_1),
    ("LSTM.num_layers", lambda **limited: nn.LSTM(2, 3, **limited), "num_layers", COUNT_FROM_1),
    ("LSTM.dropout", lambda **limited: nn.LSTM(2, 3, 2, **limited), "dropout", PART),
    ("LSTM.proj_size", lambda **limited: nn.LSTM(2, 3, **limited), "proj_size", ([0, 2], [-1])),
    ("Dropout.p", nn.Dropout, "p", PART),
    ("DataLoader.num_workers", lambda **limited: DataLoader([1], **limited), "num_workers", ([0], [-1])),
    ("DataLoader.timeout", lambda **limited: DataLoader([1], **limited), "timeout", AT_LEAST_0),
    *shared_by_optimizers(),
    ("SparseAdam.lr", optimizer(optim.SparseAdam), "lr", AT_LEAST_0),
    ("SparseAdam.eps", optimizer(optim.SparseAdam), "eps", AT_LEAST_0),
    ("Adagrad.lr_decay", optimizer(optim.Adagrad), "lr_decay", AT_LEAST_0),
    ("Adagrad.initial", optimizer(optim.Adagrad), "initial_accumulator_value", AT_LEAST_0),
    *[(f"FTRL.{name}", optimizer(optim.FTRL), name, AT_LEAST_0)
      for name in ("initial_accumulator_value", "lambda1", "lambda2", "beta")],
    ("FTRL.lr_power", optimizer(optim.FTRL), "lr_power", ([0, -1e30], [TINY])),
    *[(f"ASGD.{name}", optimizer(optim.ASGD), name, AT_LEAST_0) for name in ("lambd", "alpha", "t0")],
    ("SGD.momentum", optimizer(optim.SGD), "momentum", AT_LEAST_0),
    ("SGD.dampening", optimizer(optim.SGD), "dampening", ([-1e30, 1e30], [math.nan])),
    ("RMSprop.alpha", optimizer(optim.RMSprop), "alpha", PART),
    ("RMSprop.momentum", optimizer(optim.RMSprop), "momentum", AT_LEAST_0),
    ("NAdam.momentum_decay", optimizer(optim.NAdam), "momentum_decay", AT_LEAST_0),
    ("Adadelta.rho", optimizer(optim.Adadelta), "rho", PART),
    ("SWALR.anneal_epochs", schedule(optim.swa_utils.SWALR, 0.05), "anneal_epochs", COUNT_FROM_0),
    ("WarmupLR.warmup_factor", schedule(lr_scheduler.WarmupLR), "warmup_factor", AT_LEAST_0),
    ("WarmupLR.warmup_iters", schedule(lr_scheduler.WarmupLR), "warmup_iters", COUNT_FROM_0),
    ("OneCycleLR.pct_start", schedule(lr_scheduler.OneCycleLR, 1.0, total_steps=9), "pct_start", PART),
    ("StepLR.step_size", schedule(lr_scheduler.StepLR), "step_size", ABOVE_0),
    ("CosineAnnealingLR.T_max", schedule(lr_scheduler.CosineAnnealingLR), "T_max", ABOVE_0),
    ("CosineDecayLR.decay_steps", schedule(lr_scheduler.CosineDecayLR), "decay_steps", ABOVE_0),
    ("LinearLR.start_factor", schedule(lr_scheduler.LinearLR), "start_factor", ([TINY, 1], [0, math.nextafter(1, 2)])),
    ("LinearLR.end_factor", schedule(lr_scheduler.LinearLR), "end_factor", PART),
    ("LinearLR.total_iters", schedule(lr_scheduler.LinearLR), "total_iters", ABOVE_0),
    ("ConstantLR.factor", schedule(lr_scheduler.ConstantLR), "factor", PART),
    ("PolynomialLR.total_iters", schedule(lr_scheduler.PolynomialLR), "total_iters", ABOVE_0),
    ("WarmRestarts.T_0", schedule(lr_scheduler.CosineAnnealingWarmRestarts), "T_0", COUNT_FROM_1),
    ("WarmRestarts.T_mult", schedule(lr_scheduler.CosineAnnealingWarmRestarts, 2), "T_mult", COUNT_FROM_1),
    ("RandomHorizontalFlip.p", transforms.RandomHorizontalFlip, "p", PART),
    ("RandomApply.p", lambda **limited: transforms.RandomApply([], **limited), "p", PART),
    *[(f"Mixup.{name}", Mixup, name, PART) for name in ("prob", "switch_prob", "label_smoothing")],
    ("LabelSmoothingCrossEntropy.smoothing", loss.LabelSmoothingCrossEntropy, "smoothing", PART),
    ("CosineLRScheduler.t_initial", schedule(scheduler.CosineLRScheduler), "t_initial", ABOVE_0),
    ("CosineLRScheduler.lr_min", schedule(scheduler.CosineLRScheduler, 9), "lr_min", AT_LEAST_0),
    ("CosineLRScheduler.warmup_t", schedule(scheduler.CosineLRScheduler, 9), "warmup_t", COUNT_FROM_0),
    ("CosineLRScheduler.warmup_lr_init", schedule(scheduler.CosineLRScheduler, 9), "warmup_lr_init", AT_LEAST_0),
]  # fmt: skip


@pytest.mark.parametrize(("make", "name", "values"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_limits(make, name, values):
    accepted, refused = values
    for value in accepted:
        assert make(**{name: value}) is not None
    for value in refused:
        with pytest.raises(flow.errors.ArgumentError, match=rf"got {name}={value!r}; expected"):
            make(**{name: value})


def test_every_option_that_has_limits_is_in_the_table():
    """By the text of the package: all names that are handed to `check_range`."""
    package = Path(flow.__file__).parent
    calls = [
        call
        for path in package.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "check_range"
    ]
    names = {keyword.arg for call in calls for keyword in call.keywords} - {None}
    assert len(calls) > 30 and names - {name for _, _, name, _ in CASES} == set()
