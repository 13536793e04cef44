"""Optimizers that are an update rule and options: what they share."""

from __future__ import annotations

from typing import Any, ClassVar

from miniflow.arguments import AT_LEAST_0, ExplainsArguments, check_pair, check_range
from miniflow.dispatch import Op
from miniflow.optim.optimizer import Optimizer, ParameterGroups


class Update(Op):
    """One step of an optimizer by a rule of `miniflow.update_rules`.

    The groups are parameters, gradients, then the states. Passes over graphs give an update one more: for
    `sparse` ones see `optim.sparse`; `fused` ones first scale the gradients, by unscaling and clipping:

        g <- gradient * (product of `multiply` / product of `divide`) * min(1, max_norm / (norm + 1e-6))

    Both factors are computed in float64 and rounded once to the dtype of the update. The last group of inputs holds the
    0-dim norm that belongs to each gradient; without a `max_norm` nothing is clipped, and the norms may be None too.

    Attributes:
        states: the names of the states, each with the option without which there is none, or None.
        per_parameter: "steps": how many updates each parameter will then have seen; "fresh": whether it is the first.

    Source: the `scale_by_tensor` and `model_update_cast` inputs of OneFlow's update ops.
    """

    states: ClassVar[dict[str, str | None]] = {}
    per_parameter = ("steps",)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "states" in vars(cls):
            states = cls.states
            cls.outputs = ("params", *(f"{name}s" for name in states))
            cls.groups, cls.mutates = 2 + len(states), (0, *range(2, 2 + len(states)))
            cls.optional = {group: option for group, option in enumerate(states.values(), 2) if option is not None}
            cls.fused = cls.with_another_group("Fused")

    @classmethod
    def with_another_group(cls, prefix: str) -> type[Update]:
        """An op like this one that takes one group of inputs more; only passes over graphs make it."""
        members = {"__module__": __name__, "made_by_passes": True, "groups": cls.groups + 1, "fused": None}
        return type(prefix + cls.__name__, (cls,), members)


class RuleOptimizer(ExplainsArguments, Optimizer):
    """Base of the optimizers whose rule takes their options."""

    rule: type[Update]
    ignored = ("foreach", "fused", "capturable", "differentiable")  # how PyTorch is to compute it
    counts_steps = True

    def __init__(self, params: ParameterGroups, **defaults: Any):
        super().__init__(params, defaults)

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise ArgumentError for negative numbers, and betas outside of [0, 1); subclasses check the rest."""
        check_range(self, AT_LEAST_0, **{k: options[k] for k in ("lr", "eps", "weight_decay") if k in self.defaults})
        if "betas" in self.defaults:
            check_pair(self, (0, 1), betas=options["betas"])

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return tuple(name if option is None or group[option] else None for name, option in self.rule.states.items())
