"""Resilient backpropagation."""

from typing import Any

from miniflow.errors import ArgumentError
from miniflow.nn.arguments import AT_LEAST_0, check_pair
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class RpropUpdate(Update):
    """One step of `Rprop`."""

    states = {"prev": None, "step_size": None}


class FusedRpropUpdate(Fused, RpropUpdate):
    """`RpropUpdate` of gradients that it scales first."""


class Rprop(Optimizer):
    """Steps of the gradient's sign, longer while it stays the same, shorter when it changes.

    Where the sign has changed, the parameter stays and the gradient is taken for 0. For whole batches.

    Args:
        params: tensors, or groups of them.
        lr: the first length of a step.
        etas: the factors of the length when the sign has changed, and when it has not.
        step_sizes: the smallest and the largest length.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: for a negative number, or etas that are not below and above 1.

    Source: `torch.optim.Rprop`; Riedmiller and Braun 1993, "A direct adaptive method for faster backpropagation".
    """

    rule = RpropUpdate

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0), *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        check_pair(self, AT_LEAST_0, etas=options["etas"], step_sizes=options["step_sizes"])
        if not options["etas"][0] < 1 < options["etas"][1]:
            raise ArgumentError(f"Rprop: got etas={options['etas']}; expected one below 1 and one above")
