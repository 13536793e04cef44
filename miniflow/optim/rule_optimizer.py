"""Optimizers that are an update rule and options: what they share."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from miniflow.dispatch import Op
from miniflow.optim.optimizer import Optimizer
from miniflow.options import WithOptions


class Update(Op):
    """One step of an optimizer by a rule of `miniflow.update_rules`.

        class SgdUpdate(Update, momentum_buffer="momentum"):

    The keywords of the class are its states, each with the option without which there is none, or None. The groups are
    parameters, gradients, then the states. Passes over graphs give an update one more: for `sparse` ones see
    `optim.sparse`; `fused` ones first scale the gradients, by unscaling and clipping:

        g <- gradient * (product of `multiply` / product of `divide`) * min(1, max_norm / (norm + 1e-6))

    Both factors are computed in float64 and rounded once to the dtype of the update. The last group of inputs holds the
    0-dim norm that belongs to each gradient; without a `max_norm` nothing is clipped, and the norms may be None too.

    Attributes:
        per_parameter: "steps": how many updates each parameter will then have seen; "fresh": whether it is the first.

    Source: the `scale_by_tensor` and `model_update_cast` inputs of OneFlow's update ops.
    """

    states: ClassVar[dict[str, str | None]] = {}
    per_parameter = ("steps",)

    def __init_subclass__(cls, **states: str | None) -> None:
        super().__init_subclass__()
        if states:
            cls.states, cls.outputs = states, ("params", *(f"{name}s" for name in states))
            cls.groups, cls.mutates = 2 + len(states), (0, *range(2, 2 + len(states)))
            cls.optional = {group: option for group, option in enumerate(states.values(), 2) if option is not None}
            cls.fused = cls.with_another_group("Fused")

    @classmethod
    def with_another_group(cls, prefix: str) -> type[Update]:
        """An op like this one that takes one group of inputs more; only passes over graphs make it."""
        members = {"__module__": __name__, "made_by_passes": True, "groups": cls.groups + 1, "fused": None}
        return type(prefix + cls.__name__, (cls,), members)


class RuleOptimizer(WithOptions, Optimizer):
    """Base of the optimizers whose rule takes their options.

        class Adamax(RuleOptimizer, rule=AdamaxUpdate, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
            "Adam with a decaying maximum ..."

    The keywords of the class are the arguments of its constructor, see `WithOptions`. `maximize` is one of all; it and
    those after it are given by keyword. Numbers are at least 0, if `limits` does not say otherwise.
    """

    before = ("params",)
    by_keyword = "maximize"
    limits: ClassVar[dict[str, Any]] = {"betas": (0, 1)}
    usual_limits = (0, math.inf)
    ignored = ("foreach", "fused", "capturable", "differentiable")  # how PyTorch is to compute it
    counts_steps = True

    def __init_subclass__(cls, rule: type[Update] | None = None, **options: Any) -> None:
        super().__init_subclass__(**options, **({} if "maximize" in (options or cls.options) else {"maximize": False}))
        cls.rule = rule or cls.rule

    def __init__(self, *args: Any, **options: Any):
        defaults = self.given(args, options)
        Optimizer.__init__(self, defaults.pop("params"), defaults)

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return tuple(name if option is None or group[option] else None for name, option in self.rule.states.items())
