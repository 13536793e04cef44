"""Connectionist temporal classification: the likelihood of a label sequence, summed over all alignments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miniflow.backends.memory import peek
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dtype import float32, promote_types
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.ops import reduction
from miniflow.ops.creation import full_like
from miniflow.ops.indexing import where
from miniflow.ops.joining import stack
from miniflow.ops.loss_scale import in_float32
from miniflow.ops.losses import check_reduction, reduced
from miniflow.ops.padding import pad
from miniflow.ops.promotion import cast, to_device
from miniflow.tensor import Tensor, constant_like

IMPOSSIBLE = -1e30  # the logarithm of 0, finite so that the difference of two of them is not NaN


Lengths = Tensor | Sequence[int] | int


@takes_tensors
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability that a sequence of frames spells the target, over all alignments with blanks.

    The sum over the alignments is the recursion of `alpha` of the paper, one step for each frame, over all samples at
    once; its gradient is that of the tape, and so exact for `log_probs` of any origin.

    Args:
        log_probs: (T, N, C) or (T, C), log-probabilities of the classes, such as log_softmax gives.
        targets: integers, (N, S) padded with anything, (S,) for (T, C), or all of them in a row, (sum of the lengths,).
        input_lengths: how many frames of each sample count: (N,), a tuple or a tensor.
        target_lengths: how many labels of each sample count. Of targets in a row they must be known while a graph is
            recorded.
        blank: the class that stands for no label.
        reduction: "mean" (of losses divided by the lengths of their targets), "sum" or "none".
        zero_infinity: whether targets too long for their frames, whose loss is infinite, count as 0.

    Raises:
        ShapeError, DTypeError: if shapes or dtypes do not fit together.
        ArgumentError: for a blank that is not a class, lengths beyond the tensors, or an unknown reduction.

    >>> import miniflow as flow
    >>> frames = flow.full((2, 1, 3), 1 / 3).log()  # "1", "1 1", "blank 1" and "1 blank" spell 1: 3 of 9 paths
    >>> round(flow.nn.functional.ctc_loss(frames, flow.tensor([[1]]), (2,), (1,)).exp().item(), 4)
    3.0

    Source: Graves et al., "Connectionist Temporal Classification", 2006; `torch.nn.functional.ctc_loss`.
    """
    check_reduction("ctc_loss", reduction)
    _check_operands(log_probs, targets, blank)
    single = log_probs.ndim == 2
    if single:
        log_probs, targets = log_probs.unsqueeze(1), targets.reshape((1, -1))
    (log_probs,) = in_float32(log_probs)
    log_probs = cast(log_probs, promote_types(log_probs.dtype, float32)).clamp(IMPOSSIBLE)
    frames, samples, _ = log_probs.shape
    input_lengths = _as_lengths("input_lengths", input_lengths, log_probs, frames)
    target_lengths = _as_lengths("target_lengths", target_lengths, log_probs, targets.shape[-1])
    if targets.ndim == 1:
        targets = _in_rows(targets, target_lengths)
    elif len(targets) != samples:
        raise ShapeError(f"ctc_loss: got targets {tuple(targets.shape)} for {samples} samples; expected as many rows")
    loss = -_log_likelihood(log_probs, cast(targets, "int64"), input_lengths, target_lengths, blank)
    loss = where(loss > -IMPOSSIBLE / 2, 0.0 if zero_infinity else np.inf, loss)
    if reduction == "mean":
        loss = loss / cast(target_lengths.clamp(1), loss.dtype)
    return reduced("ctc_loss", loss.reshape(()) if single else loss, reduction)


def _check_operands(log_probs: Tensor, targets: Tensor, blank: int) -> None:
    if log_probs.ndim not in (2, 3) or targets.ndim > 2:
        expected = "(T, N, C) and (N, S), or (T, C) and (S,)"
        raise refusal(ShapeError, "ctc_loss", expected, log_probs=log_probs, targets=targets)
    if targets._array.dtype.kind not in "iu":
        raise DTypeError(f"ctc_loss: got targets of {targets.dtype}; expected an integer dtype: use targets.long()")
    if not 0 <= blank < log_probs.shape[-1]:
        raise ArgumentError(f"ctc_loss: got blank={blank}; expected a class from 0 to {log_probs.shape[-1] - 1}")


