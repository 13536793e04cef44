"""Looking up rows of a table by integers, one by one or combined over bags; `one_hot`."""

from __future__ import annotations

import math

import numpy as np

from miniflow.backends.memory import peek
from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op, call, run_kernel
from miniflow.dispatch.tape import no_grad
from miniflow.dtype import float32
from miniflow.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError, refusal
from miniflow.ops import split_dims
from miniflow.ops.creation import arange, full
from miniflow.ops.gather import gather, index_select
from miniflow.ops.indexing import where
from miniflow.ops.promotion import cast, require_floating
from miniflow.ops.scatter import scatter_reduce
from miniflow.ops.sorting import searchsorted
from miniflow.ops.views import check_in_range, input_shape, split_as_input, without_split
from miniflow.sbp import letters, signatures
from miniflow.tensor import Tensor

NO_PADDING = -1


class Embedding(Op):
    """y[..., :] = weight[indices[...], :]; the gradient of row `padding_idx` is zero."""

    amp = "clear"
    saves = ("indices",)
    checks_values = "infer"

    def infer(indices, weight, *, padding_idx):
        if indices.dtype.kind not in "iu":
            raise DTypeError(f"embedding: got indices of {indices.dtype}; expected an integer dtype: use input.long()")
        if weight.ndim != 2:
            got = f"a weight of shape {tuple(weight.shape)}"
            raise ShapeError(f"embedding: got {got}; expected (num_embeddings, embedding_dim)")
        remedy = ": check the indices, or make num_embeddings larger"
        check_in_range("embedding", indices, 0, weight.shape, remedy=remedy)
        return (*indices.shape, weight.shape[1]), weight.dtype

    def sbp(indices, weight, *, ranks, padding_idx):
        rows = letters(indices.ndim)
        return signatures([rows, "YZ"], [rows + "Z"], linear=[[1]])

    def on_shard(op, arrays, attrs, shard):
        (indices, weight), table = arrays, shard.wholes[1].shape
        if split_dims.is_whole(shard.operands[1], table, [0]):
            return run_kernel(op, arrays, attrs)
        op.infer(indices, shard.wholes[1], **attrs)  # refuses what is no row of the table
        positions, rows = split_dims.rows_of_part(indices, (0,), table, shard.operands[1])
        picked = split_dims.run("Index", weight, rows, dims=(0,))
        return split_dims.spread(picked, positions, 0, indices.ndim, split_dims.sizes(shard.result))

    def backward(ctx, dy):
        attrs = {"rows": input_shape(ctx, 1)[0], "padding_idx": ctx.attrs["padding_idx"]}
        return None, call(EmbeddingGrad, dy, *ctx.saved, **attrs, **split_as_input(ctx, 1))


class EmbeddingGrad(Op):
    """dweight[r] = sum of dy[i] over all i with indices[i] = r; 0 for the padding row. Linear in dy."""

    saves = ("indices",)
    checks_values = "infer"

    def infer(dy, indices, *, rows, padding_idx, split=()):
        if indices.dtype.kind not in "iu" or not dy.ndim or dy.shape[:-1] != indices.shape:
            raise refusal(ShapeError, "embedding_grad", "a row of dy for each integer", dy=dy, indices=indices)
        check_in_range("embedding", indices, 0, (rows, dy.shape[-1]))
        return (rows, dy.shape[-1]), dy.dtype

    def sbp(dy, indices, *, ranks, rows, padding_idx, split=()):
        batch = letters(indices.ndim)  # not linear: a partial sum of the table would be larger than one of dy
        return signatures([batch + "Z", batch], ["YZ" if 0 in split else ".Z"])

    def on_shard(op, arrays, attrs, shard):
        (dy, indices), (start, stop), attrs = arrays, shard.result[0], without_split(attrs)
        if (start, stop) == (0, attrs["rows"]):
            return run_kernel(op, arrays, attrs)
        check_in_range("embedding", indices, 0, shard.shape)
        positions, rows = split_dims.rows_of_part(indices, (0,), shard.shape, shard.result)
        dy = split_dims.run("Index", split_dims.with_flat_batch(dy, 0, indices.ndim), positions, dims=(0,))
        padding = attrs["padding_idx"]
        own_padding = padding - start if start <= padding < stop else NO_PADDING
        return run_kernel(op, [dy, rows.reshape(rows.shape[1:])], {"rows": stop - start, "padding_idx": own_padding})

    def backward(ctx, g):
        (indices,) = ctx.saved
        padding = ctx.attrs["padding_idx"]
        looked_up = call(Embedding, indices, g, padding_idx=padding)
        if padding == NO_PADDING:
            return looked_up, None
        return looked_up * cast((indices != padding).unsqueeze(-1), g.dtype), None


