"""RMSprop."""

from __future__ import annotations

from typing import Any

from miniflow.dispatch import Op
from miniflow.errors import ArgumentError
from miniflow.optim.optimizer import Optimizer, ParameterGroups, check_at_least_zero


class RmspropUpdate(Op):
    """One step of `RMSprop`."""

    outputs = ("params", "square_avgs", "grad_avgs", "momentum_buffers")
    groups = 5  # params, grads, square_avgs, grad_avgs, momentum_buffers
    mutates = (0, 2, 3, 4)


class RMSprop(Optimizer):
    """Steps divided by the running root mean square of the gradient.

        g <- grad + weight_decay * p        (-grad when maximizing)
        v <- alpha * v + (1 - alpha) * g^2
        b <- momentum * b + g / (sqrt(v) + eps)        (centered: sqrt(v - mean(g)^2))
        p <- p - lr * b

    Args:
        params: tensors, or groups of them.
        lr: the learning rate; 1e-3 by default as in OneFlow, where PyTorch has 1e-2.
        alpha: the decay rate of v.
        eps: added to the denominator.
        weight_decay: the factor of the L2 penalty.
        momentum: the momentum factor; 0 for none.
        centered: divide by the standard deviation of the gradient.
        maximize: maximize the objective instead of minimizing it.

    Raises:
        ArgumentError: for a negative number, or alpha outside of [0, 1].

    >>> import miniflow as flow
    >>> w = flow.tensor([1.0], requires_grad=True)
    >>> optimizer = flow.optim.RMSprop([w], lr=0.25, alpha=0.75)
    >>> (2 * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5]

    Source: `torch.optim.RMSprop`; Hinton, "Neural Networks for Machine Learning", lecture 6; Graves 2013 (centered).
    """

    rule = RmspropUpdate
    counts_steps = True

    def __init__(
        self,
        params: ParameterGroups,
        lr: float = 1e-3,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ):
        defaults = {
            "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum,
            "centered": centered, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check_options(self, options: dict[str, Any]) -> None:
        check_at_least_zero(self, options, "lr", "alpha", "eps", "weight_decay", "momentum")
        if options["alpha"] > 1:
            raise ArgumentError(f"RMSprop: got alpha={options['alpha']}; expected a number from 0 to 1")

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return (
            "square_avg",
            "grad_avg" if group["centered"] else None,
            "momentum_buffer" if group["momentum"] != 0 else None,
        )
