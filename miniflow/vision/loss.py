"""Losses of classifiers that are trained on softened or mixed labels."""

from __future__ import annotations

from miniflow.errors import ShapeError, refusal
from miniflow.nn import functional as F
from miniflow.nn.arguments import check_range
from miniflow.nn.modules.module import Module
from miniflow.tensor import Tensor


class LabelSmoothingCrossEntropy(Module):
    """The cross entropy with (1 - smoothing) times the label, and smoothing spread evenly over all classes; its mean.

    Args:
        smoothing: from 0 to 1.

    Raises:
        ArgumentError: for another number.

    >>> import miniflow as flow
    >>> round(LabelSmoothingCrossEntropy(0.1)(flow.tensor([[2.0, 0.0]]), flow.tensor([0])).item(), 4)
    0.2269

    Source: Szegedy et al. 2016, "Rethinking the Inception Architecture"; timm's `LabelSmoothingCrossEntropy`.
    """

    def __init__(self, smoothing: float = 0.1):
        super().__init__()
        check_range(self, (0, 1), smoothing=smoothing)
        self.smoothing = smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of logits (N, classes) and class indices (N,): a number."""
        return F.cross_entropy(x, target, label_smoothing=self.smoothing)


class SoftTargetCrossEntropy(Module):
    """-sum_k target_k log softmax(x)_k, its mean: for targets that `Mixup` makes.

    Source: timm's `SoftTargetCrossEntropy`.
    """

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The loss of logits and class probabilities, both (..., classes): a number.

        Raises:
            ShapeError: for other shapes, such as that of class indices.
        """
        if x.shape != target.shape:
            raise refusal(ShapeError, "SoftTargetCrossEntropy", "equal shapes (..., classes)", x=x, target=target)
        return (-target * F.log_softmax(x, dim=-1)).sum(dim=-1).mean()
