"""Loss functions, as in `torch.nn.functional`."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends.memory import peek
from miniflow.backends.runtime_defaults import user_level
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dispatch.tape import is_grad_enabled, modes
from miniflow.dtype import float32, promote_types
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.formulas import scalar
from miniflow.formulas.scalar import Formula
from miniflow.ops.comparison import maximum
from miniflow.ops.embedding import one_hot
from miniflow.ops.indexing import where
from miniflow.ops.loss_scale import in_float32
from miniflow.ops.pointwise import add_gradient, make_op
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.shape import check_broadcast
from miniflow.sbp import B, P, letters, signatures
from miniflow.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(op: str, reduction: str) -> None:
    """Raise ArgumentError for an unknown reduction."""
    if reduction not in REDUCTIONS:
        raise ArgumentError(f"{op}: got reduction={reduction!r}; expected 'mean', 'sum' or 'none'")


def reduced(op: str, loss: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of a loss, or the loss itself."""
    check_reduction(op, reduction)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def loss(function: Callable) -> Callable:
    """Decorate a function that returns the losses of elements or rows: it takes `reduction` too.

    Autocast leaves its tensors in float32.
    """
    name, signature = function.__name__, inspect.signature(function)
    parameters = list(signature.parameters.values())
    added = inspect.Parameter("reduction", inspect.Parameter.KEYWORD_ONLY, default="mean", annotation="str")
    following = [i for i, p in enumerate(parameters) if p.name in ("beta", "pos_weight")]  # in PyTorch's order
    parameters.insert(following[0] if following else len(parameters), added)

    @functools.wraps(function)
    def reducing(*args: Any, reduction: str = "mean", **kwargs: Any) -> Tensor:
        kwargs = dict(zip(kwargs, in_float32(*kwargs.values()), strict=True))
        return reduced(name, function(*in_float32(*args), **kwargs), reduction)

    reducing.__signature__ = signature.replace(parameters=parameters)
    return takes_tensors(reducing)


def check_rows(op: str, x: Any, target: Any, weight: Any) -> None:
    """Check the operands of losses over classes: (..., C) floating scores, (...) integer targets, (C,) weights."""
    require_floating(op, x)
    if target.dtype.kind not in "iu":
        raise DTypeError(f"{op}: got class indices of {target.dtype}; expected an integer dtype: use target.long()")
    if x.ndim < 2 or target.shape != x.shape[:-1]:
        raise ShapeError(f"{op}: got scores {x.shape} and classes {target.shape}; expected (N, C) and (N,)")
    if weight is not None and weight.shape != x.shape[-1:]:
        raise ShapeError(f"{op}: got a weight of shape {weight.shape}; expected ({x.shape[-1]},), one for each class")


class CrossEntropy(Op):
    """loss_i = -sum_c q_ic log softmax(x_i)_c, q_ic = w_c ((1 - s) [c = t_i] + s / C), reduced over the rows i.

    x is (..., C), so that the rows may have any dims.
    """

    amp = "black"
    outputs = ("loss", "lse", "total")
    nondifferentiable = ("lse", "total")
    saves = ("x", "target", "weight", "lse", "total")
    checks_values = "kernel"

    def infer(x, target, weight, *, ignore_index, reduction, label_smoothing):
        check_rows("cross_entropy", x, target, weight)
        shape = x.shape[:-1] if reduction == "none" else ()
        return [(shape, x.dtype), (x.shape[:-1], np.dtype(np.float64)), ((), np.dtype(np.float64))]

    def sbp(x, target, weight, *, ranks, reduction, **attrs):
        if reduction == "mean":  # `cross_entropy` divides the sum of global tensors itself
            return []
        rows = letters(x.ndim - 1)
        operands = [rows + ".", rows, None if weight is None else "."]
        return signatures(operands, [rows if reduction == "none" else "", rows, ""])

    def backward(ctx, dy):
        x, target, weight, lse, total = ctx.saved
        if not is_grad_enabled():
            return call(CrossEntropyGrad, dy, x, target, weight, lse, total, **ctx.attrs), None, None
        q = target_weights(x, target, weight, ctx.attrs["ignore_index"], ctx.attrs["label_smoothing"])
        dx = x.softmax(-1) * q.sum(-1, True) - q
        is_counted, _ = mask_ignored(target, ctx.attrs["ignore_index"])
        dy = where(is_counted.any(), dy, 0.0)  # infinite if a global loss was divided by no rows
        return dx * row_cotangent(dy, total, ctx.attrs["reduction"]), None, None


