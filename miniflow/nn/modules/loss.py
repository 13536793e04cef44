"""Losses as layers: each holds the options of a function and calls it.

`reduction` is "mean", "sum" or "none" everywhere; PyTorch's deprecated `size_average` and `reduce` do not exist.
"""

from __future__ import annotations

from miniflow.nn.modules.function_module import FunctionModule
from miniflow.ops import ctc_loss, loss, margin_loss, regression_loss


class Loss(FunctionModule, reduction="mean"):
    """Base of the losses."""

    shown = ()
    buffer_names = ("weight", "pos_weight")
    limits = {"reduction": ["mean", "sum", "none"]}


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


class SmoothL1Loss(Loss, function=regression_loss.smooth_l1_loss, reduction="mean", beta=1.0):
    """d^2 / (2 beta) where d = |x - target| is below beta, else d - beta / 2. `torch.nn.SmoothL1Loss`."""


class HuberLoss(Loss, function=regression_loss.huber_loss, reduction="mean", delta=1.0):
    """d^2 / 2 where d = |x - target| is below delta, else delta (d - delta / 2). `torch.nn.HuberLoss`."""


class KLDivLoss(Loss, function=regression_loss.kl_div, reduction="mean", log_target=False):
    """target (log target - x), for x the logarithms of probabilities.

    Args:
        reduction: "mean", "batchmean" (the sum, divided by the first size), "sum" or "none".
        log_target: whether the targets are logarithms as well.

    Source: `torch.nn.KLDivLoss`.
    """

    limits = {"reduction": ["mean", "sum", "none", "batchmean"]}


class PoissonNLLLoss(
    Loss, function=regression_loss.poisson_nll_loss, log_input=True, full=False, eps=1e-8, reduction="mean"
):
    """exp(x) - target x, or x - target log(x + eps) without `log_input`. `torch.nn.PoissonNLLLoss`."""


class GaussianNLLLoss(Loss, function=regression_loss.gaussian_nll_loss, full=False, eps=1e-6, reduction="mean"):
    """(log var + (x - target)^2 / var) / 2, called with x, target and var. `torch.nn.GaussianNLLLoss`."""


class MarginRankingLoss(Loss, function=margin_loss.margin_ranking_loss, margin=0.0, reduction="mean"):
    """max(0, -target (x1 - x2) + margin). `torch.nn.MarginRankingLoss`."""


class HingeEmbeddingLoss(Loss, function=margin_loss.hinge_embedding_loss, margin=1.0, reduction="mean"):
    """x where the target is 1, max(0, margin - x) where it is -1. `torch.nn.HingeEmbeddingLoss`."""


class CosineEmbeddingLoss(Loss, function=margin_loss.cosine_embedding_loss, margin=0.0, reduction="mean"):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where -1. `torch.nn.CosineEmbeddingLoss`."""


class TripletMarginLoss(
    Loss, function=margin_loss.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean"
):
    """max(0, margin + |anchor - positive|_p - |anchor - negative|_p). `torch.nn.TripletMarginLoss`."""


class TripletMarginWithDistanceLoss(
    Loss, function=margin_loss.triplet_margin_with_distance_loss,
    distance_function=None, margin=1.0, swap=False, reduction="mean",
):  # fmt: skip
    """`TripletMarginLoss` with any distance. `torch.nn.TripletMarginWithDistanceLoss`."""


class SoftMarginLoss(Loss, function=margin_loss.soft_margin_loss):
    """log(1 + exp(-target x)) for targets 1 and -1. `torch.nn.SoftMarginLoss`."""


class MultiLabelSoftMarginLoss(Loss, function=margin_loss.multilabel_soft_margin_loss, weight=None, reduction="mean"):
    """`BCEWithLogitsLoss` averaged over the classes, with weights (C,). `torch.nn.MultiLabelSoftMarginLoss`."""


class MultiLabelMarginLoss(Loss, function=margin_loss.multilabel_margin_loss):
    """sum of max(0, 1 - x_t + x_c) / C over the labels t and the other classes c. `torch.nn.MultiLabelMarginLoss`."""


class MultiMarginLoss(Loss, function=margin_loss.multi_margin_loss, p=1, margin=1.0, weight=None, reduction="mean"):
    """sum_c max(0, margin - x_t + x_c)^p / C over the classes c other than t. `torch.nn.MultiMarginLoss`."""


class CTCLoss(Loss, function=ctc_loss.ctc_loss, blank=0, reduction="mean", zero_infinity=False):
    """-log of the probability that frames spell a target, over all alignments; called as `ctc_loss`.

    Args:
        blank: the class that stands for no label.
        reduction: the "mean" of losses divided by the lengths of their targets, the "sum", or "none".
        zero_infinity: whether targets too long for their frames count as 0.

    Source: `torch.nn.CTCLoss`; Graves et al. 2006.
    """


class CombinedMarginLoss(FunctionModule, function=margin_loss.combined_margin, m1=1.0, m2=0.0, m3=0.0):
    """Cosines (N, C), the one of each label replaced by cos(m1 arccos(x) + m2) - m3: before a cross-entropy.

    Source: `oneflow.nn.CombinedMarginLoss`; Deng et al. 2019, "ArcFace".
    """
