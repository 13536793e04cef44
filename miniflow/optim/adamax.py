"""Adamax."""

from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class AdamaxUpdate(Update):
    """One step of `Adamax`."""

    states = {"exp_avg": None, "exp_inf": None}


class FusedAdamaxUpdate(Fused, AdamaxUpdate):
    """`AdamaxUpdate` of gradients that it scales first."""


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

    def __init__(
        self, params: ParameterGroups, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))
