"""Optimizers of job functions: `flow.optimizer.SGD(schedule).minimize(loss)`. For all other code there is `flow.optim`.

A schedule gives the learning rate of each step from 0 on.

Source: `oneflow.optimizer` of OneFlow 0.4 and before.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

from miniflow import optim
from miniflow.errors import ArgumentError, ArgumentTypeError
from miniflow.graph.job import current_job
from miniflow.optim.lr_scheduler.schedules import LambdaLR
from miniflow.tensor import Tensor


class LrScheduler:
    """The base of schedules: `rate(step)` is the learning rate of a step."""

    def rate(self, step: int) -> float:
        """The learning rate of step 0, 1 ..."""
        raise NotImplementedError


class PiecewiseConstantScheduler(LrScheduler):
    """values[0] before step boundaries[0], then values[1] before step boundaries[1], ...

    Args:
        boundaries: the steps at which the rate changes, in ascending order.
        values: the rates, one more than boundaries.

    Raises:
        ArgumentError: for another number of values, or boundaries that do not ascend.

    >>> schedule = PiecewiseConstantScheduler([2], [0.1, 0.01])
    >>> [schedule.rate(step) for step in range(4)]
    [0.1, 0.1, 0.01, 0.01]
    """

    def __init__(self, boundaries: Sequence[int], values: Sequence[float]):
        if len(values) != len(boundaries) + 1 or list(boundaries) != sorted(boundaries):
            raise ArgumentError(
                f"PiecewiseConstantScheduler: got {len(boundaries)} boundaries {list(boundaries)} and {len(values)} "
                "values; expected ascending boundaries and one value more"
            )
        self.boundaries, self.values = list(boundaries), [float(value) for value in values]

    def rate(self, step: int) -> float:
        return self.values[bisect.bisect_right(self.boundaries, step)]


class CosineScheduler(LrScheduler):
    """base_lr ((1 - alpha) (1 + cos(pi step / steps)) / 2 + alpha) up to step `steps`, then alpha base_lr.

    Raises:
        ArgumentError: for fewer steps than 1.
    """

    def __init__(self, base_lr: float, steps: int, alpha: float = 0.0):
        if steps < 1:
            raise ArgumentError(f"CosineScheduler: got steps={steps}; expected at least 1")
        self.base_lr, self.steps, self.alpha = float(base_lr), steps, float(alpha)

    def rate(self, step: int) -> float:
        decay = (1 + math.cos(math.pi * min(step, self.steps) / self.steps)) / 2
        return self.base_lr * ((1 - self.alpha) * decay + self.alpha)


class Optimizer:
    """The base of the optimizers of job functions.

    Args:
        lr_scheduler: a schedule, or a number.
        options: of the class `optimizer_class`.
    """

    optimizer_class: type[optim.Optimizer]

    def __init__(self, lr_scheduler: LrScheduler | float, **options: Any):
        if not isinstance(lr_scheduler, int | float | LrScheduler) or isinstance(lr_scheduler, bool):
            raise ArgumentTypeError(
                f"optimizer.{type(self).__name__}: got a {type(lr_scheduler).__name__} as lr_scheduler; expected a "
                "number, or a schedule such as flow.optimizer.PiecewiseConstantScheduler([], [0.1])"
            )
        self.schedule, self.options = lr_scheduler, options

    def minimize(self, loss: Tensor) -> None:
        """Let every call of the job function make one step against the gradient of the mean of `loss`.

        Raises:
            GraphError: outside of a job function of type "train", or if called twice in it.
        """
        current_job("minimize").minimize(loss, self._make)

    def _make(self, variables: list[Tensor]) -> tuple[optim.Optimizer, LambdaLR | None]:
        if not isinstance(self.schedule, LrScheduler):
            return self.optimizer_class(variables, lr=self.schedule, **self.options), None
        optimizer = self.optimizer_class(variables, lr=1.0, **self.options)
        return optimizer, LambdaLR(optimizer, self.schedule.rate)


class SGD(Optimizer):
    """Stochastic gradient descent with momentum; see `flow.optim.SGD`."""

    optimizer_class = optim.SGD

    def __init__(self, lr_scheduler: LrScheduler | float, momentum: float = 0.9):
        super().__init__(lr_scheduler, momentum=momentum)


class Adam(Optimizer):
    """Adam; see `flow.optim.Adam`, which lists the other options."""

    optimizer_class = optim.Adam

    def __init__(
        self,
        lr_scheduler: LrScheduler | float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        do_bias_correction: bool = False,
        **options: Any,
    ):
        options |= {"betas": (beta1, beta2), "eps": epsilon, "do_bias_correction": do_bias_correction}
        super().__init__(lr_scheduler, **options)


class AdamW(Adam):
    """Adam with decoupled weight decay; see `flow.optim.AdamW`."""

    optimizer_class = optim.AdamW
