"""Adam, and AdamW with decoupled weight decay."""

from __future__ import annotations

from typing import Any

from miniflow.errors import ArgumentError
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arrays, check_at_least_zero, find_update, new_state
from miniflow.tensor import Tensor


class Adam(Optimizer):
    """Adam: steps scaled by running estimates of the gradient's mean and square.

        g <- grad + weight_decay * p        (-grad when maximizing)
        m <- beta1 * m + (1 - beta1) * g
        v <- beta2 * v + (1 - beta2) * g^2
        p <- p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Args:
        params: tensors, or groups of them.
        lr: the learning rate.
        betas: how much of the estimates of the mean and of the square remains at each step.
        eps: added to the denominator.
        weight_decay: the factor of the L2 penalty.
        amsgrad: use the largest v seen so far.
        maximize: climb instead of descending.
        do_bias_correction: divide by 1 - beta^t, since the estimates start at zero (OneFlow's name).

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

    decoupled = False  # whether weight decay acts on the parameter, not on the gradient

    def __init__(
        self,
        params: ParameterGroups,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        do_bias_correction: bool = True,
    ):
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "do_bias_correction": do_bias_correction,
        }  # fmt: skip
        super().__init__(params, defaults)

    def check_options(self, options: dict[str, Any]) -> None:
        check_at_least_zero(self, options, "lr", "eps", "weight_decay")
        betas = options["betas"]
        if not (isinstance(betas, tuple | list) and len(betas) == 2 and all(0 <= beta < 1 for beta in betas)):
            raise ArgumentError(f"{self._name}: got betas={betas!r}; expected two numbers of at least 0 and below 1")

    def update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        amsgrad = group["amsgrad"]
        states = [self._next_state(p, amsgrad) for p in params]
        find_update("AdamUpdate", params)(
            arrays(params),
            arrays([p._grad for p in params]),
            arrays([state["exp_avg"] for state in states]),
            arrays([state["exp_avg_sq"] for state in states]),
            arrays([state["max_exp_avg_sq"] if amsgrad else None for state in states]),
            [state["step"] for state in states],
            lr=group["lr"],
            betas=group["betas"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            decoupled=self.decoupled,
            amsgrad=amsgrad,
            maximize=group["maximize"],
            do_bias_correction=group["do_bias_correction"],
        )

    def _next_state(self, p: Tensor, amsgrad: bool) -> dict[str, Any]:
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=new_state(p), exp_avg_sq=new_state(p))
        if amsgrad and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = new_state(p)
        state["step"] += 1
        return state


class AdamW(Adam):
    """Adam with decoupled weight decay: p <- (1 - lr * weight_decay) * p before the step, and no L2 penalty.

    Args:
        params: tensors, or groups of them.
        lr, betas, eps, amsgrad, maximize, do_bias_correction: as for Adam.
        weight_decay: the decay of the parameter itself; 0 by default as in OneFlow, where PyTorch has 0.01.

    >>> import miniflow as flow
    >>> w = flow.tensor([1.0], requires_grad=True)
    >>> optimizer = flow.optim.AdamW([w], lr=0.25, weight_decay=1.0)
    >>> (3 * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5

    Source: `torch.optim.AdamW`; Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization".
    """

    decoupled = True
