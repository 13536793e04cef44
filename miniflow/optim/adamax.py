"""Adamax."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch import Op
from miniflow.optim.optimizer import Optimizer, ParameterGroups, check_at_least_zero, check_pair


class AdamaxUpdate(Op):
    """One step of `Adamax`; `steps`: how many updates each parameter will then have seen."""

    outputs = ("params", "exp_avgs", "exp_infs")
    groups = 4  # params, grads, exp_avgs, exp_infs
    mutates = (0, 2, 3)
    per_parameter = ("steps",)


class Adamax(Optimizer):
    """Adam with a decaying maximum of the gradient's magnitude in place of its root mean square.

        m <- beta1 * m + (1 - beta1) * g
        u <- max(beta2 * u, |g| + eps)
        p <- p - lr / (1 - beta1^t) * m / u

    Args:
        params: tensors, or groups of them.
        lr, betas, eps, weight_decay, maximize: as for `Adam`.

    Raises:
        ArgumentError: for a negative number, or betas outside of [0, 1).

    Source: `torch.optim.Adamax`; Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization".
    """

    rule = AdamaxUpdate
    counts_steps = True

    def __init__(
        self,
        params: ParameterGroups,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ):
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        )

    def check_options(self, options: dict[str, Any]) -> None:
        check_at_least_zero(self, options, "lr", "eps", "weight_decay")
        check_pair(self, options, "betas", 0, 1)

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("exp_avg", "exp_inf")
