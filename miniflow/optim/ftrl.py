"""Follow the regularized leader."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch import Op
from miniflow.optim.optimizer import Optimizer, ParameterGroups, check_at_least_zero


class FtrlUpdate(Op):
    """One step of `FTRL`; `steps`: how many updates each parameter will then have seen."""

    outputs = ("params", "accumulates", "zs")
    groups = 4  # params, grads, accumulates, zs
    mutates = (0, 2, 3)
    per_parameter = ("steps",)


class FTRL(Optimizer):
    """Follow the regularized leader, for sparse linear models: parameters that matter little become exactly 0.

        a' <- a + g^2
        z <- z + g - (a'^-lr_power - a^-lr_power) / lr * p
        p <- 0 if |z| <= lambda1 else (sign(z) * lambda1 - z) / ((beta + a'^-lr_power) / lr + lambda2)

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        weight_decay: the factor of the L2 penalty that the gradient gets.
        lr_power: the power by which a lowers the learning rate, at most 0.
        initial_accumulator_value: the first a.
        lambda1, lambda2: the factors of the L1 and the L2 regularization.
        beta: lowers the learning rate of the first steps.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: for a negative number.

    Source: `oneflow.optim.FTRL`; McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches".
    """

    rule = FtrlUpdate
    counts_steps = True

    def __init__(
        self,
        params: ParameterGroups,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        lr_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        lambda1: float = 0.0,
        lambda2: float = 0.0,
        beta: float = 0.0,
        *,
        maximize: bool = False,
    ):
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "lr_power": lr_power,
            "initial_accumulator_value": initial_accumulator_value, "lambda1": lambda1, "lambda2": lambda2,
            "beta": beta, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check_options(self, options: dict[str, Any]) -> None:
        names = ("lr", "weight_decay", "initial_accumulator_value", "lambda1", "lambda2", "beta")
        check_at_least_zero(self, options, *names)
        check_at_least_zero(self, {"-lr_power": -options["lr_power"]}, "-lr_power")

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("accumulate", "z")
