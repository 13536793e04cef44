"""Adadelta."""

from typing import Any

from miniflow.nn.arguments import check_range
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class AdadeltaUpdate(Update):
    """One step of `Adadelta`."""

    states = {"square_avg": None, "acc_delta": None}

    per_parameter = ()


class FusedAdadeltaUpdate(Fused, AdadeltaUpdate):
    """`AdadeltaUpdate` of gradients that it scales first."""


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

    def __init__(
        self, params: ParameterGroups, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0,
        *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        check_range(self, (0, 1), rho=options["rho"])
