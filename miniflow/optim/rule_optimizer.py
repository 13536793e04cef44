"""Optimizers that are an update rule and options: what they share."""

from __future__ import annotations

import inspect
import math
from typing import Any, ClassVar

from miniflow.dispatch import Op
from miniflow.errors import ArgumentError, ArgumentTypeError
from miniflow.optim.optimizer import Optimizer, ParameterGroups


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


class RuleOptimizer(Optimizer):
    """Base of the optimizers whose rule takes their options.

        class Adamax(RuleOptimizer, rule=AdamaxUpdate, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
            "Adam with a decaying maximum ..."

    The keywords of the class are the arguments of its constructor and their defaults. `maximize` is one of all; it and
    those after it are given by keyword. Numbers are at least 0, if `limits` does not say otherwise.

    Attributes:
        options: the names and defaults.
        limits: the least and the largest value; for two numbers, what they are below.
    """

    options: ClassVar[dict[str, Any]] = {}
    limits: ClassVar[dict[str, tuple[float, float]]] = {"betas": (0, 1)}
    counts_steps = True

    def __init_subclass__(cls, rule: type[Update] | None = None, **options: Any) -> None:
        super().__init_subclass__()
        if not options:
            return
        cls.rule, cls.options = rule, {**options, "maximize": options.get("maximize", False)}
        kind, parameters = inspect.Parameter.POSITIONAL_OR_KEYWORD, [inspect.Parameter("params", 1)]
        for name, default in cls.options.items():
            kind = inspect.Parameter.KEYWORD_ONLY if name == "maximize" else kind
            parameters.append(inspect.Parameter(name, kind, default=default))
        cls.__signature__ = inspect.Signature(parameters)

    def __init__(self, params: ParameterGroups, *args: Any, **options: Any):
        try:
            values = self.__signature__.bind(params, *args, **options)
        except TypeError as error:
            raise ArgumentTypeError(f"{self._name}: {error}; expected {self.__signature__}") from None
        values.apply_defaults()
        defaults = dict(values.arguments)
        super().__init__(defaults.pop("params"), defaults)

    def check_options(self, options: dict[str, Any]) -> None:
        for name, default in self.options.items():
            value, (low, high) = options[name], self.limits.get(name, (0, math.inf))
            if isinstance(default, tuple):
                right = isinstance(value, tuple | list) and len(value) == 2 and all(low <= x < high for x in value)
                expected = f"two numbers of at least {low} and below {high}"
            else:
                right = isinstance(default, bool) or isinstance(value, int | float) and low <= value <= high
                expected = f"a number of at least {low}" if high == math.inf else f"a number from {low} to {high}"
            if not right:
                raise ArgumentError(f"{self._name}: got {name}={value!r}; expected {expected}")

    def state_names(self, group: dict[str, Any]) -> tuple[str | None, ...]:
        return tuple(name if option is None or group[option] else None for name, option in self.rule.states.items())
