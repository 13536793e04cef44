"""RAdam."""

from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class RadamUpdate(Update):
    """One step of `RAdam`."""

    states = {"exp_avg": None, "exp_avg_sq": None}


class FusedRadamUpdate(Fused, RadamUpdate):
    """`RadamUpdate` of gradients that it scales first."""


class RAdam(Optimizer):
    """Adam whose step is rectified for the variance of v, and plain momentum while that is infinite.

        rho <- rho_max - 2 t beta2^t / (1 - beta2^t), rho_max being 2 / (1 - beta2) - 1
        p <- p - lr * m / (1 - beta1^t) * (r * sqrt(1 - beta2^t) / (sqrt(v) + eps) if rho > 5 else 1)

    Args:
        params: tensors, or groups of them.
        lr, betas, eps, weight_decay, maximize: as for `Adam`.
        decoupled_weight_decay: let the decay act on the parameter, as in `AdamW`.

    Raises:
        ArgumentError: for a negative number, or betas outside of [0, 1).

    Source: `torch.optim.RAdam`; Liu et al. 2020, "On the Variance of the Adaptive Learning Rate and Beyond".
    """

    rule = RadamUpdate

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, decoupled_weight_decay: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))
