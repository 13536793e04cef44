"""Follow the regularized leader."""

import math

from miniflow.optim.rule_optimizer import RuleOptimizer, Update


class FtrlUpdate(Update, accumulate=None, z=None):
    """One step of `FTRL`."""


class FTRL(
    RuleOptimizer, rule=FtrlUpdate, lr=1e-3, weight_decay=0.0, lr_power=-0.5, initial_accumulator_value=0.1,
    lambda1=0.0, lambda2=0.0, beta=0.0,
):  # fmt: skip
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

    limits = {"lr_power": (-math.inf, 0)}