@takes_tensors
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Look up rows of a table: y[..., :] = weight[input[...], :].

    Args:
        input: indices of any shape, an integer dtype, 0 to num_embeddings - 1.
        weight: the table, (num_embeddings, embedding_dim).
        padding_idx: a row that gets no gradient; counted from the end if negative.
        max_norm, norm_type: of PyTorch; only None is accepted.
        scale_grad_by_freq: divide the gradient of each row by how often it is looked up.
        sparse: accepted as in PyTorch; gradients are dense.

    Returns:
        (*input.shape, embedding_dim), in the dtype of `weight`.

    Raises:
        IndexRangeError: for an index, or a padding_idx, that is not a row of the table.
        DTypeError: for indices that are not integers.
        ArgumentError: for a max_norm.
        ShapeError: unless `weight` has two dims.

    >>> import miniflow as flow
    >>> table = flow.tensor([[0.0, 0.5], [1.0, 1.5]])
    >>> flow.nn.functional.embedding(flow.tensor([1, 0, 1]), table).tolist()
    [[1.0, 1.5], [0.0, 0.5], [1.0, 1.5]]

    Source: `torch.nn.functional.embedding`.
    """
    if max_norm is not None:
        raise ArgumentError(f"embedding: got max_norm={max_norm}; expected None")
    if padding_idx is None:
        padding = NO_PADDING
    else:
        rows = weight.shape[0] if weight.ndim else 0
        if not -rows <= padding_idx < rows:
            got = f"padding_idx={padding_idx} for a table of {rows} rows"
            raise IndexRangeError(f"embedding: got {got}; expected {-rows} to {rows - 1}")
        padding = padding_idx % rows
    rows = call(Embedding, input, weight, padding_idx=padding)
    if scale_grad_by_freq and rows.requires_grad:
        rows.register_hook(lambda dy: _divided_by_frequency(dy, input, weight.shape[0]))
    return rows


def _divided_by_frequency(dy: Tensor, indices: Tensor, rows: int) -> Tensor:
    """The gradient of each row, divided by how often its index occurs."""
    ones = full((*indices.shape, 1), 1.0, dtype=float32, device=indices._device_and_sbp)
    counts = call(EmbeddingGrad, ones, indices, rows=rows, padding_idx=NO_PADDING)
    return cast(dy / call(Embedding, indices, counts, padding_idx=NO_PADDING), dy.dtype)


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
    if include_last_offset and offsets is not None:  # the end of the last bag begins one more bag, which is dropped
        options = {"max_norm": max_norm, "scale_grad_by_freq": scale_grad_by_freq, "mode": mode}
        options |= {"per_sample_weights": per_sample_weights, "padding_idx": padding_idx}
        return embedding_bag(input, weight, offsets, **options)[:-1]
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    is_counted = None if padding_idx is None else (input != padding_idx % weight.shape[0]).unsqueeze(-1)
    bag = None if offsets is None else _bags(input, offsets)  # the number of the bag of each index
    if mode == "max" and input.numel():
        return _largest_of_rows(rows, is_counted) if bag is None else _largest(rows, bag, len(offsets), is_counted)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if is_counted is not None:
        rows = where(is_counted, rows, 0.0)

    def total(x: Tensor) -> Tensor:
        return x.sum(1) if bag is None else call(EmbeddingGrad, x, bag, rows=len(offsets), padding_idx=NO_PADDING)

    if mode == "sum":
        return total(rows)
    if is_counted is None:
        is_counted = full((*input.shape, 1), True, device=rows._device)
    return total(rows) / total(cast(is_counted, rows.dtype)).clamp(1)


def _check(input, weight, offsets, scale_grad_by_freq, mode, per_sample_weights) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"embedding_bag: got mode={mode!r}; expected 'sum', 'mean' or 'max'")
    if scale_grad_by_freq and mode == "max":
        raise ArgumentError("embedding_bag: got scale_grad_by_freq=True and mode='max'; expected 'sum' or 'mean'")
    if input.ndim not in (1, 2) or (input.ndim == 1) != (offsets is not None and offsets.ndim == 1):
        expected = "(B, N) without offsets, or (n,) and (B,)"
        raise refusal(ShapeError, "embedding_bag", expected, input=input, offsets=offsets)
    require_floating("embedding_bag", weight._array)
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
        got = f"per_sample_weights of {per_sample_weights.dtype}"
        raise DTypeError(f"embedding_bag: got {got}; expected {weight.dtype} as the table: use .to(weight.dtype)")


def _bags(input: Tensor, offsets: Tensor) -> Tensor:
    """The number of the bag of each index."""
    positions = arange(len(input), dtype=offsets.dtype, device=input._device)
    return searchsorted(offsets, positions, right=True) - 1


def _largest_of_rows(rows: Tensor, is_counted: Tensor | None) -> Tensor:
    """The largest of rows[i] for each i; its gradient goes to the first row that has it."""
    if is_counted is None:
        return rows.max(1).values
    largest = where(is_counted, rows, -math.inf).max(1).values
    return where(is_counted.any(1), largest, 0.0)


def _largest(rows: Tensor, bag: Tensor, count: int, is_counted: Tensor | None) -> Tensor:
    """The largest of the rows of each bag; its gradient goes to the first row that has it."""
    last, bags = len(rows) - 1, bag.unsqueeze(1).expand(rows.shape)
    with no_grad():
        lowest = full((count, rows.shape[1]), -math.inf, dtype=rows.dtype, device=rows._device)
        candidates = rows if is_counted is None else where(is_counted, rows, -math.inf)
        largest = scatter_reduce(lowest, 0, bags, candidates, "amax")
        is_largest = (candidates == index_select(largest, 0, bag)) | candidates.isnan()
        is_largest = is_largest if is_counted is None else is_largest & is_counted
        positions = arange(len(rows), device=rows._device).unsqueeze(1).expand(rows.shape)
        no_row = full((count, rows.shape[1]), last + 1, dtype=positions.dtype, device=rows._device)
        first = scatter_reduce(no_row, 0, bags, where(is_largest, positions, last + 1), "amin")
    return where(first <= last, gather(rows, 0, first.clamp(max=last)), 0.0)


class OneHot(Op):
    """y[..., c] = 1 where x[...] = c, else 0; no gradient."""

    checks_values = "infer"

    def infer(x, *, num_classes):
        if x.dtype.kind not in "iu":
            raise DTypeError(f"one_hot: got {x.dtype}; expected classes of int64: use .long()")
        if num_classes < 1:
            raise ShapeError(
                f"one_hot: got num_classes={num_classes} for a tensor of shape {x.shape}; expected at least 1, "
                "or -1 for the largest class plus one, of at least one element"
            )
        check_in_range("one_hot", x, 0, (num_classes,))
        return (*x.shape, num_classes), np.dtype(np.int64)

    def sbp(x, *, ranks, num_classes):
        return signatures([letters(x.ndim)], [letters(x.ndim) + "."])


@takes_tensors
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the index of each class along a new last dim, 0 elsewhere.

    Args:
        tensor: classes from 0 on, integers of any shape.
        num_classes: the size of the new dim; -1 for the largest class plus one.

    Returns:
        int64, shape (*x.shape, num_classes).

    Raises:
        IndexRangeError: for a class outside [0, num_classes).
        DTypeError: if `tensor` is not of integers.

    >>> import miniflow as flow
    >>> one_hot(flow.tensor([2, 0])).tolist()
    [[0, 0, 1], [1, 0, 0]]

    Source: `torch.nn.functional.one_hot`.
    """
    if num_classes == -1 and tensor._array.size:
        num_classes = max(int(tensor._host_array().max()) + 1, 1)
    return call(OneHot, tensor, num_classes=num_classes)
