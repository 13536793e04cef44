"""NAdam."""

from typing import Any

from miniflow.nn.arguments import AT_LEAST_0, check_range
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class NadamUpdate(Update):
    """One step of `NAdam`."""

    states = {"exp_avg": None, "exp_avg_sq": None}


class FusedNadamUpdate(Fused, NadamUpdate):
    """`NadamUpdate` of gradients that it scales first."""


class NAdam(Optimizer):
    """Adam with Nesterov's momentum, which rises from beta1 / 2 to beta1.

        mu_t <- beta1 * (1 - 0.96^(t * momentum_decay) / 2)
        m <- mu_(t+1) * m / (1 - mu_1 ... mu_(t+1)) + (1 - mu_t) * g / (1 - mu_1 ... mu_t)
        p <- p - lr * m / (sqrt(v / (1 - beta2^t)) + eps)        (m and v on the right as those of Adam)

    Args:
        params: tensors, or groups of them.
        lr, betas, eps, weight_decay, maximize: as for `Adam`.
        momentum_decay: how fast the momentum rises.
        decoupled_weight_decay: let the decay act on the parameter, as in `AdamW`.

    Raises:
        ArgumentError: for a negative number, or betas outside of [0, 1).

    Source: `torch.optim.NAdam`; Dozat 2016, "Incorporating Nesterov Momentum into Adam".
    """

    rule = NadamUpdate

    def __init__(
        self, params: ParameterGroups, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    def check_options(self, options: dict[str, Any]) -> None:
        super().check_options(options)
        check_range(self, AT_LEAST_0, momentum_decay=options["momentum_decay"])
