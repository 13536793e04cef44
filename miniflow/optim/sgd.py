"""Stochastic gradient descent."""

import math
from typing import Any

from miniflow.errors import ArgumentError
from miniflow.nn.arguments import AT_LEAST_0, check_range
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class SgdUpdate(Update):
    """One step of `SGD`."""

    states = {"momentum_buffer": "momentum"}

    per_parameter = ("fresh",)


class FusedSgdUpdate(Fused, SgdUpdate):
    """`SgdUpdate` of gradients that it scales first."""


class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum.

        g <- grad + weight_decay * p        (-grad when maximizing)
        v <- momentum * v + (1 - dampening) * g        (v <- g at the first step)
        p <- p - lr * v        (Nesterov: p - lr * (g + momentum * v))

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        momentum: the momentum factor; 0 for plain descent.
        dampening: the fraction of the gradient that is not added to the velocity.
        weight_decay: the factor of the L2 penalty.
        nesterov: look ahead along the velocity; needs momentum and no dampening.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: for a negative number, or `nesterov` without momentum.

    >>> import miniflow as flow
    >>> w = flow.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = flow.optim.SGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.800000011920929, 1.600000023841858]

    Source: `torch.optim.SGD`; Sutskever et al. 2013, "On the importance of initialization and momentum".
    """

    rule, counts_steps = SgdUpdate, False

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        check_range(self, AT_LEAST_0, momentum=options["momentum"])
        check_range(self, (-math.inf, math.inf), dampening=options["dampening"])
        if options["nesterov"] and (options["momentum"] == 0 or options["dampening"] != 0):
            raise ArgumentError(
                f"SGD: got nesterov=True with momentum={options['momentum']} and dampening={options['dampening']}; "
                "expected momentum above 0 and dampening=0"
            )

    def changing(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("fresh",) if group["momentum"] != 0 and group["dampening"] != 0 else ()
