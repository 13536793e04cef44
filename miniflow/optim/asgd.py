"""Averaged stochastic gradient descent."""

from miniflow.optim.rule_optimizer import RuleOptimizer, Update


class AsgdUpdate(Update, ax=None):
    """One step of `ASGD`."""


class ASGD(
    RuleOptimizer, rule=AsgdUpdate, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0.0
):  # fmt: skip
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
