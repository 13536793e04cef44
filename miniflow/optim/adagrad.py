"""Adagrad."""

from typing import Any

from miniflow.nn.arguments import AT_LEAST_0, check_range
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class AdagradUpdate(Update):
    """One step of `Adagrad`."""

    states = {"sum": None}


class FusedAdagradUpdate(Fused, AdagradUpdate):
    """`AdagradUpdate` of gradients that it scales first."""


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients so far.

        g <- grad + weight_decay * p        (-grad when maximizing)
        s <- s + g^2
        p <- p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    Args:
        params: tensors, or groups of them.
        lr: the learning rate; 1e-2 by default as in PyTorch, where OneFlow has 1e-3.
        lr_decay: how fast the learning rate falls with the number of steps.
        weight_decay: the factor of the L2 penalty.
        initial_accumulator_value: the first s.
        eps: added to the denominator.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: for a negative number.

    >>> import miniflow as flow
    >>> w = flow.tensor([1.0], requires_grad=True)
    >>> optimizer = flow.optim.Adagrad([w], lr=0.25)
    >>> (2 * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.75]

    Source: `torch.optim.Adagrad`; Duchi et al. 2011, "Adaptive Subgradient Methods for Online Learning".
    """

    rule = AdagradUpdate

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        first = options["initial_accumulator_value"]
        check_range(self, AT_LEAST_0, lr_decay=options["lr_decay"], initial_accumulator_value=first)

    def first_value(self, group: dict[str, Any]) -> float:
        return group["initial_accumulator_value"]

    def attributes(self, group: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in super().attributes(group).items() if name != "initial_accumulator_value"}
