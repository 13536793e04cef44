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
        decay, l2 = (group["weight_decay"], 0.0) if group["adam_w_mode"] else (0.0, group["weight_decay"])
        steps = [new_state(p) for p in params]  # of Adam with rate 1, from 0 on: -r, without the decay
        grads, *states = self._gradients_and_states(group, params)
        if l2:
            grads = [g + (-l2 if group["maximize"] else l2) * p for g, p in zip(grads, params, strict=True)]

        def changing(name: str) -> dict[str, Any]:
            return {name: self.changing_attributes(group, params)[name]}

        options = {name: group[name] for name in ("betas", "eps", "amsgrad", "do_bias_correction", "maximize")}
        options |= {"lr": 1.0, "weight_decay": 0.0, "decoupled_weight_decay": False}
        options["steps"] = self.next_values("steps", params)
        update(AdamUpdate, steps, grads, *states, changing_attributes=lambda: changing("steps"), **options)
        directions = []
        for p, step in zip(params, steps, strict=True):
            r = decay * p - step
            length, size = p.to(r.dtype).norm(), r.norm()
            directions.append(r * where((length > 0) & (size > 0), length / size, 1.0))
        options = {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "weight_decay": 0.0, "maximize": False}
        options |= {"lr": group["lr"], "fresh": [False] * len(params)}
        none = [None] * len(params)
        update(SgdUpdate, params, directions, none, changing_attributes=lambda: changing("lr"), **options)
