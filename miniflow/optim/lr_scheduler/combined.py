"""Schedules made of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from miniflow.errors import ArgumentError
from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.optimizer import Optimizer


class CombinedSchedule(LRScheduler):
    """Base of schedules that follow the formulas of others, which are then no longer stepped by hand."""

    not_saved = ("optimizer", "schedulers")

    def __init__(self, optimizer: Optimizer | None, schedulers: Sequence[LRScheduler], last_step: int = -1):
        name, self.schedulers = type(self).__name__, list(schedulers)
        optimizer = optimizer or (self.schedulers[0].optimizer if self.schedulers else None)
        if not self.schedulers or any(s.optimizer is not optimizer for s in self.schedulers):
            raise ArgumentError(f"{name}: expected at least one scheduler, and all of them for the same optimizer")
        super().__init__(optimizer, last_step)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, as numbers, lists and dicts; that of the others too."""
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self.schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        own, rates = dict(state_dict), [group["lr"] for group in self.optimizer.param_groups]
        for scheduler, state in zip(self.schedulers, own.pop("_schedulers"), strict=True):
            scheduler.load_state_dict(state)
        for group, lr in zip(self.optimizer.param_groups, rates, strict=True):  # those of the others do not matter
            group["lr"] = lr
        super().load_state_dict(own)


class SequentialLR(CombinedSchedule):
    """One schedule after the other, each from its step 0 on.

    Args:
        schedulers: of the optimizer.
        milestones: the steps at which the second, the third and so on begin.
        interval_rescaling: of OneFlow: whether a schedule begins at its step 0, or at the step that it is; a bool, or
            one for each schedule.

    Raises:
        ArgumentError: for schedulers of another optimizer, or another number of milestones.

    Source: `torch.optim.lr_scheduler.SequentialLR`.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_step: int = -1,
        *, interval_rescaling: bool | Sequence[bool] = True,
    ):  # fmt: skip
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: got {len(schedulers)} schedulers and {len(milestones)} milestones; expected one less"
            )
        self.milestones = list(milestones)
        several = isinstance(interval_rescaling, Sequence)
        self.rescaled = list(interval_rescaling) if several else [interval_rescaling] * len(schedulers)
        super().__init__(optimizer, schedulers, last_step)

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        k = bisect_right(self.milestones, step)
        return self.schedulers[k].get_lrs(base_lrs, step - (self.milestones[k - 1] if k and self.rescaled[k] else 0))


class ChainedScheduler(CombinedSchedule):
    """All schedules at once: each takes the learning rates of the one before as its base.

    That is the product of their factors, for schedules that multiply. `torch.optim.lr_scheduler.ChainedScheduler`.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None, last_step: int = -1):
        super().__init__(optimizer, schedulers, last_step)

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        for scheduler in self.schedulers:
            base_lrs = scheduler.get_lrs(base_lrs, step)
        return base_lrs
