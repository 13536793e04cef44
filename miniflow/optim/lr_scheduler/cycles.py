"""Schedules that raise and lower the learning rates, and momentum in the opposite direction."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from miniflow.errors import ArgumentError
from miniflow.nn.arguments import check_choice, check_range
from miniflow.optim.lr_scheduler.base import LRScheduler, per_group
from miniflow.optim.optimizer import Optimizer

Rates = float | Sequence[float]


def set_momentum(group: dict[str, Any], value: float) -> None:
    """Set the momentum of a group, or the first of its betas."""
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicRates(LRScheduler):
    """Base of schedules whose rates follow from the step alone, with a momentum that moves the other way."""

    cycle_momentum: bool

    def prepare(self, optimizer: Optimizer) -> None:
        if self.cycle_momentum and not any(key in optimizer.defaults for key in ("momentum", "betas")):
            raise ArgumentError(
                f"{type(self).__name__}: got {type(optimizer).__name__}, without momentum; use cycle_momentum=False"
            )

    def _set(self) -> None:
        super()._set()
        if self.cycle_momentum:
            for i, group in enumerate(self.optimizer.param_groups):
                set_momentum(group, self.momentum(i, self.last_step))

    def momentum(self, i: int, step: int) -> float:
        """The momentum of group `i` at a step."""
        raise NotImplementedError(f"{type(self).__name__}: a schedule with momentum must override momentum(i, step)")


class OneCycleLR(CyclicRates):
    """One rise of the learning rate to `max_lr`, then a fall to far below the start.

    Args:
        max_lr: the highest learning rate, or a list of them, one for each parameter group.
        total_steps: how many steps; epochs * steps_per_epoch if None.
        pct_start: the fraction of the steps that the rise takes.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: whether momentum (or the first of betas) falls from `max_momentum` to `base_momentum` and rises
            again.
        div_factor: max_lr / the first learning rate.
        final_div_factor: the first / the last.
        three_phase: fall to the first learning rate as fast as it rose, then to the last.

    Raises:
        ArgumentError: without a number of steps, for an optimizer without momentum, or an unknown strategy.

    Source: `torch.optim.lr_scheduler.OneCycleLR`; Smith and Topin 2019, "Super-Convergence".
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: Rates, total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
        cycle_momentum: bool = True, base_momentum: float = 0.85, max_momentum: float = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False, last_step: int = -1,
    ):  # fmt: skip
        check_range(self, (0, 1), pct_start=pct_start)
        check_choice(self, ["cos", "linear"], anneal_strategy=anneal_strategy)
        self.max_lr, self.total_steps, self.epochs, self.steps_per_epoch = max_lr, total_steps, epochs, steps_per_epoch
        self.pct_start, self.anneal_strategy, self.three_phase = pct_start, anneal_strategy, three_phase
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        self.div_factor, self.final_div_factor, self.last_step = div_factor, final_div_factor, last_step
        super().__init__(optimizer, last_step)

    def prepare(self, optimizer: Optimizer) -> None:
        total = self.total_steps if self.total_steps is not None else (self.epochs or 0) * (self.steps_per_epoch or 0)
        if not total > 0:
            raise ArgumentError(f"OneCycleLR: got {total} steps; expected total_steps, or epochs and steps_per_epoch")
        max_lrs = per_group("OneCycleLR", optimizer, self.max_lr)
        self.total_steps = total
        rise = self.pct_start * total - 1  # the step at which the rate is highest
        high, last = self.div_factor, 1 / self.final_div_factor
        self.corners = [
            [0.0, 1.0, self.max_momentum], [rise, high, self.base_momentum], [total - 1.0, last, self.max_momentum]
        ]  # fmt: skip
        if self.three_phase:
            self.corners.insert(2, [2 * rise, 1.0, self.max_momentum])
        super().prepare(optimizer)
        if self.last_step == -1:
            for group, max_lr in zip(optimizer.param_groups, max_lrs, strict=True):
                group["initial_lr"] = max_lr / self.div_factor

    def _between(self, step: int, position: int) -> float:
        """The factor of the first rate (1), or the momentum (2), at a step."""
        if step > self.total_steps:  # a loop steps once more after its last step
            raise ArgumentError(f"OneCycleLR: got step {step}; expected at most total_steps={self.total_steps}")
        pairs = list(zip(self.corners, self.corners[1:], strict=False))
        begin, end = next((pair for pair in pairs if step <= pair[1][0]), pairs[-1])
        part = (step - begin[0]) / (end[0] - begin[0] or 1.0)
        if self.anneal_strategy == "cos":
            part = (1 - math.cos(math.pi * part)) / 2
        return begin[position] + (end[position] - begin[position]) * part

    def get_lr(self, base_lr: float, step: int) -> float:
        return base_lr * self._between(step, 1)

    def momentum(self, i: int, step: int) -> float:
        return self._between(step, 2)


