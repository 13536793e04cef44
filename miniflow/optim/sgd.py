"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from miniflow.errors import ArgumentError
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arrays, check_at_least_zero, find_update, new_state
from miniflow.tensor import Tensor


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if asked for.

        g <- grad + weight_decay * p        (-grad when maximizing)
        v <- momentum * v + (1 - dampening) * g        (v <- g at the first step)
        p <- p - lr * v        (Nesterov: p - lr * (g + momentum * v))

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        momentum: how much of the last velocity remains; 0 for plain descent.
        dampening: how much of the gradient is held back from the velocity.
        weight_decay: the factor of the L2 penalty.
        nesterov: look ahead along the velocity; needs momentum and no dampening.
        maximize: climb instead of descending.

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

    def update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        buffers: list[Tensor | None] = [None] * len(params)
        fresh = [False] * len(params)
        if group["momentum"] != 0:
            for i, p in enumerate(params):
                state = self.state[p]
                fresh[i] = "momentum_buffer" not in state
                if fresh[i]:
                    state["momentum_buffer"] = new_state(p)
                buffers[i] = state["momentum_buffer"]
        find_update("SgdUpdate", params)(
            arrays(params),
            arrays([p._grad for p in params]),
            arrays(buffers),
            fresh,
            lr=group["lr"],
            momentum=group["momentum"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
        )
