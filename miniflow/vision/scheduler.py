"""Learning rate schedules with a warm-up, by the names of command line options.

Each is a schedule of `flow.optim`: `step(epoch)` sets the learning rates of an epoch, counted from 0, and
`step_update(n)` those of an update, where the times are updates. A graph steps it by itself.

    warm-up      t < warmup_t: warmup_lr_init + t (lr - warmup_lr_init) / warmup_t
    afterwards   a function of t, or of t - warmup_t with `warmup_prefix`

Source: timm's schedulers and `create_scheduler`, without its noise; flowvision's `LinearLRScheduler`, of Swin.
"""

from __future__ import annotations

import bisect
import math
from typing import Any

from miniflow.errors import ArgumentError, refusal
from miniflow.nn.arguments import ABOVE_0, AT_LEAST_0, check_range
from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.optimizer import Optimizer


class WarmupScheduler(LRScheduler):
    """Base of the schedules: a subclass writes `decayed(lr, t)`, the learning rate at a time after the warm-up.

    Args:
        warmup_t: the length of the warm-up.
        warmup_lr_init: the learning rate that it begins with.
        warmup_prefix: the schedule begins when the warm-up is over; else the warm-up replaces its beginning.
        t_in_epochs: whether times are epochs, which `step(epoch)` tells, or updates, which `step_update` tells.

    A group's "lr_scale" multiplies its learning rate.
    """

    def __init__(
        self, optimizer: Optimizer, warmup_t: int = 0, warmup_lr_init: float = 0.0, warmup_prefix: bool = False,
        t_in_epochs: bool = True,
    ):  # fmt: skip
        check_range(self, AT_LEAST_0, warmup_t=warmup_t, warmup_lr_init=warmup_lr_init)
        self.warmup_t, self.warmup_lr_init = warmup_t, warmup_lr_init
        self.warmup_prefix, self.t_in_epochs = warmup_prefix, t_in_epochs
        super().__init__(optimizer)

    def warmed_up(self, lr: float) -> float:
        """The learning rate that the warm-up ends with."""
        return lr

    def get_lr(self, base_lr: float, step: float) -> float:
        if step < self.warmup_t:
            return self.warmup_lr_init + step * (self.warmed_up(base_lr) - self.warmup_lr_init) / self.warmup_t
        return self.decayed(base_lr, step - self.warmup_t if self.warmup_prefix else step)

    def get_lrs(self, base_lrs: list[float], step: float) -> list[float]:
        scales = [group.get("lr_scale", 1.0) for group in self.optimizer.param_groups]
        return [lr * scale for lr, scale in zip(super().get_lrs(base_lrs, step), scales, strict=True)]

    def step(self, epoch: float | None = None, metric: Any = None) -> None:
        """Set the learning rates of an epoch, or of the next step if none is given."""
        if epoch is None or self.t_in_epochs:
            super().step(epoch)

    def step_update(self, num_updates: int, metric: Any = None) -> None:
        """Set the learning rates of an update."""
        if not self.t_in_epochs:
            super().step(num_updates)