def _as_lengths(name: str, lengths: Lengths, log_probs: Tensor, limit: int) -> Tensor:
    """Lengths as an int64 tensor (N,) on the device of `log_probs`."""
    if not isinstance(lengths, Tensor):
        lengths = constant_like(log_probs, np.asarray(lengths))
    elif lengths.is_local and log_probs.is_local:
        lengths = to_device(lengths, log_probs.device)
    lengths = cast(lengths, "int64").reshape(-1)
    if len(lengths) != log_probs.shape[1]:
        raise ShapeError(f"ctc_loss: got {len(lengths)} {name}; expected {log_probs.shape[1]}, one for each sample")
    values = peek(lengths._array)
    if values is not None and values.size and not 0 <= values.min() <= values.max() <= limit:
        raise ArgumentError(f"ctc_loss: got {name} {values.tolist()}; expected numbers from 0 to {limit}")
    return lengths


def _in_rows(targets: Tensor, lengths: Tensor) -> Tensor:
    """(N, S) from concatenated targets; elements beyond a length are arbitrary labels."""
    counts = lengths.cpu().numpy()
    starts, columns = counts.cumsum() - counts, np.arange(counts.max(initial=0))
    indices = np.minimum(starts[:, None] + columns, max(len(targets) - 1, 0))
    return targets.gather(0, constant_like(targets, indices.reshape(-1))).reshape(indices.shape)


def _log_likelihood(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> Tensor:
    """log p(target) of each sample: alpha_t(s) is that of the paths that end at place s of the labels at frame t.

    The labels are the targets with blanks around each. A path comes from the same place, the one before it, or, unless
    the label is a blank or the same as two places before, from there: alpha_t(s) = sum of these alpha_(t-1) y_t(s).
    """
    samples, width = targets.shape
    valid = constant_like(targets, np.arange(width)) < target_lengths.unsqueeze(1)
    blanks = full_like(targets, blank)
    labels = stack([blanks, where(valid, targets, blank)], 2).reshape((samples, 2 * width))
    labels = pad(labels, (0, 1), value=blank)
    before = pad(labels, (2, 0), value=blank).narrow(1, 0, 2 * width + 1)
    skips = where(labels != before, 0.0, IMPOSSIBLE)  # places of blanks are two apart, so they never skip
    frames = len(log_probs)
    emitted = log_probs.gather(2, labels.unsqueeze(0).expand((frames, *labels.shape)))

    steps = input_lengths.unsqueeze(1)
    positions = constant_like(targets, np.arange(2 * width + 1))
    alpha = where(positions < 2, emitted[0], IMPOSSIBLE)
    for t in range(1, frames):
        shifted = pad(alpha, (2, 0), value=IMPOSSIBLE)
        one_back, two_back = shifted.narrow(1, 1, 2 * width + 1), shifted.narrow(1, 0, 2 * width + 1)
        after = alpha.logaddexp(one_back).logaddexp(two_back + skips) + emitted[t]
        alpha = where(steps > t, after, alpha)

    last = target_lengths.unsqueeze(1) * 2
    ends = alpha.gather(1, stack([last, (last - 1).clamp(0)], 1)[:, :, 0])
    return ends[:, 0].logaddexp(where(target_lengths == 0, IMPOSSIBLE, ends[:, 1]))


@takes_tensors
def ctc_greedy_decoder(log_probs: Tensor, input_lengths: Tensor, merge_repeated: bool = True) -> tuple[Tensor, Tensor]:
    """The most likely label of every frame, blanks (label C - 1) left out, and equal neighbours merged.

    Args:
        log_probs: (T, N, C).
        input_lengths: (N,).
        merge_repeated: whether a label counts once where frames repeat it.

    Returns:
        the labels (N, T), int64, filled up with zeros, and minus the sums of the largest log-probabilities (N, 1).

    Source: `oneflow.nn.functional.ctc_greedy_decoder`; TensorFlow's function of that name.
    """
    frames = log_probs.shape[0]
    best, labels = reduction.max(log_probs, 2)
    best, labels = best.transpose(0, 1), labels.transpose(0, 1)
    valid = constant_like(labels, np.arange(frames)) < input_lengths.unsqueeze(1)
    is_label = valid & (labels != log_probs.shape[2] - 1)
    if merge_repeated:
        is_label = is_label & (labels != pad(labels.narrow(1, 0, frames - 1), (1, 0), value=-1))
    positions = where(is_label, cast(is_label, "int64").cumsum(1) - 1, frames)
    decoded = full_like(pad(labels, (0, 1)), 0).scatter(1, positions, labels)
    return decoded.narrow(1, 0, frames), -where(valid, best, 0.0).sum(1, True)
