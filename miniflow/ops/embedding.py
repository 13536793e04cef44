"""Embedding: rows of a table, looked up by integers."""

from __future__ import annotations

from miniflow.dispatch import Op, call
from miniflow.dtype import float32
from miniflow.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.creation import full
from miniflow.ops.promotion import cast
from miniflow.ops.shape import input_shape
from miniflow.ops.slice import check_in_range
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
            given = f"a weight of shape {tuple(weight.shape)}"
            raise ShapeError(f"embedding: got {given}; expected (num_embeddings, embedding_dim)")
        remedy = ": check the indices, or make num_embeddings larger"
        check_in_range("embedding", indices, 0, weight.shape, remedy=remedy)
        return (*indices.shape, weight.shape[1]), weight.dtype

    def sbp(indices, weight, *, ranks, padding_idx):
        rows = letters(indices.ndim)
        return signatures([rows, ".Z"], [rows + "Z"], linear=[[1]])

    def backward(ctx, dy):
        rows = input_shape(ctx, 1)[0]
        return None, call(EmbeddingGrad, dy, *ctx.saved, rows=rows, padding_idx=ctx.attrs["padding_idx"])


class EmbeddingGrad(Op):
    """dweight[r] = sum of dy[i] over all i with indices[i] = r; 0 for the padding row. Linear in dy."""

    saves = ("indices",)
    checks_values = "infer"

    def infer(dy, indices, *, rows, padding_idx):
        check_in_range("embedding", indices, 0, (rows, dy.shape[-1]))
        return (rows, dy.shape[-1]), dy.dtype

    def sbp(dy, indices, *, ranks, rows, padding_idx):
        given = letters(indices.ndim)
        return signatures([given + "Z", given], [".Z"], linear=[[0]])

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
            given = f"padding_idx={padding_idx} for a table of {rows} rows"
            raise IndexRangeError(f"embedding: got {given}; expected {-rows} to {rows - 1}")
        padding = padding_idx % rows
    rows = call(Embedding, input, weight, padding_idx=padding)
    if scale_grad_by_freq and rows.requires_grad:
        rows.register_hook(lambda dy: _divided_by_frequency(dy, input, weight.shape[0]))
    return rows


def _divided_by_frequency(dy: Tensor, indices: Tensor, rows: int) -> Tensor:
    """The gradient of each row by how often its index comes."""
    ones = full((*indices.shape, 1), 1.0, dtype=float32, device=indices._place_and_sbp)
    counts = call(EmbeddingGrad, ones, indices, rows=rows, padding_idx=NO_PADDING)
    return cast(dy / call(Embedding, indices, counts, padding_idx=NO_PADDING), dy.dtype)
