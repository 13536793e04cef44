"""Schedules given by a formula."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from miniflow.nn.arguments import ABOVE_0, check_range
from miniflow.optim.lr_scheduler.base import LRScheduler, per_group
from miniflow.optim.optimizer import Optimizer

Factor = Callable[[int], float]


class StepLR(LRScheduler):
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

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_step: int = -1):
        check_range(self, ABOVE_0, step_size=step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma ** (step // self.step_size)


class MultiStepLR(LRScheduler):
    """lr = base_lr * gamma^(number of milestones reached)

    Args:
        milestones: numbers of steps; one that is listed twice counts twice.
    """

    chainable = True

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_step: int = -1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma ** bisect_right(self.milestones, step)


class ExponentialLR(LRScheduler):
    """lr = base_lr * gamma^step"""

    chainable = True

    def __init__(self, optimizer: Optimizer, gamma: float, last_step: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma**step


class LambdaLR(LRScheduler):
    """lr = base_lr * lr_lambda(step)

    Args:
        lr_lambda: a function of the number of the step, or a list of them, one for each parameter group. Functions are
            not part of the state_dict.

    Raises:
        ArgumentError: for a list of the wrong length.
    """

    not_saved = ("optimizer", "lr_lambda", "lr_lambdas")

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_step: int = -1):
        self.lr_lambda = lr_lambda
        super().__init__(optimizer, last_step)

    def prepare(self, optimizer: Optimizer) -> None:
        self.lr_lambdas = per_group(type(self).__name__, optimizer, self.lr_lambda, "functions")

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        return [base_lr * factor(step) for base_lr, factor in zip(base_lrs, self.lr_lambdas, strict=True)]


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (base_lr - eta_min) * (1 + cos(pi * step / T_max)) / 2

    After T_max steps the cosine rises again. Source: Loshchilov and Hutter 2017, "SGDR", without the restarts.
    """

    chainable = True

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_step: int = -1):
        check_range(self, ABOVE_0, T_max=T_max)
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return self.eta_min + (base_lr - self.eta_min) * (1 + math.cos(math.pi * step / self.T_max)) / 2


class CosineDecayLR(LRScheduler):
    """lr = base_lr * ((1 - alpha) * (1 + cos(pi * min(step / decay_steps, 1))) / 2 + alpha). `oneflow.optim`."""

    def __init__(self, optimizer: Optimizer, decay_steps: int, alpha: float = 0.0, last_step: int = -1):
        check_range(self, ABOVE_0, decay_steps=decay_steps)
        self.decay_steps, self.alpha = decay_steps, alpha
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        cosine = (1 + math.cos(math.pi * min(step / self.decay_steps, 1))) / 2
        return base_lr * ((1 - self.alpha) * cosine + self.alpha)


class LinearLR(LRScheduler):
    """lr = base_lr * (start_factor + (end_factor - start_factor) * min(step, total_iters) / total_iters)"""

    chainable = True

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_step: int = -1,
    ):  # fmt: skip
        check_range(self, (math.ulp(0.0), 1), start_factor=start_factor)
        check_range(self, (0, 1), end_factor=end_factor)
        check_range(self, ABOVE_0, total_iters=total_iters)
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        part = min(step, self.total_iters) / self.total_iters
        return base_lr * (self.start_factor + (self.end_factor - self.start_factor) * part)


class ConstantLR(LRScheduler):
    """lr = base_lr * factor for the first `total_iters` steps, then base_lr. `torch.optim.lr_scheduler.ConstantLR`."""

    chainable = True

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_step: int = -1):
        check_range(self, (0, 1), factor=factor)
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.factor if step < self.total_iters else base_lr


class PolynomialLR(LRScheduler):
    """lr = (base_lr - end) * (1 - min(step, total_iters) / total_iters)^power + end

    Args:
        total_iters: how many steps the decay takes; `steps` is OneFlow's name.
        power: its shape.
        end_learning_rate: the last learning rate, given by keyword; OneFlow has it before `power`, and 1e-4 by default.
        cycle: whether the learning rate rises again after `total_iters` steps, to decay over a longer time.

    Source: `torch.optim.lr_scheduler.PolynomialLR`, `oneflow.optim.lr_scheduler.PolynomialLR`.
    """

    chainable = True
    synonyms = {**LRScheduler.synonyms, "steps": "total_iters"}

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, *, end_learning_rate: float = 0.0,
        cycle: bool = False, last_step: int = -1,
    ):  # fmt: skip
        check_range(self, ABOVE_0, total_iters=total_iters)
        self.total_iters, self.power = total_iters, power
        self.end_learning_rate, self.cycle = end_learning_rate, cycle
        super().__init__(optimizer, last_step)

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


class CosineAnnealingWarmRestarts(LRScheduler):
    """lr = eta_min + (base_lr - eta_min) * (1 + cos(pi * t / T)) / 2, t and T being position and length of a cycle.

    Args:
        T_0: the length of the first cycle.
        T_mult: each cycle is so many times as long as the one before.
        eta_min: the smallest learning rate.
        decay_rate: each cycle begins at so many times the learning rate of the one before. By keyword, as in OneFlow.
        restart_limit: how many cycles there are, after which it stays at `eta_min`; 0 for no end.

    Source: `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`; Loshchilov and Hutter 2017, "SGDR".
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, *, decay_rate: float = 1.0,
        restart_limit: int = 0, last_step: int = -1,
    ):  # fmt: skip
        check_range(self, (1, math.inf), T_0=T_0, T_mult=T_mult)
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.decay_rate, self.restart_limit = decay_rate, restart_limit
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        length, (cycle, step) = self.T_0, divmod(step, self.T_0) if self.T_mult == 1 else (0, step)
        while step >= length:
            step, length, cycle = step - length, length * self.T_mult, cycle + 1
        if cycle >= self.restart_limit > 0:
            return self.eta_min
        part, base_lr = step / length, base_lr * self.decay_rate**cycle
        return self.eta_min + (base_lr - self.eta_min) * (1 + math.cos(math.pi * part)) / 2
