"""RAdam."""

from miniflow.optim.rule_optimizer import RuleOptimizer, Update


class RadamUpdate(Update, exp_avg=None, exp_avg_sq=None):
    """One step of `RAdam`."""


class RAdam(
    RuleOptimizer, rule=RadamUpdate, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0,
    decoupled_weight_decay=False,
):  # fmt: skip
    """Adam whose step is rectified for the variance of v, and plain momentum while that is infinite.

        rho <- rho_max - 2 t beta2^t / (1 - beta2^t), rho_max being 2 / (1 - beta2) - 1
        p <- p - lr * m / (1 - beta1^t) * (r * sqrt(1 - beta2^t) / (sqrt(v) + eps) if rho > 5 else 1)

    Args:
        params: tensors, or groups of them.
        lr, betas, eps, weight_decay, maximize: as for `Adam`.
        decoupled_weight_decay: let the decay act on the parameter, as in `AdamW`.

    Raises:
        ArgumentError: for a negative number, or betas outside of [0, 1).

    Source: `torch.optim.RAdam`; Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and Beyond".
    """
