"""Losses as layers: each holds the options of a function of `ops/loss.py` and calls it.

`reduction` is "mean", "sum" or "none" everywhere; PyTorch's deprecated `size_average` and `reduce` do not exist.
"""

from __future__ import annotations

from miniflow.nn.modules.module import Module
from miniflow.ops import loss
from miniflow.tensor import Tensor


class Loss(Module):
    """Base of the losses that have no option but the reduction."""

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        loss.check_reduction(type(self).__name__, reduction)
        self.reduction = reduction


class CrossEntropyLoss(Loss):
    """-log softmax(x)[target]

    Args:
        weight: (C,), a factor for each class.
        ignore_index: a target that counts nothing.
        reduction: the "mean" (weighted), the "sum", or "none".
        label_smoothing: how much of the target is spread evenly over all classes, from 0 to 1.

    Shapes: logits (N, C, ...) and targets (N, ...), class numbers; or probabilities of the shape of the logits.

    >>> import miniflow as flow
    >>> criterion = flow.nn.CrossEntropyLoss()
    >>> round(criterion(flow.tensor([[0.0, 0.0]]), flow.tensor([1])).item(), 4)
    0.6931

    Source: `torch.nn.CrossEntropyLoss`; Szegedy et al. 2015 (label smoothing).
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return loss.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(Loss):
    """-x[target], for x the logarithms of probabilities.

    Args:
        weight: (C,), a factor for each class.
        ignore_index: a target that counts nothing.
        reduction: the "mean" (weighted), the "sum", or "none".

    Shapes: log-probabilities (N, C, ...) and targets (N, ...).

    Source: `torch.nn.NLLLoss`.
    """

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"):
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return loss.nll_loss(
            input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class MSELoss(Loss):
    """(x - target)^2

    >>> import miniflow as flow
    >>> flow.nn.MSELoss()(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0])).item()
    2.0

    Source: `torch.nn.MSELoss`.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return loss.mse_loss(input, target, reduction=self.reduction)


class L1Loss(Loss):
    """|x - target|. Source: `torch.nn.L1Loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return loss.l1_loss(input, target, reduction=self.reduction)


class BCELoss(Loss):
    """-(target * log(x) + (1 - target) * log(1 - x)), for x probabilities; logarithms are not below -100.

    Args:
        weight: a factor for each element, broadcast.
        reduction: the "mean", the "sum", or "none".

    Source: `torch.nn.BCELoss`.
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean"):
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return loss.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(Loss):
    """BCELoss of sigmoid(x), without overflow.

    Args:
        weight: a factor for each element, broadcast.
        reduction: the "mean", the "sum", or "none".
        pos_weight: a factor for the targets that are 1, broadcast.

    Source: `torch.nn.BCEWithLogitsLoss`.
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None):
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return loss.binary_cross_entropy_with_logits(
            input, target, weight=self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )
