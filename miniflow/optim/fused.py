"""Updates that scale their gradients first: unscaling and clipping, fused into the update.

    g <- gradient * (product of `multiply` / product of `divide`) * min(1, max_norm / (norm + 1e-6))

Both factors are computed in float64 and rounded once to the dtype of the update. The last group of inputs holds the
0-dim norm that belongs to each gradient; without a `max_norm` nothing is clipped, and the norms may be None too.

Source: the `scale_by_tensor` and `model_update_cast` inputs of OneFlow's update ops.
"""

from __future__ import annotations

from miniflow.dispatch import Op
from miniflow.optim.adagrad import AdagradUpdate
from miniflow.optim.adam import AdamUpdate
from miniflow.optim.rmsprop import RmspropUpdate
from miniflow.optim.sgd import SgdUpdate


class FusedSgdUpdate(SgdUpdate):
    """`SgdUpdate` of multiplied gradients."""

    made_by_passes = True
    groups = SgdUpdate.groups + 1


class FusedAdamUpdate(AdamUpdate):
    """`AdamUpdate` of multiplied gradients."""

    made_by_passes = True
    groups = AdamUpdate.groups + 1


class FusedRmspropUpdate(RmspropUpdate):
    """`RmspropUpdate` of multiplied gradients."""

    made_by_passes = True
    groups = RmspropUpdate.groups + 1


class FusedAdagradUpdate(AdagradUpdate):
    """`AdagradUpdate` of multiplied gradients."""

    made_by_passes = True
    groups = AdagradUpdate.groups + 1


FUSED_RULES: dict[type[Op], type[Op]] = {
    SgdUpdate: FusedSgdUpdate,
    AdamUpdate: FusedAdamUpdate,
    RmspropUpdate: FusedRmspropUpdate,
    AdagradUpdate: FusedAdagradUpdate,
}
"""The op of a rule -> the same with a factor for its gradients."""
