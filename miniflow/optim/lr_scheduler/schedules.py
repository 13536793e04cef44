"""Schedules given by a formula."""

from __future__ import annotations

import math
from bisect import bisect_right

from miniflow.optim.lr_scheduler.base import Schedule, per_group
from miniflow.optim.optimizer import Optimizer
from miniflow.options import ABOVE_0


class StepLR(Schedule, step_size=..., gamma=0.1):
    """lr = base_lr * gamma^(step // step_size)

    >>> import miniflow as flow
    >>> optimizer = flow.optim.SGD([flow.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(3):
    ...     optimizer.step()
    ...     scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    chainable = True

    limits = {"step_size": ABOVE_0}

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma ** (step // self.step_size)


class MultiStepLR(Schedule, milestones=..., gamma=0.1):
    """lr = base_lr * gamma^(number of milestones reached)

    Args:
        milestones: numbers of steps; one that is listed twice counts twice.
    """

    chainable = True

    def prepare(self, optimizer: Optimizer) -> None:
        self.milestones = sorted(self.milestones)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma ** bisect_right(self.milestones, step)


class ExponentialLR(Schedule, gamma=...):
    """lr = base_lr * gamma^step"""

    chainable = True

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma**step


class LambdaLR(Schedule, lr_lambda=...):
    """lr = base_lr * lr_lambda(step)

    Args:
        lr_lambda: a function of the number of the step, or a list of them, one for each parameter group. Functions are
            not part of the state_dict.

    Raises:
        ArgumentError: for a list of the wrong length.
    """

    not_saved = ("optimizer", "lr_lambda", "lr_lambdas")

    def prepare(self, optimizer: Optimizer) -> None:
        self.lr_lambdas = per_group(type(self).__name__, optimizer, self.lr_lambda, "functions")

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        return [base_lr * factor(step) for base_lr, factor in zip(base_lrs, self.lr_lambdas, strict=True)]


class CosineAnnealingLR(Schedule, T_max=..., eta_min=0.0):
    """lr = eta_min + (base_lr - eta_min) * (1 + cos(pi * step / T_max)) / 2

    After T_max steps the cosine rises again. Source: Loshchilov and Hutter 2017, "SGDR", without the restarts.
    """

    chainable = True

    limits = {"T_max": ABOVE_0}

    def get_lr(self, base_lr: float, step: int) -> float:
        return self.eta_min + (base_lr - self.eta_min) * (1 + math.cos(math.pi * step / self.T_max)) / 2


class CosineDecayLR(Schedule, decay_steps=..., alpha=0.0):
    """lr = base_lr * ((1 - alpha) * (1 + cos(pi * min(step / decay_steps, 1))) / 2 + alpha). `oneflow.optim`."""

    limits = {"decay_steps": ABOVE_0}

    def get_lr(self, base_lr: float, step: int) -> float:
        cosine = (1 + math.cos(math.pi * min(step / self.decay_steps, 1))) / 2
        return base_lr * ((1 - self.alpha) * cosine + self.alpha)


class LinearLR(Schedule, start_factor=1 / 3, end_factor=1.0, total_iters=5):
    """lr = base_lr * (start_factor + (end_factor - start_factor) * min(step, total_iters) / total_iters)"""

    chainable = True

    limits = {"start_factor": (math.ulp(0.0), 1), "end_factor": (0, 1), "total_iters": ABOVE_0}

    def get_lr(self, base_lr: float, step: int) -> float:
        part = min(step, self.total_iters) / self.total_iters
        return base_lr * (self.start_factor + (self.end_factor - self.start_factor) * part)


class ConstantLR(Schedule, factor=1 / 3, total_iters=5):
    """lr = base_lr * factor for the first `total_iters` steps, then base_lr. `torch.optim.lr_scheduler.ConstantLR`."""

    chainable = True

    limits = {"factor": (0, 1)}

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.factor if step < self.total_iters else base_lr


class PolynomialLR(Schedule, total_iters=5, power=1.0, end_learning_rate=0.0, cycle=False):
    """lr = (base_lr - end) * (1 - min(step, total_iters) / total_iters)^power + end

    Args:
        total_iters: how many steps the decay takes; `steps` is OneFlow's name.
        power: its shape.
        end_learning_rate: the last learning rate, given by keyword; OneFlow has it before `power`, and 1e-4 by default.
        cycle: whether the learning rate rises again after `total_iters` steps, to decay over a longer time.

    Source: `torch.optim.lr_scheduler.PolynomialLR`, `oneflow.optim.lr_scheduler.PolynomialLR`.
    """

    chainable = True
    by_keyword = "end_learning_rate"
    synonyms = {**Schedule.synonyms, "steps": "total_iters"}
    limits = {"total_iters": ABOVE_0}

    def get_lr(self, base_lr: float, step: int) -> float:
        total = self.total_iters * max(1, math.ceil(step / self.total_iters)) if self.cycle else self.total_iters
        part = (1 - min(step, total) / total) ** self.power
        return (base_lr - self.end_learning_rate) * part + self.end_learning_rate


class MultiplicativeLR(LambdaLR):
    """lr = base_lr * lr_lambda(1) * ... * lr_lambda(step). `torch.optim.lr_scheduler.MultiplicativeLR`.

    The product is formed again at each step, so that any step can be resumed.
    """

    chainable = True

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        pairs = zip(base_lrs, self.lr_lambdas, strict=True)
        return [base_lr * math.prod(factor(t) for t in range(1, step + 1)) for base_lr, factor in pairs]

    def take_up(self, step: int) -> None:
        for group, factor in zip(self.optimizer.param_groups, self.lr_lambdas, strict=True):
            group["lr"] *= factor(step)
        self.go_on(step)


class CosineAnnealingWarmRestarts(Schedule, T_0=..., T_mult=1, eta_min=0.0, decay_rate=1.0, restart_limit=0):
    """lr = eta_min + (base_lr - eta_min) * (1 + cos(pi * t / T)) / 2, t and T being position and length of a cycle.

    Args:
        T_0: the length of the first cycle.
        T_mult: each cycle is so many times as long as the one before.
        eta_min: the smallest learning rate.
        decay_rate: each cycle begins at so many times the learning rate of the one before. By keyword, as in OneFlow.
        restart_limit: how many cycles there are, after which it stays at `eta_min`; 0 for no end.

    Source: `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`; Loshchilov and Hutter 2017, "SGDR".
    """

    by_keyword = "decay_rate"
    limits = {"T_0": (1, math.inf), "T_mult": (1, math.inf)}

    def get_lr(self, base_lr: float, step: int) -> float:
        length, (cycle, step) = self.T_0, divmod(step, self.T_0) if self.T_mult == 1 else (0, step)
        while step >= length:
            step, length, cycle = step - length, length * self.T_mult, cycle + 1
        if cycle >= self.restart_limit > 0:
            return self.eta_min
        part, base_lr = step / length, base_lr * self.decay_rate**cycle
        return self.eta_min + (base_lr - self.eta_min) * (1 + math.cos(math.pi * part)) / 2
