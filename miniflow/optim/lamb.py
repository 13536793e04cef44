"""LAMB."""

from typing import Any

from miniflow.dispatch.dispatcher import update
from miniflow.dispatch.tape import no_grad
from miniflow.ops.indexing import where
from miniflow.optim.adam import AdamUpdate
from miniflow.optim.optimizer import Optimizer, ParameterGroups, arguments_of, new_state
from miniflow.optim.sgd import SgdUpdate
from miniflow.tensor import Tensor


class LAMB(Optimizer):
    """Adam's direction, for each parameter as long as the parameter: for large batches.

        r <- (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * p
        p <- p - lr * |p| / |r| * r        (p - lr * r where p or r is 0)

    Args:
        params: tensors, or groups of them.
        lr, betas, eps, weight_decay, amsgrad, do_bias_correction, maximize: as for `Adam`.
        adam_w_mode: if False the decay is an L2 penalty, which the gradient gets.

    Raises:
        ArgumentError: for a negative number, or betas outside of [0, 1).

    Source: `oneflow.optim.LAMB`; You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes".
    """

    rule = AdamUpdate

    def __init__(
        self, params: ParameterGroups, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, adam_w_mode: bool = True, do_bias_correction: bool = True, amsgrad: bool = False, *,
        maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, arguments_of(locals()))

    @no_grad()
    def update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        grads, *states = self._gradients_and_states(group, params)
        options = self.attributes_of_step(group, params)
        decoupled, decay, lr = (options.pop(name) for name in ("adam_w_mode", "weight_decay", "lr"))
        steps = [new_state(p) for p in params]  # of Adam with rate 1, from 0 on: -r, without the decay
        if group["weight_decay"] and not decoupled:
            grads = [g.clone() for g in grads]
            descend(grads, params, decay, maximize=not group["maximize"])
        options |= {"lr": 1.0, "weight_decay": 0.0, "decoupled_weight_decay": False}
        update(AdamUpdate, steps, grads, *states, **options)
        if group["weight_decay"] and decoupled:
            descend(steps, params, decay)
        directions = []
        for p, step in zip(params, steps, strict=True):
            length, size = p.to(step.dtype).norm(), step.norm()
            directions.append(step * where((length > 0) & (size > 0), length / size, 1.0))
        descend(params, directions, lr, maximize=True)


def descend(params: list[Tensor], gradients: list[Tensor], lr: Any, maximize: bool = False) -> None:
    """params <- params - lr * gradients, or + if maximizing; lr may be a `Scalar` while a graph is recorded."""
    options = {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0, "maximize": maximize}
    update(SgdUpdate, params, gradients, [None] * len(params), lr=lr, fresh=[False] * len(params), **options)
