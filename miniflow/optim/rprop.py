"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch import Op
from miniflow.errors import ArgumentError
from miniflow.optim.optimizer import Optimizer, ParameterGroups, check_at_least_zero, check_pair


class RpropUpdate(Op):
    """One step of `Rprop`; `steps`: how many updates each parameter will then have seen."""

    outputs = ("params", "prevs", "step_sizes")
    groups = 4  # params, grads, prevs, step_sizes
    mutates = (0, 2, 3)
    per_parameter = ("steps",)


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
    counts_steps = True

    def __init__(
        self,
        params: ParameterGroups,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        maximize: bool = False,
    ):
        super().__init__(params, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize})

    def check_options(self, options: dict[str, Any]) -> None:
        check_at_least_zero(self, options, "lr")
        check_pair(self, options, "step_sizes", 0, float("inf"))
        check_pair(self, options, "etas", 0, float("inf"))
        if not options["etas"][0] < 1 < options["etas"][1]:
            raise ArgumentError(f"Rprop: got etas={options['etas']}; expected one below 1 and one above")

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("prev", "step_size")
