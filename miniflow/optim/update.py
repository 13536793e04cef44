"""What the ops of update rules share."""

from __future__ import annotations

from typing import ClassVar

from miniflow.dispatch.dispatcher import Op


class Update(Op):
    """One step of an optimizer by a rule of `miniflow.formulas.update_rules`.

    Its groups of inputs are the parameters, their gradients, the states, and `more`: further ones of those ops that
    passes over graphs put in its place, see `optim.sparse` and `Fused`.

    Attributes:
        states: the names of the states, each with the option without which there is none, or None.
        per_parameter: "steps": how many updates each parameter will then have seen; "fresh": whether it is the first.
        more: the names of further groups.
    """

    states: ClassVar[dict[str, str | None]] = {}
    per_parameter = ("steps",)
    more: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.outputs = ("params", *(f"{name}s" for name in cls.states))
        cls.groups, cls.mutates = 2 + len(cls.states) + len(cls.more), (0, *range(2, 2 + len(cls.states)))
        cls.optional = {group: option for group, option in enumerate(cls.states.values(), 2) if option is not None}
        cls.made_by_passes = len(cls.more) > 0


class Fused(Update):
    """An update that first scales its gradients, by unscaling and clipping that a graph fused into it:

        g <- gradient * (product of `multiply` / product of `divide`) * min(1, max_norm / (norm + 1e-6))

    Both factors are computed in float64 and rounded once to the dtype of the update. The last group of inputs holds the
    0-dim norm that belongs to each gradient; without a `max_norm` nothing is clipped, and the norms may be None too.

    Source: the `scale_by_tensor` and `model_update_cast` inputs of OneFlow's update ops.
    """

    more = ("norms",)
