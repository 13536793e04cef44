"""Schedules made of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from miniflow.errors import ArgumentError
from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.optim.optimizer import Optimizer


class CombinedSchedule(LRScheduler):
    """Base of schedules that step others, which are then no longer stepped by hand."""

    not_saved = ("optimizer", "schedulers")

    def __init__(self, optimizer: Optimizer | None, schedulers: Sequence[LRScheduler], last_step: int = -1):
        self.schedulers = list(schedulers)
        optimizers = [s.optimizer if isinstance(s, LRScheduler) else None for s in self.schedulers] or [None]
        optimizer = optimizer or optimizers[0]
        if optimizer is None or any(other is not optimizer for other in optimizers):
            raise ArgumentError(
                f"{type(self).__name__}: expected at least one scheduler, and all of them for the same optimizer"
            )
        super().__init__(optimizer)
        self.move_to(last_step + 1)

    def rewind(self) -> None:
        """Be as before the first step, the schedules and the learning rates too."""
        super().rewind()
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self.schedulers:
            scheduler.rewind()

    def move_to(self, step: float) -> None:
        if step < self.last_step:
            self.rewind()
        while self.last_step < step:
            self.step()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, as numbers, lists and dicts; that of the others too."""
        return {**super().state_dict(), "_schedulers": [s.state_dict() for s in self.schedulers]}

    def _take(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        for scheduler, state_of_it in zip(self.schedulers, state.pop("_schedulers"), strict=True):
            scheduler._take(state_of_it)
        super()._take(state)


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

    def _set(self) -> None:
        k = bisect_right(self.milestones, self.last_step)
        scheduler, milestone = self.schedulers[k], self.milestones[k - 1] if k else -1
        if self.last_step == milestone:
            scheduler.take_up(0 if self.rescaled[k] else self.last_step)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(CombinedSchedule):
    """Steps all schedules, one after the other: chainable ones multiply, others write over what came before.

    Source: `torch.optim.lr_scheduler.ChainedScheduler`.
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        super().__init__(optimizer, schedulers, getattr(schedulers[0], "last_step", 0) - 1 if schedulers else -1)

    def _set(self) -> None:
        for scheduler in self.schedulers:
            scheduler.step()
        self._last_lr = self.schedulers[-1].get_last_lr()
