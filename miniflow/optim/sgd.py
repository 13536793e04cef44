"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch import Op
from miniflow.errors import ArgumentError
from miniflow.optim.optimizer import Optimizer, ParameterGroups, check_at_least_zero


class SgdUpdate(Op):
    """One step of `SGD`; `fresh`: the first gradient of a parameter is not dampened."""

    outputs = ("params", "momentum_buffers")
    groups = 3  # params, grads, momentum_buffers
    mutates = (0, 2)
    per_parameter = ("fresh",)


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

    rule = SgdUpdate

    def __init__(
        self,
        params: ParameterGroups,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ):
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check_options(self, options: dict[str, Any]) -> None:
        check_at_least_zero(self, options, "lr", "momentum", "weight_decay")
        if options["nesterov"] and (options["momentum"] == 0 or options["dampening"] != 0):
            raise ArgumentError(
                f"SGD: got nesterov=True with momentum={options['momentum']} and dampening={options['dampening']}; "
                "expected momentum above 0 and dampening=0"
            )

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return ("momentum_buffer" if group["momentum"] != 0 else None,)

    def changing(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("fresh",) if group["momentum"] != 0 and group["dampening"] != 0 else ()
