"""Adadelta."""

from miniflow.optim.rule_optimizer import RuleOptimizer, Update


class AdadeltaUpdate(Update, square_avg=None, acc_delta=None):
    """One step of `Adadelta`."""

    per_parameter = ()


class Adadelta(
    RuleOptimizer, rule=AdadeltaUpdate, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0
):  # fmt: skip
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

    limits = {"rho": (0, 1)}
