"""Sums, means and maxima over bags of rows of a table."""

from __future__ import annotations

import math

import numpy as np

from miniflow.backends.memory import peek
from miniflow.dispatch import call
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.operands import takes_tensors
from miniflow.ops.creation import full
from miniflow.ops.embedding import NO_PADDING, EmbeddingGrad, embedding
from miniflow.ops.gather import gather, index_select
from miniflow.ops.piecewise import where
from miniflow.ops.promotion import cast
from miniflow.ops.scatter import scatter_reduce
from miniflow.ops.search import searchsorted
from miniflow.ops.sequence import arange
from miniflow.tape import no_grad
from miniflow.tensor import Tensor


@takes_tensors
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum, the mean or the largest of the rows of a table that each bag of indices looks up.

    Args:
        input: indices, (B, N), a bag for each row; or (n,), bags of any size, one after the other.
        weight: the table, (num_embeddings, embedding_dim).
        offsets: (B,) with a 1-D input: where each bag begins, from 0 on; a bag may be empty, its result is 0.
        max_norm, norm_type: of PyTorch; only None is accepted.
        scale_grad_by_freq: divide the gradient of each row by how often it is looked up; not for "max".
        mode: "sum", "mean" or "max", where NaN wins; at ties the gradient of "max" goes to the first row.
        sparse: accepted as in PyTorch; gradients are dense.
        per_sample_weights: a factor for each index, shaped as `input`, of the dtype of `weight`; for "sum" only.
        include_last_offset: `offsets`, if given, has one more entry, the end of the last bag.
        padding_idx: a row that no bag counts; counted from the end if negative.

    Returns:
        (B, embedding_dim).

    Raises:
        ArgumentError: for another mode, or arguments that do not go together.
        ShapeError, DTypeError: if shapes or dtypes do not fit together.
        IndexRangeError: for an index, or a padding_idx, that is not a row of the table.

    >>> import miniflow as flow
    >>> table = flow.tensor([[1.0], [2.0], [5.0]])
    >>> flow.nn.functional.embedding_bag(flow.tensor([0, 1, 2]), table, flow.tensor([0, 2]), mode="sum").tolist()
    [[3.0], [5.0]]

    Source: `torch.nn.functional.embedding_bag`.
    """
    _check(input, weight, offsets, scale_grad_by_freq, mode, per_sample_weights)
    if include_last_offset and offsets is not None:  # what comes after the last bag is one more, which is left out
        options = {"max_norm": max_norm, "scale_grad_by_freq": scale_grad_by_freq, "mode": mode}
        options |= {"per_sample_weights": per_sample_weights, "padding_idx": padding_idx}
        return embedding_bag(input, weight, offsets, **options)[:-1]
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    counted = None if padding_idx is None else (input != padding_idx % weight.shape[0]).unsqueeze(-1)
    bag = None if offsets is None else _bags(input, offsets)  # the number of the bag of each index
    if mode == "max" and input.numel():
        return _largest_of_rows(rows, counted) if bag is None else _largest(rows, bag, len(offsets), counted)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if counted is not None:
        rows = where(counted, rows, 0.0)

    def total(x: Tensor) -> Tensor:
        return x.sum(1) if bag is None else call(EmbeddingGrad, x, bag, rows=len(offsets), padding_idx=NO_PADDING)

    if mode == "sum":
        return total(rows)
    if counted is None:
        counted = full((*input.shape, 1), True, device=rows._place)
    return total(rows) / total(cast(counted, rows.dtype)).clamp(1)


def _check(input, weight, offsets, scale_grad_by_freq, mode, per_sample_weights) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"embedding_bag: got mode={mode!r}; expected 'sum', 'mean' or 'max'")
    if scale_grad_by_freq and mode == "max":
        raise ArgumentError("embedding_bag: got scale_grad_by_freq=True and mode='max'; expected 'sum' or 'mean'")
    if input.ndim not in (1, 2) or (input.ndim == 1) != (offsets is not None and offsets.ndim == 1):
        expected = "(B, N) without offsets, or (n,) and (B,)"
        raise refusal(ShapeError, "embedding_bag", expected, input=input, offsets=offsets)
    values = None if offsets is None else peek(offsets._array)
    if values is not None and values.size:
        if values[0] != 0 or (np.diff(values) < 0).any() or values[-1] > len(input):
            raise ArgumentError(
                f"embedding_bag: got offsets={values.tolist()} for {len(input)} indices; expected 0 first, then "
                "numbers that do not fall, none above the number of indices"
            )
    if per_sample_weights is not None and mode != "sum":
        raise ArgumentError(f"embedding_bag: got per_sample_weights and mode={mode!r}; expected mode='sum'")
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise refusal(ShapeError, "embedding_bag", "equal shapes", input=input, per_sample_weights=per_sample_weights)
    if per_sample_weights is not None and per_sample_weights.dtype != weight.dtype:
        given = f"per_sample_weights of {per_sample_weights.dtype}"
        raise DTypeError(f"embedding_bag: got {given}; expected {weight.dtype} as the table: use .to(weight.dtype)")


def _bags(input: Tensor, offsets: Tensor) -> Tensor:
    """The number of the bag of each index."""
    places = arange(len(input), dtype=offsets.dtype, device=input._place)
    return searchsorted(offsets, places, right=True) - 1


def _largest_of_rows(rows: Tensor, counted: Tensor | None) -> Tensor:
    """The largest of rows[i] for each i; its gradient goes to the first row that has it."""
    if counted is None:
        return rows.max(1).values
    largest = where(counted, rows, -math.inf).max(1).values
    return where(counted.any(1), largest, 0.0)


def _largest(rows: Tensor, bag: Tensor, count: int, counted: Tensor | None) -> Tensor:
    """The largest of the rows of each bag; its gradient goes to the first row that has it."""
    last, at = len(rows) - 1, bag.unsqueeze(1).expand(rows.shape)
    with no_grad():
        least = full((count, rows.shape[1]), -math.inf, dtype=rows.dtype, device=rows._place)
        shown = rows if counted is None else where(counted, rows, -math.inf)
        largest = scatter_reduce(least, 0, at, shown, "amax")
        wins = (shown == index_select(largest, 0, bag)) | shown.isnan()
        wins = wins if counted is None else wins & counted
        places = arange(len(rows), device=rows._place).unsqueeze(1).expand(rows.shape)
        none = full((count, rows.shape[1]), last + 1, dtype=places.dtype, device=rows._place)
        first = scatter_reduce(none, 0, at, where(wins, places, last + 1), "amin")
    return where(first <= last, gather(rows, 0, first.clamp(max=last)), 0.0)
