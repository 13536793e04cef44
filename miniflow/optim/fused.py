"""Updates that scale their gradients first: unscaling and clipping, fused into the update.

    g <- gradient * (product of `multiply` / product of `divide`) * min(1, max_norm / (norm + 1e-6))

Both factors are computed in float64 and rounded once to the dtype of the update. The last group of inputs holds the
0-dim norm that belongs to each gradient; without a `max_norm` nothing is clipped, and the norms may be None too.

Source: the `scale_by_tensor` and `model_update_cast` inputs of OneFlow's update ops.
"""

from __future__ import annotations

from miniflow.dispatch import Op
from miniflow.optim.adadelta import AdadeltaUpdate
from miniflow.optim.adagrad import AdagradUpdate
from miniflow.optim.adam import AdamUpdate
from miniflow.optim.adamax import AdamaxUpdate
from miniflow.optim.asgd import AsgdUpdate
from miniflow.optim.ftrl import FtrlUpdate
from miniflow.optim.radam import RadamUpdate
from miniflow.optim.rmsprop import RmspropUpdate
from miniflow.optim.rprop import RpropUpdate
from miniflow.optim.sgd import SgdUpdate


def with_another_group(rule: type[Op], prefix: str, doc: str) -> type[Op]:
    """An op like that of a rule which takes one group of inputs more; only passes over graphs make it."""
    members = {"__doc__": doc, "__module__": __name__, "made_by_passes": True, "groups": rule.groups + 1}
    return type(prefix + rule.__name__, (rule,), members)


FUSED_RULES: dict[type[Op], type[Op]] = {
    rule: with_another_group(rule, "Fused", f"`{rule.__name__}` of multiplied gradients.")
    for rule in (
        SgdUpdate, AdamUpdate, RmspropUpdate, AdagradUpdate, AdadeltaUpdate, AdamaxUpdate, RadamUpdate, AsgdUpdate,
        RpropUpdate, FtrlUpdate,
    )
}  # fmt: skip
"""The op of a rule -> the same with a factor for its gradients."""
