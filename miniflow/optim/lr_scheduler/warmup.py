"""A warm-up before another schedule."""

from __future__ import annotations

from miniflow.errors import ArgumentError, ArgumentTypeError
from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.optimizer import Optimizer


class WarmupLR(LRScheduler):
    """Begins with smaller learning rates, then follows another schedule, or stays at the base learning rate.

    "constant": lr = base_lr * warmup_factor during `warmup_iters` steps. "linear": from there along a straight line to
    the learning rate that comes afterwards.

    Args:
        scheduler_or_optimizer: the schedule to follow, which is then no longer stepped by hand, or an optimizer.
        warmup_factor: the fraction of the base learning rate to begin with.
        warmup_iters: the length of the warm-up in steps.
        warmup_method: "linear" or "constant".
        warmup_prefix: the other schedule begins at its step 0 when the warm-up is over (True), or the warm-up replaces
            its first steps (False).

    Raises:
        ArgumentTypeError: if the first argument is neither.
        ArgumentError: for an unknown method, or a negative factor or length.

    >>> import miniflow as flow
    >>> optimizer = flow.optim.SGD([flow.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = WarmupLR(optimizer, warmup_factor=0.5, warmup_iters=2)
    >>> scheduler.get_last_lr()
    [0.5]

    Source: `oneflow.optim.lr_scheduler.WarmupLR`; Goyal et al. 2017, "Accurate, Large Minibatch SGD".
    """

    begins_by_itself = True

    def __init__(
        self,
        scheduler_or_optimizer: LRScheduler | Optimizer,
        warmup_factor: float = 1 / 3,
        warmup_iters: int = 5,
        warmup_method: str = "linear",
        warmup_prefix: bool = False,
        last_step: int = -1,
    ):
        if warmup_method not in ("linear", "constant"):
            raise ArgumentError(f"WarmupLR: got warmup_method={warmup_method!r}; expected 'linear' or 'constant'")
        if not warmup_factor >= 0 or not warmup_iters >= 0:
            raise ArgumentError(
                f"WarmupLR: got warmup_factor={warmup_factor} and warmup_iters={warmup_iters}; "
                "expected numbers of at least 0"
            )
        self.warmup_factor = warmup_factor
        self.warmup_iters = warmup_iters
        self.warmup_method = warmup_method
        self.warmup_prefix = warmup_prefix
        self.scheduler = scheduler_or_optimizer if isinstance(scheduler_or_optimizer, LRScheduler) else None
        optimizer = self.scheduler.optimizer if self.scheduler else scheduler_or_optimizer
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(
                f"WarmupLR: got a {type(optimizer).__name__}; expected an Optimizer or an LRScheduler"
            )
        if self.scheduler and last_step == -1:  # take back what the other scheduler set when it was made
            for group, lr in zip(optimizer.param_groups, self.scheduler.base_lrs, strict=True):
                group["lr"] = lr
        super().__init__(optimizer, last_step)

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        if step >= self.warmup_iters:
            return self._following(base_lrs, step)
        begin = [base_lr * self.warmup_factor for base_lr in base_lrs]
        if self.warmup_method == "constant":
            return begin
        end = base_lrs if self.warmup_prefix else self._following(base_lrs, self.warmup_iters)
        return [a + (b - a) * step / self.warmup_iters for a, b in zip(begin, end, strict=True)]

    def _following(self, base_lrs: list[float], step: int) -> list[float]:
        if self.scheduler is None:
            return list(base_lrs)
        return self.scheduler.get_lrs(base_lrs, step - self.warmup_iters if self.warmup_prefix else step)


WarmUpLR = WarmupLR  # OneFlow's other spelling
