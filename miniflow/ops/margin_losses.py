"""Losses with margins: of rankings, of embeddings and of classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dtype import bool_
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.ops.creation import zeros_like
from miniflow.ops.distance import pairwise_distance
from miniflow.ops.embedding import one_hot
from miniflow.ops.indexing import where
from miniflow.ops.losses import check_rows, loss
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.shape import check_broadcast
from miniflow.tensor import Tensor


@loss
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0) -> Tensor:
    """max(0, -target (input1 - input2) + margin), reduced: input1 is to rank higher where the target is 1.

    Args:
        input1, input2: floating, of the same shape.
        target: 1 or -1, of that shape.
        margin: by how much they should differ.
        reduction: "mean", "sum" or "none".

    Source: `torch.nn.functional.margin_ranking_loss`.
    """
    if not input1.ndim == input2.ndim == target.ndim:
        raise refusal(ShapeError, "margin_ranking_loss", "the same shape", input1=input1, input2=input2, target=target)
    return (margin - target * (input1 - input2)).clamp(0)


@loss
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0) -> Tensor:
    """The distance `input` where the target is 1, max(0, margin - input) where it is -1, reduced.

    Args:
        input: distances, floating.
        target: 1 or -1, broadcast with `input`.
        margin: the distance that is far enough.
        reduction: "mean", "sum" or "none".

    Source: `torch.nn.functional.hinge_embedding_loss`.
    """
    return _of_pairs(target, input, (margin - input).clamp(0))


def _of_pairs(target: Tensor, similar: Tensor, different: Tensor) -> Tensor:
    """One loss where the target is 1, the other where it is -1, and (as in PyTorch) the sum of both elsewhere."""
    return where(target != -1, similar, 0.0) + where(target != 1, different, 0.0)


@loss
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0) -> Tensor:
    """1 - cos(input1, input2) where the target is 1, max(0, cos(input1, input2) - margin) where it is -1, reduced.

    Args:
        input1, input2: (N, D) or (D,), floating.
        target: 1 or -1, (N,) or ().
        margin: the cosine that is different enough, -1 to 1.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: if the shapes do not fit together.

    Source: `torch.nn.functional.cosine_embedding_loss`.
    """
    if input1.ndim != target.ndim + 1 or input1.ndim > 2 or input2.ndim != input1.ndim:
        expected = "(N, D), (N, D) and (N,), or (D,), (D,) and ()"
        raise refusal(ShapeError, "cosine_embedding_loss", expected, input1=input1, input2=input2, target=target)
    squares = [(x * x).sum(-1) + 1e-12 for x in (input1, input2)]
    cosine = (input1 * input2).sum(-1) / (squares[0] * squares[1]).sqrt()
    similar, different = where(target == 1, 1.0 - cosine, 0.0), (cosine - margin).clamp(0)
    loss = similar + where(target == -1, different, 0.0)
    return loss


@loss
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
) -> Tensor:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d being `pairwise_distance`, reduced.

    Args:
        anchor, positive, negative: (N, D) or (D,), floating.
        margin: by how much the negative should be farther away.
        p, eps: of the distance.
        swap: use d(positive, negative) where that is smaller than d(anchor, negative).
        reduction: "mean", "sum" or "none".

    Raises:
        ArgumentError: for a margin that is not positive, or an unknown reduction.

    Source: `torch.nn.functional.triplet_margin_loss`; Balntas et al., "Learning shallow convolutional feature
    descriptors with triplet losses", 2016.
    """

    distance = partial(pairwise_distance, p=p, eps=eps)
    return _triplet("triplet_margin_loss", anchor, positive, negative, distance, margin, swap)


@loss
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
) -> Tensor:
    """`triplet_margin_loss` with any distance, a function of two tensors; None for `pairwise_distance`.

    Source: `torch.nn.functional.triplet_margin_with_distance_loss`.
    """
    distance = distance_function or pairwise_distance
    return _triplet("triplet_margin_with_distance_loss", anchor, positive, negative, distance, margin, swap)