class CrossEntropyGrad(Op):
    """dx_ij = dloss_i (softmax(x_i)_j sum_c q_ic - q_ij)"""

    amp = "black"

    def infer(dy, x, target, weight, lse, total, **attrs):
        return x.shape, x.dtype

    def sbp(dy, x, target, weight, lse, total, *, ranks, reduction, **attrs):
        rows = letters(x.ndim - 1)
        cotangent = rows if reduction == "none" else ""
        operands = [cotangent, rows + ".", rows, None if weight is None else ".", rows, ""]
        return signatures(operands, [rows + "."], linear=[[0]])


def target_weights(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, label_smoothing: float
) -> Tensor:
    """q_ic = w_c ((1 - s) [c = t_i] + s / C); 0 in the rows to be ignored."""
    is_counted, classes = mask_ignored(target, ignore_index)
    num_classes = x.shape[-1]
    q = cast(one_hot(classes, num_classes), x.dtype) * (1.0 - label_smoothing) + label_smoothing / num_classes
    return where(is_counted.unsqueeze(-1), q if weight is None else q * weight, 0.0)


def mask_ignored(target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Which rows count, and the classes, 0 in the other rows."""
    target = cast(target, np.int64)
    is_counted = target != ignore_index
    return is_counted, where(is_counted, target, 0)


def row_cotangent(dy: Tensor, total: Tensor, reduction: str) -> Tensor:
    """The cotangent of each row's loss, ready to be broadcast over the classes."""
    if reduction == "none":
        return dy.unsqueeze(-1)
    if reduction == "sum":
        return dy
    return dy / where(total == 0, math.inf, total)  # 0 if every row was to be ignored


def class_last(op: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Bring (C,) or (N, C, d1, d2, ...) scores and their class indices to (1, C) and (1,), (N, d1, d2, ..., C) and
    (N, d1, d2, ...).

    Indices (N, 1) are accepted too, as in OneFlow.

    Raises:
        ShapeError: for other shapes.
    """
    shape, classes = input._array.shape, target._array.shape
    class_shape = shape[:1] + shape[2:]
    if len(shape) == 1 and classes in ((), (1,)):
        return input.unsqueeze(0), target.reshape((1,))
    if len(shape) < 2 or classes != class_shape and (len(shape) > 2 or classes != (*class_shape, 1)):
        expected = "(N, C) and (N,), (N, C, d1, ...) and (N, d1, ...), or (C,) and ()"
        raise refusal(ShapeError, op, expected, input=input, target=target)
    if len(shape) == 2:
        return input, target if classes == class_shape else target.reshape(class_shape)
    return input.movedim(1, -1), target


@takes_tensors
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy between softmax(input) and the target classes: -sum_c q_c w_c log softmax(input)_c.

    The backward reads `input`, which must not change in place before it: PyTorch keeps a second array of its size for
    that, the result of log_softmax, which would cost time and memory in every training step.

    Args:
        input: logits, (C,), (N, C) or (N, C, d1, d2, ...), floating.
        target: class indices, an integer tensor shaped like `input` without the class dim; or class probabilities, a
            floating tensor shaped like `input`.
        weight: (C,), a factor w_c for each class.
        ignore_index: targets of this value add nothing to the loss.
        reduction: "mean" (for class indices weighted by w[target]; for probabilities over the rows), "sum" or "none".
        label_smoothing: the share of the target, 0 to 1, that is spread evenly over the classes.

    Returns:
        A 0-dim tensor, or for "none" one loss for each row.

    Raises:
        ShapeError: if the shapes do not fit together.
        DTypeError: if `input` is not floating, or class indices are.
        IndexRangeError: for a class index that is not a class.
        ArgumentError: for an unknown reduction, or a label_smoothing outside of 0 to 1.

    >>> import miniflow as flow
    >>> logits = flow.tensor([[0.0, 0.0], [0.0, 0.0]])
    >>> round(flow.nn.functional.cross_entropy(logits, flow.tensor([0, 1])).item(), 4)
    0.6931

    Source: `torch.nn.functional.cross_entropy`; label smoothing: Szegedy et al., "Rethinking the Inception
    Architecture", 2016.
    """
    check_reduction("cross_entropy", reduction)
    if target._array.dtype.kind in "iub" and target.shape == input.shape and input.shape[1:2] > (1,):
        expected = "class indices, one for each row: use labels.argmax(1), or labels.float() for class probabilities"
        raise refusal(ShapeError, "cross_entropy", expected, input=input, target=target)
    if input._array.dtype.kind in "iu" and target.is_floating_point():
        raise DTypeError(f"cross_entropy: got input of {input.dtype}; expected logits first, and labels after them")
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"cross_entropy: got label_smoothing={label_smoothing}; expected a number from 0 to 1")
    if target._array.dtype.kind not in "iub":
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    logits, classes = class_last("cross_entropy", input, target)
    if logits.is_global and any([entry.dim == logits.ndim - 1 for entry in logits.sbp]):
        loss = vocabulary_parallel(logits, classes, weight, ignore_index, reduction, label_smoothing)
        return loss.reshape(target.shape) if reduction == "none" else loss
    options = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": float(label_smoothing)}
    if reduction == "mean" and logits.is_global:  # what divides it is a sum over all ranks as well
        rows = cast(logits, promote_types(logits.dtype, float32))  # the sum might overflow in half precision
        weight = None if weight is None else cast(weight, rows.dtype)
        loss, _, total = call(CrossEntropy, rows, classes, weight, **options | {"reduction": "sum"})
        loss = loss / cast(total, loss.dtype)
        return loss if modes.autocast is not None else cast(loss, logits.dtype)
    loss = call(CrossEntropy, logits, classes, weight, **options)[0]
    return loss.reshape(target.shape) if reduction == "none" and loss.shape != target.shape else loss


def vocabulary_parallel(
    logits: Tensor, classes: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, label_smoothing: float
) -> Tensor:
    """Cross-entropy of logits whose classes are split among ranks: these send for each row the largest logit, the sum
    of exponentials and the logit of the target, and keep the rest. Shoeybi et al., "Megatron-LM", 2019."""
    dtype = logits.dtype
    logits, weight = in_float32(logits, weight)
    shifted = logits - logits.detach().amax(-1, keepdim=True)
    total = shifted.exp().sum(-1, keepdim=True)
    reduced_sbp = tuple([B if entry is P else entry for entry in total.sbp])
    log_probabilities = shifted - total.to_global(sbp=reduced_sbp, grad_sbp=reduced_sbp).log()
    loss = loss_of_rows("cross_entropy", log_probabilities, classes, weight, ignore_index, reduction, label_smoothing)
    return cast(loss, dtype)


def loss_of_rows(
    op: str, log_probabilities: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
    label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """The negative log-likelihood of the target classes, of (..., C) log-probabilities and (...) targets, reduced."""
    check_rows(op, log_probabilities._array, target._array, None if weight is None else weight._array)
    is_counted, classes = mask_ignored(target, ignore_index)
    weights = cast(is_counted, log_probabilities.dtype) if weight is None else where(is_counted, weight[classes], 0.0)
    picked = log_probabilities.gather(-1, classes.unsqueeze(-1)).squeeze(-1)
    loss = where(is_counted, -(picked * weights), 0.0)
    if label_smoothing:
        weighted = log_probabilities if weight is None else log_probabilities * weight
        smooth = where(is_counted, -weighted.mean(-1), 0.0)
        loss = (1.0 - label_smoothing) * loss + label_smoothing * smooth
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / weights.sum()


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    shape = input.shape
    if target.shape != shape and target.shape in (shape[:1] + shape[2:], ()):
        got = f"{target.dtype} labels {tuple(target.shape)} for input {tuple(shape)}"
        raise DTypeError(f"cross_entropy: got {got}; expected class indices of an integer dtype: use labels.long()")
    if not shape or target.shape != shape:
        raise ShapeError(
            f"cross_entropy: got class probabilities {tuple(target.shape)} for input {tuple(shape)}; expected the "
            "same shape with a class dim, or integer class indices"
        )
    class_dim = 1 if len(shape) > 1 else 0
    classes = shape[class_dim]
    input, target, weight = in_float32(input, target, weight)
    if smoothing:
        target = target * (1.0 - smoothing) + smoothing / classes
    terms = target * input.log_softmax(class_dim)
    if weight is not None:
        if weight.shape != (classes,):
            raise ShapeError(f"cross_entropy: got a weight of shape {tuple(weight.shape)}; expected ({classes},)")
        terms = terms * weight.reshape((classes,) + (1,) * (len(shape) - class_dim - 1))
    loss = -terms.sum(class_dim)
    return reduced("cross_entropy", loss, reduction)


@takes_tensors
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of the target classes: -w[t] input[t], where input holds log-probabilities.

    Args:
        input: log-probabilities, (C,), (N, C) or (N, C, d1, d2, ...), floating.
        target: class indices, an integer tensor shaped like `input` without the class dim.
        weight: (C,), a factor for each class.
        ignore_index: targets of this value add nothing to the loss.
        reduction: "mean" (weighted by w[target]), "sum" or "none".

    Raises:
        ShapeError, DTypeError: if shapes or dtypes do not fit together.
        IndexRangeError: for a class index that is not a class.
        ArgumentError: for an unknown reduction.

    >>> import miniflow as flow
    >>> flow.nn.functional.nll_loss(flow.tensor([[-1.0, -2.0]]), flow.tensor([1])).item()
    2.0

    Source: `torch.nn.functional.nll_loss`.
    """
    check_reduction("nll_loss", reduction)
    input, weight = in_float32(input, weight)
    rows, classes = class_last("nll_loss", input, target)
    loss = loss_of_rows("nll_loss", rows, classes, weight, ignore_index, reduction)
    return loss.reshape(target.shape) if reduction == "none" else loss


@loss
def mse_loss(input: Tensor, target: Tensor) -> Tensor:
    """The squared error (input - target)^2, reduced.

    Args:
        input, target: floating, of the same shape; other shapes are broadcast, with a warning.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: if the shapes cannot be broadcast.
        DTypeError: for integers and bool.
        ArgumentError: for an unknown reduction.

    >>> import miniflow as flow
    >>> flow.nn.functional.mse_loss(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0])).item()
    2.0

    Source: `torch.nn.functional.mse_loss`.
    """
    error = difference("mse_loss", input, target)
    return error * error


@loss
def l1_loss(input: Tensor, target: Tensor) -> Tensor:
    """The absolute error |input - target|, reduced; its gradient where they are equal is 0.

    Args:
        input, target: floating, of the same shape; other shapes are broadcast, with a warning.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: if the shapes cannot be broadcast.
        DTypeError: for integers and bool.
        ArgumentError: for an unknown reduction.

    >>> import miniflow as flow
    >>> flow.nn.functional.l1_loss(flow.tensor([1.0, 2.0]), flow.tensor([1.0, 4.0])).item()
    1.0

    Source: `torch.nn.functional.l1_loss`.
    """
    return abs(difference("l1_loss", input, target))


def difference(op: str, input: Tensor, target: Tensor) -> Tensor:
    """input - target, with a warning where the shapes differ."""
    require_floating(op, input._array)
    if input._array.shape != target._array.shape:
        warnings.warn(
            f"{op}: got input {tuple(input.shape)} and target {tuple(target.shape)}, which will be broadcast; expected "
            "the same shape: reshape one of them",
            stacklevel=user_level(),
        )
    return input - target


def refuse_other_than_probabilities(x: Any, target: Any) -> None:
    """Raise ArgumentError for values outside of [0, 1], if they can be read."""
    values = peek(x)
    if values is not None and values.size and not (values.min() >= 0 and values.max() <= 1):
        raise ArgumentError(
            f"binary_cross_entropy: got {values[~((values >= 0) & (values <= 1))].flat[0]} in the input; expected "
            "probabilities from 0 to 1: apply sigmoid first, or use binary_cross_entropy_with_logits"
        )


def _binary_cross_entropy(x, target):
    """y = -(t log x + (1 - t) log(1 - x)), the logarithms not below -100."""
    return -(target * maximum(scalar.log(x), -100) + (1 - target) * maximum(scalar.log1p(-x), -100))


BinaryCrossEntropy = make_op(
    Formula.of(_binary_cross_entropy, "binary_cross_entropy"), "black",
    check=staticmethod(refuse_other_than_probabilities), checks_values="infer",
)  # fmt: skip


@add_gradient(BinaryCrossEntropy, "x")
def _(dy, x, target):
    return dy * ((x - target) / maximum(x * (1 - x), 1e-12))


@add_gradient(BinaryCrossEntropy, "target")
def _(dy, x):
    return dy * (maximum(scalar.log(1 - x), -100) - maximum(scalar.log(x), -100))


def same_floats(op: str, x: Any, target: Any) -> None:
    """Check the operands of binary losses: floating, of the same shape and dtype."""
    if x.dtype.kind in "biu" or target.dtype != x.dtype:
        expected = "the same floating dtype: use target.to(input.dtype)"
        raise DTypeError(f"{op}: got input of {x.dtype} and target of {target.dtype}; expected {expected}")
    if x.shape != target.shape:
        raise ShapeError(f"{op}: got input {x.shape} and target {target.shape}; expected the same shape: reshape")


@loss
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """-(t log x + (1 - t) log(1 - x)) for probabilities x, the logarithms cut off at -100, reduced.

    Args:
        input: probabilities from 0 to 1, floating.
        target: t, of the same shape and dtype.
        weight: a factor for each element, broadcast to `input`.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError, DTypeError: if shapes or dtypes do not fit together.
        ArgumentError: for an input outside of 0 to 1, or an unknown reduction.

    >>> import miniflow as flow
    >>> round(flow.nn.functional.binary_cross_entropy(flow.tensor([0.5]), flow.tensor([1.0])).item(), 4)
    0.6931

    Source: `torch.nn.functional.binary_cross_entropy`.
    """
    same_floats("binary_cross_entropy", input._array, target._array)
    loss = call(BinaryCrossEntropy, input, target)
    return _weighted("binary_cross_entropy", loss, weight)


@loss
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, pos_weight: Tensor | None = None
) -> Tensor:
    """Binary cross-entropy of sigmoid(input), stable for any input: (1 - t) x + (1 + (p - 1) t) log(1 + exp(-x)).

    Args:
        input: logits x, floating.
        target: t, of the same shape and dtype.
        weight: a factor for each element, broadcast to `input`.
        reduction: "mean", "sum" or "none".
        pos_weight: p, the weight of the positive class, broadcast to `input`.

    Raises:
        ShapeError, DTypeError: if shapes or dtypes do not fit together.
        ArgumentError: for an unknown reduction.

    >>> import miniflow as flow
    >>> round(flow.nn.functional.binary_cross_entropy_with_logits(flow.tensor([0.0]), flow.tensor([1.0])).item(), 4)
    0.6931

    Source: `torch.nn.functional.binary_cross_entropy_with_logits`.
    """
    op = "binary_cross_entropy_with_logits"
    same_floats(op, input._array, target._array)
    positive = (-input).softplus(threshold=float("inf"))
    if pos_weight is not None:
        check_broadcast(f"{op}: pos_weight", pos_weight.shape, input.shape)
        positive = positive * ((pos_weight - 1.0) * target + 1.0)
    loss = (1.0 - target) * input + positive
    return _weighted(op, loss, weight)


def _weighted(op: str, loss: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return loss
    check_broadcast(f"{op}: weight", weight.shape, loss.shape)
    return loss * weight


@takes_tensors
def sparse_softmax_cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """The cross-entropy of each sample: logits (..., C), labels (...). `oneflow.nn.functional`."""
    losses = cross_entropy(logits.reshape((-1, logits.shape[-1])), labels.reshape(-1), reduction="none")
    return losses.reshape(labels.shape)


@loss
def smooth_l1_loss(input: Tensor, target: Tensor, *, beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| is below beta, else d - beta / 2, reduced.

    Args:
        input, target: floating, of the same shape; other shapes are broadcast, with a warning.
        reduction: "mean", "sum" or "none".
        beta: where the parabola ends, not negative; 0 gives `l1_loss`.

    Raises:
        ArgumentError: for a negative beta, or an unknown reduction.

    >>> import miniflow as flow
    >>> flow.nn.functional.smooth_l1_loss(flow.zeros(2), flow.tensor([0.5, 3.0]), reduction="none").tolist()
    [0.125, 2.5]

    Source: `torch.nn.functional.smooth_l1_loss`; Girshick, "Fast R-CNN", 2015.
    """
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: got beta={beta}; expected a number that is not negative")
    if beta == 0:
        return abs(difference("smooth_l1_loss", input, target))
    return _huber("smooth_l1_loss", input, target, beta) / beta


