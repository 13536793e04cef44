"""A loss of OneFlow for recognizing faces."""

from __future__ import annotations

from miniflow.nn.modules.layer import FunctionModule
from miniflow.ops.margin_losses import combined_margin
from miniflow.tensor import Tensor


class CombinedMarginLoss(FunctionModule):
    """Cosines (N, C), the one of each label replaced by cos(m1 arccos(x) + m2) - m3: before a cross-entropy.

    Source: `oneflow.nn.CombinedMarginLoss`; Deng et al. 2019, "ArcFace".
    """

    def __init__(self, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0):
        super().__init__()
        self.m1, self.m2, self.m3 = m1, m2, m3

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return combined_margin(x, label, self.m1, self.m2, self.m3)
