"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch import Op
from miniflow.optim.optimizer import Optimizer, ParameterGroups, check_at_least_zero


class AsgdUpdate(Op):
    """One step of `ASGD`; `steps`: how many updates each parameter will then have seen."""

    outputs = ("params", "averages")
    groups = 3  # params, grads, averages
    mutates = (0, 2)
    per_parameter = ("steps",)


class ASGD(Optimizer):
    """Stochastic gradient descent that also averages the parameters, in the state "ax".

        eta <- lr / (1 + lambd * lr * (t - 1))^alpha
        p <- (1 - lambd * eta) * p - eta * g
        ax <- ax + (p - ax) / max(1, t - 1 - t0)

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        lambd: how fast eta and the parameters decay.
        alpha: the power of eta's decay.
        t0: the step at which averaging begins.
        weight_decay: the factor of the L2 penalty.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: for a negative number.

    Source: `torch.optim.ASGD`; Polyak and Juditsky 1992, "Acceleration of stochastic approximation by averaging".
    """

    rule = AsgdUpdate
    counts_steps = True

    def __init__(
        self,
        params: ParameterGroups,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ):
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "maximize": maximize
        }  # fmt: skip
        super().__init__(params, defaults)

    def check_options(self, options: dict[str, Any]) -> None:
        check_at_least_zero(self, options, *(name for name in self.defaults if name != "maximize"))

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("ax",)
