"""Learning rate schedules.

Each schedule is one function of the base learning rate and the number of the step, `get_lr`. `step()` writes its value
into the groups of the optimizer. A learning rate that was changed from outside since the last step, by hand or by
another schedule, scales this schedule by the same ratio: so schedules that multiply can be stepped one after the other.
"""

from __future__ import annotations

import copy
from typing import Any

from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError
from miniflow.optim.optimizer import Optimizer


def check_optimizer(name: str, optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"{name}: got a {type(optimizer).__name__}; expected an Optimizer")


def state_of(scheduler: Any) -> dict[str, Any]:
    return {
        name: value.state_dict() if isinstance(value, LRScheduler) else copy.copy(value)
        for name, value in vars(scheduler).items()
        if name not in scheduler.not_saved
    }


def load_state(scheduler: Any, state_dict: dict[str, Any]) -> None:
    if not isinstance(state_dict, dict):
        raise CheckpointError(
            f"{type(scheduler).__name__}.load_state_dict: got a {type(state_dict).__name__}; expected a dict"
        )
    expected = {name for name in vars(scheduler) if name not in scheduler.not_saved}
    missing, unknown = sorted(expected - set(state_dict)), sorted(set(state_dict) - expected)
    if missing or unknown:
        raise CheckpointError(
            f"{type(scheduler).__name__}.load_state_dict: unknown entries {unknown}, missing entries {missing}; "
            "was it saved by another kind of scheduler?"
        )
    for name, value in state_dict.items():
        if isinstance(getattr(scheduler, name), LRScheduler):
            getattr(scheduler, name).load_state_dict(value)
        else:
            setattr(scheduler, name, copy.deepcopy(value))


class LRScheduler:
    """Base of the schedules that depend on the number of the step alone; a subclass overrides `get_lr`.

    Args:
        optimizer: whose learning rates to set. The base learning rate of each group is its "initial_lr", and that is
            its learning rate when the first scheduler is made.
        last_step: the number of the last step done, to go on from there; -1 to begin.

    Raises:
        ArgumentTypeError: if `optimizer` is none.
        ArgumentError: when going on although a group has no "initial_lr".

    Source: `oneflow.optim.lr_scheduler.LRScheduler`, `torch.optim.lr_scheduler.LRScheduler` (where it is `last_epoch`).
    """

    not_saved: tuple[str, ...] = ("optimizer",)  # attributes that state_dict leaves out

    def __init__(self, optimizer: Optimizer, last_step: int = -1):
        name = type(self).__name__
        check_optimizer(name, optimizer)
        for i, group in enumerate(optimizer.param_groups):
            if last_step == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ArgumentError(
                    f"{name}: got last_step={last_step}, but group {i} of the optimizer has no 'initial_lr'; "
                    "load the optimizer's state_dict first, or use last_step=-1"
                )
        self.optimizer = optimizer
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_step = last_step
        self._last_lr = self.get_lrs(self.base_lrs, last_step) if last_step >= 0 else list(self.base_lrs)
        self.step()

    def get_lr(self, base_lr: float, step: int) -> float:
        """The learning rate of step number `step`, counted from 0, of a group that began with `base_lr`."""
        raise NotImplementedError(f"{type(self).__name__}: a scheduler must override get_lr(base_lr, step)")

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        """The learning rates of all groups at step number `step`."""
        return [self.get_lr(base_lr, step) for base_lr in base_lrs]

    def step(self) -> None:
        """Go on to the next step and set its learning rates; call it after `optimizer.step()`.

        Raises:
            ArgumentError: if groups were added to the optimizer since the scheduler was made.
        """
        groups = self.optimizer.param_groups
        if len(groups) != len(self.base_lrs):
            raise ArgumentError(
                f"{type(self).__name__}: the optimizer has {len(groups)} parameter groups; "
                f"expected {len(self.base_lrs)} as at the start: make the scheduler after add_param_group"
            )
        for i, group in enumerate(groups):
            if group["lr"] != self._last_lr[i] != 0:
                self.base_lrs[i] *= group["lr"] / self._last_lr[i]
        self.last_step += 1
        self._last_lr = self.get_lrs(self.base_lrs, self.last_step)
        for group, lr in zip(groups, self._last_lr, strict=True):
            group["lr"] = lr

    def get_last_lr(self) -> list[float]:
        """The learning rates that the last `step` set, one for each group."""
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, as numbers, lists and dicts."""
        return state_of(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; load the optimizer's too.

        Raises:
            CheckpointError: if it was saved by another kind of scheduler.
        """
        load_state(self, state_dict)
