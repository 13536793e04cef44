"""Averaged stochastic gradient descent."""

from typing import Any

from miniflow.nn.arguments import AT_LEAST_0, check_range
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class AsgdUpdate(Update):
    """One step of `ASGD`."""

    states = {"ax": None}


class FusedAsgdUpdate(Fused, AsgdUpdate):
    """`AsgdUpdate` of gradients that it scales first."""


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

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0.0, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        check_range(self, AT_LEAST_0, lambd=options["lambd"], alpha=options["alpha"], t0=options["t0"])
