"""Losses as layers: each holds the options of a function of `ops/loss.py` and calls it.

`reduction` is "mean", "sum" or "none" everywhere; PyTorch's deprecated `size_average` and `reduce` do not exist.
"""

from __future__ import annotations

from typing import Any

from miniflow.nn.modules.function_module import FunctionModule
from miniflow.ops import loss


class Loss(FunctionModule, reduction="mean"):
    """Base of the losses."""

    shown = ()
    buffer_names = ("weight", "pos_weight")

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        loss.check_reduction(type(self).__name__, self.reduction)


class CrossEntropyLoss(
    Loss, function=loss.cross_entropy, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0
):
    """-log softmax(x)[target]

    Args:
        weight: (C,), a factor for each class.
        ignore_index: a target value that adds nothing to the loss.
        reduction: the "mean" (weighted), the "sum", or "none".
        label_smoothing: how much of the target is spread evenly over all classes, from 0 to 1.

    Shapes: logits (N, C, ...) and targets (N, ...), class numbers; or probabilities of the shape of the logits.

    >>> import miniflow as flow
    >>> criterion = flow.nn.CrossEntropyLoss()
    >>> round(criterion(flow.tensor([[0.0, 0.0]]), flow.tensor([1])).item(), 4)
    0.6931

    Source: `torch.nn.CrossEntropyLoss`; Szegedy et al. 2015 (label smoothing).
    """


class NLLLoss(Loss, function=loss.nll_loss, weight=None, ignore_index=-100, reduction="mean"):
    """-x[target], for x the logarithms of probabilities.

    Args:
        weight: (C,), a factor for each class.
        ignore_index: a target value that adds nothing to the loss.
        reduction: the "mean" (weighted), the "sum", or "none".

    Shapes: log-probabilities (N, C, ...) and targets (N, ...).

    Source: `torch.nn.NLLLoss`.
    """


class MSELoss(Loss, function=loss.mse_loss):
    """(x - target)^2

    >>> import miniflow as flow
    >>> flow.nn.MSELoss()(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0])).item()
    2.0

    Source: `torch.nn.MSELoss`.
    """


class L1Loss(Loss, function=loss.l1_loss):
    """|x - target|. Source: `torch.nn.L1Loss`."""


class BCELoss(Loss, function=loss.binary_cross_entropy, weight=None, reduction="mean"):
    """-(target * log(x) + (1 - target) * log(1 - x)), for x probabilities; logarithms are not below -100.

    Args:
        weight: a factor for each element, broadcast.
        reduction: the "mean", the "sum", or "none".

    Source: `torch.nn.BCELoss`.
    """


class BCEWithLogitsLoss(
    Loss, function=loss.binary_cross_entropy_with_logits, weight=None, reduction="mean", pos_weight=None
):
    """BCELoss of sigmoid(x), without overflow.

    Args:
        weight: a factor for each element, broadcast.
        reduction: the "mean", the "sum", or "none".
        pos_weight: a factor for the targets that are 1, broadcast.

    Source: `torch.nn.BCEWithLogitsLoss`.
    """
