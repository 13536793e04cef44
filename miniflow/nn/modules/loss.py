"""Losses as layers: each holds the options of a function and calls it.

`reduction` is "mean", "sum" or "none" everywhere; PyTorch's deprecated `size_average` and `reduce` do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from miniflow.nn import functional as F
from miniflow.nn.arguments import check_choice
from miniflow.nn.modules.layer import FunctionModule
from miniflow.tensor import Tensor


class Loss(FunctionModule):
    """Base of the losses."""

    reductions: ClassVar[list[str]] = ["mean", "sum", "none"]

    def __init__(self, reduction: str = "mean"):
        super().__init__()
        check_choice(self, self.reductions, reduction=reduction)
        self.reduction = reduction

    def extra_repr(self) -> str:
        return ""


class WeightedLoss(Loss):
    """Base of the losses with a weight."""

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean"):
        super().__init__(reduction)
        self.register_buffer("weight", weight)


class CrossEntropyLoss(WeightedLoss):
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

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):  # fmt: skip
        super().__init__(weight, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        options = {"ignore_index": self.ignore_index, "label_smoothing": self.label_smoothing}
        return F.cross_entropy(input, target, self.weight, reduction=self.reduction, **options)


class NLLLoss(WeightedLoss):
    """-x[target], for x the logarithms of probabilities.

    Args:
        weight: (C,), a factor for each class.
        ignore_index: a target value that adds nothing to the loss.
        reduction: the "mean" (weighted), the "sum", or "none".

    Shapes: log-probabilities (N, C, ...) and targets (N, ...).

    Source: `torch.nn.NLLLoss`.
    """

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"):
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class MSELoss(Loss):
    """(x - target)^2

    >>> import miniflow as flow
    >>> flow.nn.MSELoss()(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0])).item()
    2.0

    Source: `torch.nn.MSELoss`.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(Loss):
    """|x - target|. Source: `torch.nn.L1Loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class BCELoss(WeightedLoss):
    """-(target * log(x) + (1 - target) * log(1 - x)), for x probabilities; logarithms are not below -100.

    Args:
        weight: a factor for each element, broadcast.
        reduction: the "mean", the "sum", or "none".

    Source: `torch.nn.BCELoss`.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(WeightedLoss):
    """BCELoss of sigmoid(x), without overflow.

    Args:
        weight: a factor for each element, broadcast.
        reduction: the "mean", the "sum", or "none".
        pos_weight: a factor for the targets that are 1, broadcast.

    Source: `torch.nn.BCEWithLogitsLoss`.
    """

    def __init__(
        self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None
    ):  # fmt: skip
        super().__init__(weight, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        options = {"reduction": self.reduction, "pos_weight": self.pos_weight}
        return F.binary_cross_entropy_with_logits(input, target, self.weight, **options)


class SmoothL1Loss(Loss):
    """d^2 / (2 beta) where d = |x - target| is below beta, else d - beta / 2. `torch.nn.SmoothL1Loss`."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0):
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Loss):
    """d^2 / 2 where d = |x - target| is below delta, else delta (d - delta / 2). `torch.nn.HuberLoss`."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0):
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class KLDivLoss(Loss):
    """target (log target - x), for x the logarithms of probabilities.

    Args:
        reduction: "mean", "batchmean" (the sum, divided by the first size), "sum" or "none".
        log_target: whether the targets are logarithms as well.

    Source: `torch.nn.KLDivLoss`.
    """

    reductions = ["mean", "sum", "none", "batchmean"]

    def __init__(self, reduction: str = "mean", log_target: bool = False):
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(Loss):
    """exp(x) - target x, or x - target log(x + eps) without `log_input`. `torch.nn.PoissonNLLLoss`."""

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"):
        super().__init__(reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(Loss):
    """(log var + (x - target)^2 / var) / 2, called with x, target and var. `torch.nn.GaussianNLLLoss`."""

    def __init__(self, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class MarginRankingLoss(Loss):
    """max(0, -target (x1 - x2) + margin). `torch.nn.MarginRankingLoss`."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(Loss):
    """x where the target is 1, max(0, margin - x) where it is -1. `torch.nn.HingeEmbeddingLoss`."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(Loss):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where -1. `torch.nn.CosineEmbeddingLoss`."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean"):
        super().__init__(reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)


class TripletMarginLoss(Loss):
    """max(0, margin + |anchor - positive|_p - |anchor - negative|_p). `torch.nn.TripletMarginLoss`."""

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ):  # fmt: skip
        super().__init__(reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        options = self.margin, self.p, self.eps, self.swap
        return F.triplet_margin_loss(anchor, positive, negative, *options, reduction=self.reduction)


class TripletMarginWithDistanceLoss(Loss):
    """`TripletMarginLoss` with any distance. `torch.nn.TripletMarginWithDistanceLoss`."""

    def __init__(
        self, distance_function: Callable[..., Any] | None = None, margin: float = 1.0,
        swap: bool = False, reduction: str = "mean",
    ):  # fmt: skip
        super().__init__(reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        options = {"margin": self.margin, "swap": self.swap, "reduction": self.reduction}
        inputs = anchor, positive, negative
        return F.triplet_margin_with_distance_loss(*inputs, distance_function=self.distance_function, **options)


class SoftMarginLoss(Loss):
    """log(1 + exp(-target x)) for targets 1 and -1. `torch.nn.SoftMarginLoss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """`BCEWithLogitsLoss` averaged over the classes, with weights (C,). `torch.nn.MultiLabelSoftMarginLoss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(Loss):
    """sum of max(0, 1 - x_t + x_c) / C over the labels t and the other classes c. `torch.nn.MultiLabelMarginLoss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiMarginLoss(WeightedLoss):
    """sum_c max(0, margin - x_t + x_c)^p / C over the classes c other than t. `torch.nn.MultiMarginLoss`."""

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: str = "mean"
    ):  # fmt: skip
        super().__init__(weight, reduction)
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, reduction=self.reduction)


class CTCLoss(Loss):
    """-log of the probability that frames spell a target, over all alignments; called as `ctc_loss`.

    Args:
        blank: the class that stands for no label.
        reduction: the "mean" of losses divided by the lengths of their targets, the "sum", or "none".
        zero_infinity: whether targets too long for their frames count as 0.

    Source: `torch.nn.CTCLoss`; Graves et al. 2006.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False):
        super().__init__(reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Sequence[int] | Tensor,
        target_lengths: Sequence[int] | Tensor,
    ) -> Tensor:  # fmt: skip
        options = self.blank, self.reduction, self.zero_infinity
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, *options)