class CyclicScheduler(WarmupScheduler):
    """Base of the schedules that decay to `lr_min` and may start again: a subclass writes `curve(part)`.

    `part`, how much of a cycle is over, goes from 0 to 1, and the curve from 1 to 0.

    Args:
        t_initial: the length of the first cycle.
        lr_min: the last learning rate.
        cycle_mul: each cycle is so many times as long as the one before.
        cycle_decay: each begins with so many times the learning rate of the one before.
        cycle_limit: how many there are; afterwards it stays at `lr_min`.
        k_decay: the exponent of the part of a cycle that is over (Zhang and Li 2020, "k-decay").
    """

    def __init__(
        self, optimizer: Optimizer, t_initial: int, lr_min: float = 0.0, cycle_mul: float = 1.0,
        cycle_decay: float = 1.0, cycle_limit: int = 1, k_decay: float = 1.0, **warmup: Any,
    ):  # fmt: skip
        check_range(self, ABOVE_0, t_initial=t_initial)
        check_range(self, AT_LEAST_0, lr_min=lr_min)
        self.t_initial, self.lr_min, self.k_decay = t_initial, lr_min, k_decay
        self.cycle_mul, self.cycle_decay, self.cycle_limit = cycle_mul, cycle_decay, cycle_limit
        super().__init__(optimizer, **warmup)

    def start(self, cycle: int) -> float:
        """When a cycle begins: t_initial (1 + m + ... + m^(cycle - 1))."""
        m = self.cycle_mul
        return self.t_initial * (cycle if m == 1 else (m**cycle - 1) / (m - 1))

    def decayed(self, lr: float, t: float) -> float:
        m, cycle = self.cycle_mul, t // self.t_initial
        if m != 1:
            cycle = math.floor(math.log(1 + t / self.t_initial * (m - 1), m))
        if cycle >= self.cycle_limit:
            return self.lr_min
        part = (t - self.start(cycle)) / (self.t_initial * m**cycle)
        return self.lr_min + (lr * self.cycle_decay**cycle - self.lr_min) * self.curve(part**self.k_decay)

    def get_cycle_length(self, cycles: int = 0) -> int:
        """How long so many cycles take, all of them by default, with the warm-up where it is a prefix."""
        return math.floor(self.start(max(1, cycles or self.cycle_limit))) + self.warmup_t * self.warmup_prefix


class CosineLRScheduler(CyclicScheduler):
    """lr_min + (lr - lr_min) (1 + cos(pi part)) / 2. Loshchilov and Hutter 2017, "SGDR"."""

    def curve(self, part: float) -> float:
        return (1 + math.cos(math.pi * part)) / 2


class PolyLRScheduler(CyclicScheduler):
    """lr_min + (lr - lr_min) (1 - part)^power."""

    def __init__(self, optimizer: Optimizer, t_initial: int, power: float = 0.5, **options: Any):
        self.power = power
        super().__init__(optimizer, t_initial, **options)

    def curve(self, part: float) -> float:
        return (1 - part) ** self.power


class TanhLRScheduler(CyclicScheduler):
    """lr_min + (lr - lr_min) (1 - tanh(lb (1 - part) + ub part)) / 2.

    Source: Hsueh, Li and Wu 2019, "Stochastic Gradient Descent with Hyperbolic-Tangent Decay on Classification".
    """

    def __init__(self, optimizer: Optimizer, t_initial: int, lb: float = -7.0, ub: float = 3.0, **options: Any):
        self.lb, self.ub = lb, ub
        super().__init__(optimizer, t_initial, **options)

    def curve(self, part: float) -> float:
        return (1 - math.tanh(self.lb * (1 - part) + self.ub * part)) / 2

    def warmed_up(self, lr: float) -> float:
        return lr if self.warmup_prefix else self.decayed(lr, self.warmup_t)


class LinearLRScheduler(WarmupScheduler):
    """From lr, when the warm-up is over, along a straight line to lr_min_rate * lr at `t_initial`."""

    def __init__(self, optimizer: Optimizer, t_initial: int, lr_min_rate: float, **warmup: Any):
        self.t_initial, self.lr_min_rate = t_initial, lr_min_rate
        super().__init__(optimizer, **{**warmup, "warmup_prefix": True})

    def decayed(self, lr: float, t: float) -> float:
        part = min(1.0, t / max(1, self.t_initial - self.warmup_t))
        return lr - lr * (1 - self.lr_min_rate) * part


