"""Schedules given by a formula."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable

from miniflow.errors import ArgumentError
from miniflow.optim.lr_scheduler.base import LRScheduler, check_optimizer
from miniflow.optim.optimizer import Optimizer


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

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_step: int = -1):
        if not step_size > 0:
            raise ArgumentError(f"StepLR: got step_size={step_size}; expected a number of steps above 0")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma ** (step // self.step_size)


class MultiStepLR(LRScheduler):
    """lr = base_lr * gamma^(number of milestones reached)

    Args:
        milestones: numbers of steps; one that is listed twice counts twice.
    """

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_step: int = -1):
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.gamma ** bisect_right(self.milestones, step)


class ExponentialLR(LRScheduler):
    """lr = base_lr * gamma^step"""

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

    not_saved = ("optimizer", "lr_lambdas")
    begins_by_itself = True

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_step: int = -1,
    ):
        check_optimizer("LambdaLR", optimizer)
        count = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ArgumentError(
                f"LambdaLR: got {len(self.lr_lambdas)} functions; expected {count}, one for each parameter group"
            )
        super().__init__(optimizer, last_step)

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        return [base_lr * factor(step) for base_lr, factor in zip(base_lrs, self.lr_lambdas, strict=True)]


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (base_lr - eta_min) * (1 + cos(pi * step / T_max)) / 2

    After T_max steps the cosine rises again. Source: Loshchilov and Hutter 2017, "SGDR", without the restarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_step: int = -1):
        if not T_max > 0:
            raise ArgumentError(f"CosineAnnealingLR: got T_max={T_max}; expected a number of steps above 0")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return self.eta_min + (base_lr - self.eta_min) * (1 + math.cos(math.pi * step / self.T_max)) / 2


class CosineDecayLR(LRScheduler):
    """lr = base_lr * ((1 - alpha) * (1 + cos(pi * min(step / decay_steps, 1))) / 2 + alpha). `oneflow.optim`."""

    def __init__(self, optimizer: Optimizer, decay_steps: int, alpha: float = 0.0, last_step: int = -1):
        if not decay_steps > 0:
            raise ArgumentError(f"CosineDecayLR: got decay_steps={decay_steps}; expected a number of steps above 0")
        self.decay_steps, self.alpha = decay_steps, alpha
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        cosine = (1 + math.cos(math.pi * min(step / self.decay_steps, 1))) / 2
        return base_lr * ((1 - self.alpha) * cosine + self.alpha)


class LinearLR(LRScheduler):
    """lr = base_lr * (start_factor + (end_factor - start_factor) * min(step, total_iters) / total_iters)"""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_step: int = -1,
    ):
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ArgumentError(
                f"LinearLR: got start_factor={start_factor} and end_factor={end_factor}; "
                "expected factors from 0 to 1, and the first above 0"
            )
        if not total_iters > 0:
            raise ArgumentError(f"LinearLR: got total_iters={total_iters}; expected a number of steps above 0")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        part = min(step, self.total_iters) / self.total_iters
        return base_lr * (self.start_factor + (self.end_factor - self.start_factor) * part)


class ConstantLR(LRScheduler):
    """lr = base_lr * factor for the first `total_iters` steps, then base_lr. `torch.optim.lr_scheduler.ConstantLR`."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_step: int = -1):
        if not 0 <= factor <= 1:
            raise ArgumentError(f"ConstantLR: got factor={factor}; expected a number from 0 to 1")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self.factor if step < self.total_iters else base_lr


class PolynomialLR(LRScheduler):
    """lr = base_lr * (1 - min(step, total_iters) / total_iters)^power. `torch.optim.lr_scheduler.PolynomialLR`."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_step: int = -1):
        if not total_iters > 0:
            raise ArgumentError(f"PolynomialLR: got total_iters={total_iters}; expected a number of steps above 0")
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * (1 - min(step, self.total_iters) / self.total_iters) ** self.power


class MultiplicativeLR(LambdaLR):
    """lr = base_lr * lr_lambda(1) * ... * lr_lambda(step). `torch.optim.lr_scheduler.MultiplicativeLR`.

    The product is formed again at each step, so that any step can be resumed.
    """

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        pairs = zip(base_lrs, self.lr_lambdas, strict=True)
        return [base_lr * math.prod(factor(t) for t in range(1, step + 1)) for base_lr, factor in pairs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """lr = eta_min + (base_lr - eta_min) * (1 + cos(pi * t / T)) / 2, t and T being position and length of a cycle.

    Args:
        T_0: the length of the first cycle.
        T_mult: each cycle is so many times as long as the one before.
        eta_min: the smallest learning rate.

    Source: `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`; Loshchilov and Hutter 2017, "SGDR".
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_step: int = -1):
        if not (isinstance(T_0, int) and T_0 > 0 and isinstance(T_mult, int) and T_mult >= 1):
            raise ArgumentError(
                f"CosineAnnealingWarmRestarts: got T_0={T_0}, T_mult={T_mult}; expected integers above 0"
            )
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_step)

    def get_lr(self, base_lr: float, step: int) -> float:
        length = self.T_0
        while step >= length and self.T_mult > 1:
            step, length = step - length, length * self.T_mult
        part = step % length / length
        return self.eta_min + (base_lr - self.eta_min) * (1 + math.cos(math.pi * part)) / 2
