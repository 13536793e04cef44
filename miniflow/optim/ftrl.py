"""Follow the regularized leader."""

import math
from typing import Any

from miniflow.nn.arguments import AT_LEAST_0, check_range
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class FtrlUpdate(Update):
    """One step of `FTRL`."""

    states = {"accumulate": None, "z": None}


class FusedFtrlUpdate(Fused, FtrlUpdate):
    """`FtrlUpdate` of gradients that it scales first."""


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

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-3, weight_decay: float = 0.0, lr_power: float = -0.5,
        initial_accumulator_value: float = 0.1, lambda1: float = 0.0, lambda2: float = 0.0, beta: float = 0.0, *,
        maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        check_range(self, (-math.inf, 0), lr_power=options["lr_power"])
        names = "initial_accumulator_value", "lambda1", "lambda2", "beta"
        check_range(self, AT_LEAST_0, **{name: options[name] for name in names})