def _triplet(op, anchor, positive, negative, distance, margin, swap) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)"""
    if margin <= 0:
        raise ArgumentError(f"{op}: got margin={margin}; expected a positive number")
    if not anchor.ndim == positive.ndim == negative.ndim:
        shapes = ", ".join(str(tuple(x.shape)) for x in (anchor, positive, negative))
        raise ShapeError(f"{op}: got anchor, positive and negative {shapes}; expected the same shape")
    far = distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return (distance(anchor, positive) - far + margin).clamp(0)


@loss
def soft_margin_loss(input: Tensor, target: Tensor) -> Tensor:
    """log(1 + exp(-target input)) for targets 1 and -1, reduced; it does not overflow.

    Source: `torch.nn.functional.soft_margin_loss`.
    """
    return (-(target * input)).softplus(threshold=math.inf)


@loss
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """-(t log sigmoid(x) + (1 - t) log sigmoid(-x)), averaged over the classes in the last dim, and then reduced.

    Args:
        input: logits x, (N, C), floating.
        target: t, 0 or 1, (N, C).
        weight: a factor for each class, (C,).
        reduction: "mean", "sum" or "none".

    Source: `torch.nn.functional.multilabel_soft_margin_loss`.
    """
    loss = -(target * input.logsigmoid() + (1.0 - target) * (-input).logsigmoid())
    if weight is not None:
        check_broadcast("multilabel_soft_margin_loss: weight", weight.shape, loss.shape)
        loss = loss * weight
    return loss.mean(-1)


@loss
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """sum over the classes c other than t of w_t max(0, margin - x_t + x_c)^p / C, reduced.

    Args:
        input: scores x, (N, C) or (C,), floating.
        target: classes t, integers, (N,) or ().
        p: 1 or 2.
        margin: by how much the score of the class should be larger.
        weight: w, (C,).
        reduction: "mean", "sum" or "none".

    Raises:
        ArgumentError: for another p, or an unknown reduction.
        ShapeError, DTypeError: if shapes or dtypes do not fit together.

    Source: `torch.nn.functional.multi_margin_loss`.
    """
    if p not in (1, 2):
        raise ArgumentError(f"multi_margin_loss: got p={p}; expected 1 or 2")
    if single := input.ndim == 1:
        input, target = input.unsqueeze(0), target.reshape(1)
    if input.ndim != 2:
        expected = "(N, C) and (N,), or (C,) and ()"
        raise refusal(ShapeError, "multi_margin_loss", expected, input=input, target=target)
    check_rows("multi_margin_loss", input._array, target._array, None if weight is None else weight._array)
    classes = input.shape[1]
    index = cast(target, "int64").unsqueeze(1)
    excess = (input - input.gather(1, index) + margin).relu()  # unlike that of clamp(0), its slope at 0 is 0
    excess = where(one_hot(index.reshape(-1), classes) != 0, 0.0, excess * excess if p == 2 else excess)
    loss = excess.sum(1) / classes
    if weight is not None:
        loss = loss * weight.index_select(0, index.reshape(-1))
    return loss.reshape(()) if single else loss


@loss
def multilabel_margin_loss(input: Tensor, target: Tensor) -> Tensor:
    """sum over the labels t and the other classes c of max(0, 1 - x_t + x_c) / C, reduced.

    Args:
        input: scores x, (N, C) or (C,), floating.
        target: integers of that shape, 0 to C - 1 or -1: the labels of a row are those before its first -1.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError, DTypeError: if shapes or dtypes do not fit together.
        IndexRangeError: for a label that is neither a class nor -1.

    Source: `torch.nn.functional.multilabel_margin_loss`.
    """
    require_floating("multilabel_margin_loss", input._array)
    if input.ndim == target.ndim == 0:
        input, target = input.reshape(1), target.reshape(1)
    if input.ndim not in (1, 2) or input.shape != target.shape:
        raise refusal(ShapeError, "multilabel_margin_loss", "(N, C) or (C,) both", input=input, target=target)
    if target.dtype.is_floating_point or target.dtype is bool_:
        raise DTypeError(f"multilabel_margin_loss: got labels of {target.dtype}; expected an integer dtype")
    is_label = cast(target < 0, "int64").cumsum(-1) == 0
    labels = where(target == -1, 0, cast(target, "int64"))
    times = zeros_like(labels).scatter_add(-1, labels, cast(is_label, "int64"))
    excess = (1 - input.gather(-1, labels).unsqueeze(-1) + input.unsqueeze(-2)).relu()
    counted = is_label.unsqueeze(-1) & (times.unsqueeze(-2) == 0)
    return where(counted, excess, 0.0).sum((-2, -1)) / max(1, input.shape[-1])


@takes_tensors
def combined_margin(x: Tensor, label: Tensor, m1: float = 1.0, m2: float = 0.0, m3: float = 0.0) -> Tensor:
    """What `nn.CombinedMarginLoss` computes."""
    index = label.unsqueeze(1)
    cosine = x.gather(1, index)
    cosine = cosine if m1 == 1 and m2 == 0 else (cosine.acos() * m1 + m2).cos()
    return x.scatter(1, index, cosine - m3)
