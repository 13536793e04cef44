"""A schedule that follows a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from miniflow.dispatch.tape import modes
from miniflow.errors import ArgumentError
from miniflow.nn.arguments import ExplainsArguments, check_choice
from miniflow.optim.lr_scheduler.base import LRScheduler, check_optimizer, per_group
from miniflow.optim.optimizer import Optimizer


class ReduceLROnPlateau(ExplainsArguments):
    """Multiplies the learning rates by `factor` when a metric has stopped improving.

    Args:
        optimizer: whose learning rates to reduce.
        mode: "min" if a smaller metric is better, "max" if a larger one is.
        factor: below 1.
        patience: how many steps without improvement are tolerated before a reduction.
        threshold: the smallest change that counts as an improvement.
        threshold_mode: "rel": relative to the best metric so far, "abs": absolute.
        cooldown: how many steps to wait after a reduction before counting again.
        min_lr: the lower bound, or a list of them, one for each parameter group.
        eps: a smaller reduction than this is skipped.

    Raises:
        TypeError: if `optimizer` is not an optimizer.
        ArgumentError: for a factor of 1 or more, an unknown mode, or a list of the wrong length.

    >>> import miniflow as flow
    >>> optimizer = flow.optim.SGD([flow.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     scheduler.step(loss)
    >>> scheduler.get_last_lr()
    [0.5]

    Source: `torch.optim.lr_scheduler.ReduceLROnPlateau`.
    """

    not_saved = ("optimizer",)

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: float | Sequence[float] = 0.0, eps: float = 1e-8,
    ):  # fmt: skip
        check_choice(self, ["min", "max"], mode=mode)
        check_choice(self, ["rel", "abs"], threshold_mode=threshold_mode)
        check_optimizer("ReduceLROnPlateau", optimizer)
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown = threshold, threshold_mode, cooldown
        self.min_lr, self.eps = min_lr, eps
        if not 0 <= self.factor < 1:
            raise ArgumentError(f"ReduceLROnPlateau: got factor={self.factor}; expected a number from 0 to below 1")
        self.min_lrs = per_group("ReduceLROnPlateau", self.optimizer, self.min_lr, "values for min_lr")
        self.best = math.inf if self.mode == "min" else -math.inf
        self.num_bad_steps = self.cooldown_counter = self.last_step = 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, metrics: Any) -> None:
        """Record the metric, a number or a 0-dim tensor, and reduce the learning rates if it is time."""
        if modes.tracer is not None:
            modes.tracer.before_step(
                "ReduceLROnPlateau.step", "the metric has no value yet: step it after the graph, with what it returned"
            )
        metric = float(metrics)
        self.last_step += 1
        if self._is_better(metric):
            self.best = metric
            self.num_bad_steps = 0
        else:
            self.num_bad_steps += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_steps = 0
        if self.num_bad_steps > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_steps = 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _is_better(self, metric: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if math.isinf(self.best):
            return sign * metric < sign * self.best
        margin = self.threshold if self.threshold_mode == "abs" else self.threshold * self.best
        return sign * metric < sign * self.best - margin

    def _reduce(self) -> None:
        for group, min_lr in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            reduced = max(group["lr"] * self.factor, min_lr)
            if group["lr"] - reduced > self.eps:
                group["lr"] = reduced

    get_last_lr = LRScheduler.get_last_lr
    state_dict = LRScheduler.state_dict
    load_state_dict, _take = LRScheduler.load_state_dict, LRScheduler._take
