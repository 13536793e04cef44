"""Resilient backpropagation."""

import math
from typing import Any

from miniflow.errors import ArgumentError
from miniflow.optim.rule_optimizer import RuleOptimizer, Update


class RpropUpdate(Update, prev=None, step_size=None):
    """One step of `Rprop`."""


class Rprop(
    RuleOptimizer, rule=RpropUpdate, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50.0)
):  # fmt: skip
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

    limits = {"etas": (0, math.inf), "step_sizes": (0, math.inf)}

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        if not options["etas"][0] < 1 < options["etas"][1]:
            raise ArgumentError(f"Rprop: got etas={options['etas']}; expected one below 1 and one above")
