"""Multi-head attention."""

from __future__ import annotations

from typing import Any

from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn import init
from miniflow.nn.modules.layer import Layer
from miniflow.nn.modules.linear import Linear
from miniflow.ops.arithmetic import add
from miniflow.ops.attention import additive, attend
from miniflow.ops.creation import zeros
from miniflow.ops.joining import cat, chunk, unbind
from miniflow.ops.matmul import linear
from miniflow.ops.padding import pad
from miniflow.ops.permute import permute
from miniflow.ops.reduction import mean
from miniflow.ops.shape import reshape, squeeze, unsqueeze
from miniflow.tensor import Tensor


class MultiheadAttention(Layer):
    """Attention of several heads, each on projections of its own; the results are put together and projected.

    Args:
        embed_dim: E, the size of queries and results; each head takes E / num_heads.
        num_heads: the number of heads.
        dropout: the probability with which a weight becomes 0 in training.
        bias: whether the projections add a bias.
        add_bias_kv: whether a key and a value that are learned come after those given.
        add_zero_attn: whether a key and a value of zeros come after those.
        kdim, vdim: the sizes of keys and values; E if None.
        batch_first: whether tensors are (N, L, E) in place of (L, N, E).
        device, dtype: of the parameters.

    Attributes:
        in_proj_weight: (3 E, E); or q_proj_weight, k_proj_weight and v_proj_weight if kdim or vdim differ from E.
        in_proj_bias: (3 E,), or None.
        bias_k, bias_v: (1, 1, E) with add_bias_kv, else None.
        out_proj: Linear(E, E).

    Raises:
        ArgumentError: if `num_heads` does not divide `embed_dim`.

    >>> import miniflow as flow
    >>> x = flow.zeros(2, 5, 8)
    >>> y, weights = flow.nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
    >>> y.shape, weights.shape
    (miniflow.Size([2, 5, 8]), miniflow.Size([2, 5, 5]))

    Source: `torch.nn.MultiheadAttention`; Vaswani et al. 2017, "Attention Is All You Need".
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        size, heads = embed_dim, num_heads
        if size <= 0 or heads <= 0 or size % heads:
            raise ArgumentError(f"MultiheadAttention: got embed_dim={size}, num_heads={heads}; expected a multiple")
        self.embed_dim, self.num_heads, self.head_dim, self.dropout = size, heads, size // heads, dropout
        self.kdim, self.vdim, self.batch_first = kdim or size, vdim or size, batch_first
        self.add_bias_kv, self.add_zero_attn = add_bias_kv, add_zero_attn
        shapes = {"in": (3 * size, size)} if self.kdim == self.vdim == size else {
            "q": (size, size), "k": (size, self.kdim), "v": (size, self.vdim)
        }  # fmt: skip
        self.add_parameters(
            device, dtype, **{f"{name}_proj_weight": shapes.get(name) for name in ("in", "q", "k", "v")}
        )
        self.add_parameters(device, dtype, in_proj_bias=(3 * size,) if bias else None)
        added = (1, 1, size) if add_bias_kv else None
        self.add_parameters(device, dtype, bias_k=added, bias_v=added)
        self.out_proj = Linear(size, size, bias, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights of the first projections by Xavier's rule, and the biases to zeros."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            query: (L, N, E), (N, L, E) with `batch_first`, or (L, E).
            key: (S, N, kdim) and likewise; `value` with vdim.
            key_padding_mask: (N, S), or (S,): bool, true for keys to ignore, or floating, which is added.
            need_weights: whether to return the weights.
            attn_mask: (L, S) or (N * num_heads, L, S): bool, true where a query may not see a key, or floating.
            average_attn_weights: the mean of the weights over the heads, or those of each.
            is_causal: says that `attn_mask`, which must be given, is causal.

        Returns:
            the result, shaped as `query`; the weights (N, L, S), (N, num_heads, L, S) if not averaged, or None.
        """
        if is_causal and attn_mask is None:
            raise ArgumentError("MultiheadAttention: got is_causal=True without attn_mask; expected the mask too")
        if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            shapes = [tuple(x.shape) for x in (query, key, value)]
            raise ShapeError(f"MultiheadAttention: got shapes {shapes}; expected all 3-D, or all 2-D without a batch")
        unbatched, batch_dim = query.ndim == 2, 0 if self.batch_first else 1
        query, *key_value = self._projected(query, key, value, batch_dim if unbatched else None)
        mask = self._mask(query, attn_mask, key_padding_mask)
        key, value = (self._longer(x, added) for x, added in zip(key_value, (self.bias_k, self.bias_v), strict=True))
        if mask is not None:
            mask = pad(mask, (0, key.shape[2] - key_value[0].shape[2]))
        result, weights = attend(query, key, value, mask, self.dropout if self.training else 0.0)
        result = permute(result, (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3))
        result = self.out_proj(reshape(result, (*result.shape[:2], self.embed_dim)))
        if not need_weights:
            weights = None
        elif average_attn_weights:
            weights = mean(weights, 1)
        if unbatched:
            return squeeze(result, batch_dim), None if weights is None else squeeze(weights, 0)
        return result, weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor, added_dim: int | None) -> list[Tensor]:
        """Queries, keys and values of each head, (N, num_heads, length, head_dim)."""
        order = (0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3)
        self_attention = query is key is value
        query, key, value = (x if added_dim is None else unsqueeze(x, added_dim) for x in (query, key, value))
        bias = self.in_proj_bias
        if self_attention and self.in_proj_weight is not None:
            x = linear(query, self.in_proj_weight, bias)
            x = reshape(x, (*x.shape[:2], 3, self.num_heads, self.head_dim))
            return list(unbind(permute(x, (2, *[k + (k > 1) for k in order])), 0))
        weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        if self.in_proj_weight is not None:
            weights = chunk(self.in_proj_weight, 3)
        biases = (None,) * 3 if bias is None else chunk(bias, 3)
        projected = [linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]
        return [permute(reshape(x, (*x.shape[:2], self.num_heads, self.head_dim)), order) for x in projected]

    def _longer(self, x: Tensor, added: Tensor | None) -> Tensor:
        """Keys or values of each head, followed by `bias_k` or `bias_v` and, with `add_zero_attn`, a zero."""
        shape = (x.shape[0], self.num_heads, 1, self.head_dim)
        ends = [] if added is None else [reshape(added, (1, *shape[1:])).expand(shape)]
        if self.add_zero_attn:
            ends.append(zeros(shape, dtype=x.dtype, device=x._device_and_sbp))
        return cat([x, *ends], 2) if ends else x

    def _mask(self, query: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor | None:
        """Both masks as one that is added to scores (N, num_heads, L, S)."""
        if attn_mask is not None:
            attn_mask = additive(attn_mask, query)
            if attn_mask.ndim == 3:
                attn_mask = reshape(attn_mask, (-1, self.num_heads, *attn_mask.shape[1:]))
        if key_padding_mask is None:
            return attn_mask
        padding = additive(key_padding_mask, query)
        padding = reshape(padding, (-1, 1, 1, padding.shape[-1]))
        return padding if attn_mask is None else add(attn_mask, padding)