class CyclicLR(CyclicRates):
    """Learning rates that rise from `base_lr` to `max_lr` and fall again, in cycles.

    Args:
        base_lr, max_lr: the lowest and the highest learning rate, or lists, one for each parameter group.
        step_size_up, step_size_down: how many steps the rise and the fall take; as many if None.
        mode: "triangular", "triangular2" (the height halves each cycle) or "exp_range" (it is times gamma^step).
        gamma: for "exp_range".
        scale_fn: the factor of the height, in place of `mode`; not part of the state_dict.
        scale_mode: whether it is a function of the "cycle", counted from 1, or of the step ("iterations").
        cycle_momentum: whether momentum (or the first of betas) falls from `max_momentum` to `base_momentum` while the
            rate rises.

    Raises:
        ArgumentError: for an unknown mode, an optimizer without momentum, or a list of the wrong length.

    Source: `torch.optim.lr_scheduler.CyclicLR`; Smith 2017, "Cyclical Learning Rates for Training Neural Networks".
    """

    not_saved = ("optimizer", "scale_fn")

    def __init__(
        self, optimizer: Optimizer, base_lr: Rates, max_lr: Rates, step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[int], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float = 0.8, max_momentum: float = 0.9, last_step: int = -1,
    ):  # fmt: skip
        check_choice(self, ["triangular", "triangular2", "exp_range"], mode=mode)
        check_choice(self, ["cycle", "iterations"], scale_mode=scale_mode)
        self.base_lr, self.max_lr, self.mode, self.gamma = base_lr, max_lr, mode, gamma
        self.step_size_up = step_size_up
        self.step_size_down = step_size_up if step_size_down is None else step_size_down
        self.scale_fn, self.scale_mode, self.last_step = scale_fn, scale_mode, last_step
        self.cycle_momentum, self.base_momentum, self.max_momentum = cycle_momentum, base_momentum, max_momentum
        super().__init__(optimizer, last_step)

    def prepare(self, optimizer: Optimizer) -> list[float]:
        lows, highs = (per_group("CyclicLR", optimizer, value) for value in (self.base_lr, self.max_lr))
        self.spans = [high - low for high, low in zip(highs, lows, strict=True)]
        super().prepare(optimizer)
        if self.last_step == -1:
            for group, low in zip(optimizer.param_groups, lows, strict=True):
                group["lr"] = low
        return lows

    def _height(self, step: int) -> float:
        """How far up between the lowest and the highest value a step is."""
        length = self.step_size_up + self.step_size_down
        cycle, offset = step // length + 1, step % length
        height = offset / self.step_size_up if offset <= self.step_size_up else (length - offset) / self.step_size_down
        if self.scale_fn is not None:
            return height * self.scale_fn(cycle if self.scale_mode == "cycle" else step)
        return height * {"triangular": 1.0, "triangular2": 2.0 ** (1 - cycle), "exp_range": self.gamma**step}[self.mode]

    def get_lrs(self, base_lrs: list[float], step: int) -> list[float]:
        height = self._height(step)
        return [low + span * height for low, span in zip(base_lrs, self.spans, strict=True)]

    def momentum(self, i: int, step: int) -> float:
        return self.max_momentum - (self.max_momentum - self.base_momentum) * self._height(step)
