"""Attention: means of values, weighted by the softmax of the products of queries and keys."""

from __future__ import annotations

import math

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dtype import bool_
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.ops.creation import ones, zeros
from miniflow.ops.dropout import dropout
from miniflow.tensor import Tensor


@takes_tensors
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key^T * scale + mask) value

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, Ev).
        attn_mask: broadcasts to (..., L, S); bool, true where a query may see a key, or floating, which is added. A
            query that may see no key gives zeros.
        dropout_p: the probability with which a weight becomes 0; it does not depend on a layer's `training`.
        is_causal: query i sees the keys 0 .. i; not together with `attn_mask`.
        scale: 1 / sqrt(E) if None.
        enable_gqa: each head of keys and values, dim -3, serves several consecutive heads of queries.

    Returns:
        (..., L, Ev).

    Raises:
        ArgumentError: for a mask together with `is_causal`.
        ShapeError: if the shapes do not fit together.

    >>> import miniflow as flow
    >>> q = k = flow.zeros(2, 1)
    >>> flow.nn.functional.scaled_dot_product_attention(q, k, flow.tensor([[1.0], [3.0]]), is_causal=True).tolist()
    [[1.0], [2.0]]

    Source: `torch.nn.functional.scaled_dot_product_attention`; Vaswani et al. 2017, "Attention Is All You Need".
    """
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise refusal(
            ShapeError, "scaled_dot_product_attention", "at least 2 dims each", query=query, key=key, value=value
        )
    if is_causal:
        if attn_mask is not None:
            raise ArgumentError("scaled_dot_product_attention: got attn_mask and is_causal=True; expected one of them")
        attn_mask = ones(query.shape[-2], key.shape[-2], dtype=bool_, device=query._device).tril()
    if enable_gqa:
        key, value = (_repeat_heads(x, query.shape[-3]) for x in (key, value))
    if attn_mask is not None and attn_mask.dtype is bool_:
        attn_mask = additive(~attn_mask, query)
    return attend(query, key, value, attn_mask, dropout_p, scale, none_fully_masked=is_causal)[0]


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, scale: float | None = None,
    none_fully_masked: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result and the weights.

    Args:
        mask: added to the scores.
        none_fully_masked: every query has a key that the mask leaves, so no row of the softmax is NaN.
    """
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1] or 1)
    scores = (query * scale) @ key.transpose(-2, -1)
    if mask is None or none_fully_masked:
        weights = dropout((scores if mask is None else scores + mask).softmax(-1), dropout_p)
        return weights @ value, weights
    fully_masked = (mask == -math.inf).all(-1, keepdim=True)  # queries that see no key: their softmax would be NaN
    weights = (scores + mask.masked_fill(fully_masked, 0.0)).softmax(-1)
    weights = dropout(weights, dropout_p).masked_fill(fully_masked, 0.0)
    return weights @ value, weights


def additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask to add to scores, in the dtype of `like`: -inf where a bool mask is true; a floating mask as it is."""
    if mask.dtype is not bool_:
        return mask
    return zeros(mask.shape, dtype=like.dtype, device=like._device).masked_fill(mask, -math.inf)


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    """(..., h, S, E) -> (..., heads, S, E), each of the h heads repeated."""
    *batch, h, rows, width = x.shape
    if heads % h:
        raise ShapeError(
            f"scaled_dot_product_attention: got {heads} heads of queries and {h} of keys or values; expected a multiple"
        )
    return x.unsqueeze(-3).expand((*batch, h, heads // h, rows, width)).reshape((*batch, heads, rows, width))