class StepLRScheduler(WarmupScheduler):
    """lr * decay_rate^(t // decay_t)"""

    def __init__(self, optimizer: Optimizer, decay_t: float, decay_rate: float = 1.0, **warmup: Any):
        self.decay_t, self.decay_rate = decay_t, decay_rate
        super().__init__(optimizer, **{"warmup_prefix": True, **warmup})

    def decayed(self, lr: float, t: float) -> float:
        return lr * self.decay_rate ** (t // self.decay_t)


class MultiStepLRScheduler(StepLRScheduler):
    """lr * decay_rate^n, with n of the milestones `decay_t` at t + 1 or before, as in timm: one epoch early."""

    def decayed(self, lr: float, t: float) -> float:
        return lr * self.decay_rate ** bisect.bisect_right(self.decay_t, t + 1)


def create_scheduler(args: Any, optimizer: Optimizer, updates_per_epoch: int = 0) -> tuple[WarmupScheduler | None, int]:
    """The schedule that command line options ask for.

    Args:
        args: has `sched`, "cosine", "tanh", "poly" (whose power is `decay_rate`), "linear", "step", "multistep" or
            "none"; `epochs`; and may have `min_lr` (0 by default), `warmup_lr` (1e-5), `warmup_epochs` (5),
            `warmup_prefix` (False), `decay_epochs` (30), `decay_milestones` (30, 60), `decay_rate` (0.1),
            `cooldown_epochs` (0), `lr_cycle_mul` (1), `lr_cycle_decay` (0.1), `lr_cycle_limit` (1), `lr_k_decay` (1),
            and `sched_on_updates` (False): whether times are updates.
        optimizer: whose learning rates to set.
        updates_per_epoch: how many batches an epoch has, with `sched_on_updates`.

    Returns:
        the schedule, and the number of epochs with all cycles, the warm-up and the cool-down.

    Raises:
        ArgumentError: for another name.

    >>> import miniflow as flow
    >>> from types import SimpleNamespace
    >>> optimizer = flow.optim.SGD([flow.zeros(1, requires_grad=True)], lr=1.0)
    >>> args = SimpleNamespace(sched="cosine", epochs=10, warmup_epochs=2, warmup_lr=0.0, cooldown_epochs=1)
    >>> scheduler, epochs = create_scheduler(args, optimizer)
    >>> scheduler.step(1), scheduler.get_last_lr(), epochs
    (None, [0.5], 11)

    Source: `timm.scheduler.create_scheduler`.
    """

    def option(name: str, default: Any) -> Any:
        return getattr(args, name, default)

    on_updates = option("sched_on_updates", False)
    scale = updates_per_epoch if on_updates else 1
    if scale < 1:
        expected = "how many batches an epoch has, with sched_on_updates"
        raise refusal(ArgumentError, "create_scheduler", expected, updates_per_epoch=updates_per_epoch)
    length, rate, lr_min = args.epochs * scale, option("decay_rate", 0.1), option("min_lr", 0.0)
    warmup_epochs, prefix = option("warmup_epochs", 5), option("warmup_prefix", False)
    warmup = {
        "warmup_t": warmup_epochs * scale, "warmup_lr_init": option("warmup_lr", 1e-5), "warmup_prefix": prefix,
        "t_in_epochs": not on_updates,
    }  # fmt: skip
    cycles = {"cycle_mul": 1.0, "cycle_decay": 0.1, "cycle_limit": 1}
    cyclic = {name: option(f"lr_{name}", default) for name, default in cycles.items()} | warmup | {"lr_min": lr_min}
    k_decay = option("lr_k_decay", 1.0)
    milestones = [epoch * scale for epoch in option("decay_milestones", (30, 60))]
    kinds = {
        "cosine": lambda: CosineLRScheduler(optimizer, length, k_decay=k_decay, **cyclic),
        "tanh": lambda: TanhLRScheduler(optimizer, length, **cyclic),
        "poly": lambda: PolyLRScheduler(optimizer, length, power=rate, k_decay=k_decay, **cyclic),
        "linear": lambda: LinearLRScheduler(optimizer, length, lr_min / optimizer.param_groups[0]["lr"], **warmup),
        "step": lambda: StepLRScheduler(optimizer, option("decay_epochs", 30) * scale, rate, **warmup),
        "multistep": lambda: MultiStepLRScheduler(optimizer, milestones, rate, **warmup),
        "none": lambda: None,
    }
    if args.sched not in kinds:
        raise refusal(ArgumentError, "create_scheduler", f"one of {', '.join(kinds)}", sched=args.sched)
    scheduler = kinds[args.sched]()
    if isinstance(scheduler, CyclicScheduler):
        return scheduler, scheduler.get_cycle_length() // scale + option("cooldown_epochs", 0)
    return scheduler, args.epochs + warmup_epochs * prefix
