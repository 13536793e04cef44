"""Adam, and AdamW with decoupled weight decay."""

from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of
from miniflow.optim.update import Fused, Update


class AdamUpdate(Update):
    """One step of `Adam`."""

    states = {"exp_avg": None, "exp_avg_sq": None, "max_exp_avg_sq": "amsgrad"}


class FusedAdamUpdate(Fused, AdamUpdate):
    """`AdamUpdate` of gradients that it scales first."""


class Adam(Optimizer):
    """Adam: steps scaled by running estimates of the gradient's mean and square.

        g <- grad + weight_decay * p        (-grad when maximizing)
        m <- beta1 * m + (1 - beta1) * g
        v <- beta2 * v + (1 - beta2) * g^2
        p <- p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        betas: the decay rates of the running mean and of the running mean square.
        eps: added to the denominator.
        weight_decay: the factor of the L2 penalty.
        amsgrad: use the largest v seen so far.
        maximize: maximize the objective instead of minimizing it.
        do_bias_correction: divide by 1 - beta^t, since the estimates start at zero (OneFlow's name).
        decoupled_weight_decay: let the decay act on the parameter, as in `AdamW`.

    Raises:
        ArgumentError: for a negative number, or betas outside of [0, 1).

    >>> import miniflow as flow
    >>> w = flow.tensor([1.0], requires_grad=True)
    >>> optimizer = flow.optim.Adam([w], lr=0.25)
    >>> (3 * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.75]

    Source: `torch.optim.Adam`; Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization";
    Reddi et al. 2018, "On the Convergence of Adam and Beyond" (amsgrad).
    """

    rule = AdamUpdate

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False, do_bias_correction: bool = True,
        decoupled_weight_decay: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))


class AdamW(Adam):
    """Adam with decoupled weight decay: p <- (1 - lr * weight_decay) * p before the step, and no L2 penalty.

    Args:
        params: tensors, or groups of them.
        lr, betas, eps, amsgrad, maximize, do_bias_correction, decoupled_weight_decay: as for Adam.
        weight_decay: the decay of the parameter itself; 0.01 by default as in PyTorch, where OneFlow has 0.

    >>> import miniflow as flow
    >>> w = flow.tensor([1.0], requires_grad=True)
    >>> optimizer = flow.optim.AdamW([w], lr=0.25, weight_decay=1.0)
    >>> (3 * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5

    Source: `torch.optim.AdamW`; Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization".
    """

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.01, amsgrad: bool = False, *, maximize: bool = False, do_bias_correction: bool = True,
        decoupled_weight_decay: bool = True,
    ):  # fmt: skip
        Optimizer.__init__(self, params, arguments_of(locals()))
