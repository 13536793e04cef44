"""A warm-up before another schedule."""

from __future__ import annotations

from miniflow.errors import ArgumentTypeError
from miniflow.nn.arguments import AT_LEAST_0, check_choice, check_range
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

    def __init__(
        self, scheduler_or_optimizer: LRScheduler | Optimizer, warmup_factor: float = 1 / 3, warmup_iters: int = 5,
        warmup_method: str = "linear", warmup_prefix: bool = False, last_step: int = -1,
    ):  # fmt: skip
        check_range(self, AT_LEAST_0, warmup_factor=warmup_factor, warmup_iters=warmup_iters)
        check_choice(self, ["linear", "constant"], warmup_method=warmup_method)
        self.warmup_factor, self.warmup_iters = warmup_factor, warmup_iters
        self.warmup_method, self.warmup_prefix = warmup_method, warmup_prefix
        other = scheduler_or_optimizer
        self.scheduler = other if isinstance(other, LRScheduler) else None
        optimizer = self.scheduler.optimizer if self.scheduler else other
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(
                f"WarmupLR: got a {type(optimizer).__name__}; expected an Optimizer or an LRScheduler"
            )
        super().__init__(optimizer, last_step)

    def prepare(self, optimizer: Optimizer) -> None:
        self.end_lrs = None
        if self.scheduler and not self.warmup_prefix:
            self.scheduler.move_to(self.warmup_iters)
            self.end_lrs = self.scheduler.get_last_lr()
            self.scheduler.move_to(0)

    def _set(self) -> None:
        if self.scheduler:
            self.scheduler.move_to(max(0, self.last_step - self.warmup_iters * self.warmup_prefix))
        super()._set()

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        if step >= self.warmup_iters:
            return self.scheduler.get_last_lr() if self.scheduler else list(base_lrs)
        begin = [base_lr * self.warmup_factor for base_lr in base_lrs]
        if self.warmup_method == "constant":
            return begin
        pairs = zip(begin, self.end_lrs or base_lrs, strict=True)
        return [a + (b - a) * step / self.warmup_iters for a, b in pairs]


WarmUpLR = WarmupLR  # OneFlow's other spelling