@takes_tensors
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d^2 / 2 where d = |input - target| is below delta, else delta (d - delta / 2), reduced.

    Args:
        input, target: floating, of the same shape; other shapes are broadcast, with a warning.
        reduction: "mean", "sum" or "none".
        delta: where the parabola ends, positive.

    Raises:
        ArgumentError: for another delta, or an unknown reduction.

    Source: `torch.nn.functional.huber_loss`; Huber, "Robust Estimation of a Location Parameter", 1964.
    """
    if delta <= 0:
        raise ArgumentError(f"huber_loss: got delta={delta}; expected a positive number")
    return reduced("huber_loss", _huber("huber_loss", *in_float32(input, target), delta), reduction)


def _huber(op: str, input: Tensor, target: Tensor, delta: float) -> Tensor:
    distance = abs(difference(op, input, target))
    cut = distance.minimum(delta)
    return cut * (distance - cut * 0.5)


@takes_tensors
def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """The Kullback-Leibler divergence target (log target - input), reduced; 0 where the target is 0.

    Args:
        input: log-probabilities, floating.
        target: probabilities, broadcast with `input`.
        reduction: "mean" (over all elements), "batchmean" (the sum, divided by the first size: the divergence as it is
            defined), "sum" or "none".
        log_target: whether the target holds log-probabilities.

    Raises:
        ArgumentError: for an unknown reduction.

    >>> import miniflow as flow
    >>> p = flow.tensor([[0.5, 0.5]])
    >>> flow.nn.functional.kl_div(p.log(), p, reduction="batchmean").item()
    0.0

    Source: `torch.nn.functional.kl_div`.
    """
    input, target = in_float32(input, target)
    if log_target:
        loss = target.exp() * (target - input)
    else:
        nonzero = target != 0
        loss = where(nonzero, target * where(nonzero, target, 1.0).log(), 0.0) - target * input
    if reduction == "batchmean":
        return loss.sum() / (input.shape[0] if input.ndim else 1)
    return reduced("kl_div", loss, reduction)
