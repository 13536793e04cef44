"""Adadelta."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch import Op
from miniflow.errors import ArgumentError
from miniflow.optim.optimizer import Optimizer, ParameterGroups, check_at_least_zero


class AdadeltaUpdate(Op):
    """One step of `Adadelta`."""

    outputs = ("params", "square_avgs", "acc_deltas")
    groups = 4  # params, grads, square_avgs, acc_deltas
    mutates = (0, 2, 3)


class Adadelta(Optimizer):
    """Steps scaled by the ratio of the root mean squares of earlier steps and of the gradient.

        v <- rho * v + (1 - rho) * g^2
        d <- sqrt(a + eps) / sqrt(v + eps) * g
        a <- rho * a + (1 - rho) * d^2
        p <- p - lr * d

    Args:
        params: tensors, or groups of them.
        lr: the factor of a step.
        rho: the decay rate of both means.
        eps: added to them.
        weight_decay: the factor of the L2 penalty.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: for a negative number, or rho above 1.

    Source: `torch.optim.Adadelta`; Zeiler 2012, "ADADELTA: An Adaptive Learning Rate Method".
    """

    rule = AdadeltaUpdate
    counts_steps = True

    def __init__(
        self,
        params: ParameterGroups,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ):
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize})

    def check_options(self, options: dict[str, Any]) -> None:
        check_at_least_zero(self, options, "lr", "rho", "eps", "weight_decay")
        if options["rho"] > 1:
            raise ArgumentError(f"Adadelta: got rho={options['rho']}; expected a number from 0 to 1")

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("square_avg", "acc_delta")
