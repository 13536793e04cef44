"""RMSprop."""

from typing import Any

from miniflow.nn.arguments import AT_LEAST_0, check_range
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class RmspropUpdate(Update):
    """One step of `RMSprop`."""

    states = {"square_avg": None, "grad_avg": "centered", "momentum_buffer": "momentum"}

    per_parameter = ()


class FusedRmspropUpdate(Fused, RmspropUpdate):
    """`RmspropUpdate` of gradients that it scales first."""


class RMSprop(Optimizer):
    """Steps divided by the running root mean square of the gradient.

        g <- grad + weight_decay * p        (-grad when maximizing)
        v <- alpha * v + (1 - alpha) * g^2
        b <- momentum * b + g / (sqrt(v) + eps)        (centered: sqrt(v - mean(g)^2))
        p <- p - lr * b

    Args:
        params: tensors, or groups of them.
        lr: the learning rate; 1e-2 by default as in PyTorch, where OneFlow has 1e-3.
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

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        check_range(self, (0, 1), alpha=options["alpha"])
        check_range(self, AT_LEAST_0, momentum=options["momentum"])
