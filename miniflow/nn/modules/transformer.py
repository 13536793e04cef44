"""Transformers: layers of attention and of two linear layers, as encoders, decoders, and both."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn import init
from miniflow.nn.modules.attention import MultiheadAttention
from miniflow.nn.modules.container import ModuleList
from miniflow.nn.modules.dropout import Dropout
from miniflow.nn.modules.layer import Layer
from miniflow.nn.modules.linear import Linear
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.norm import LayerNorm
from miniflow.ops.activation import gelu, relu
from miniflow.ops.creation import full
from miniflow.ops.diagonal import triu
from miniflow.tensor import Tensor

ACTIVATIONS = {"relu": relu, "gelu": gelu}


class TransformerLayer(Layer):
    """What the layers of encoders and decoders share: parts, each added to its input and normalized.

        x <- norm(x + part(x)), or x <- x + part(norm(x)) with `norm_first`

    Args:
        d_model: E, the number of features.
        nhead: the number of heads.
        dim_feedforward: the size between the two linear layers.
        dropout: the probability of a zero, in every part.
        activation: between the linear layers: "relu", "gelu", or a function of a tensor.
        layer_norm_eps: of the layer norms.
        batch_first: whether tensors are (N, L, E) in place of (L, N, E).
        norm_first: normalize before each part, not after it.
        bias: whether linear layers and norms have a bias.
        device, dtype: of the parameters.

    Raises:
        ArgumentError: for another name of an activation.
    """

    attentions: tuple[str, ...]

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            raise ArgumentError(f"{self._get_name()}: got activation={activation!r}; expected 'relu' or 'gelu'")
        self.activation = ACTIVATIONS.get(activation, activation)
        self.d_model, self.nhead, self.dim_feedforward = d_model, nhead, dim_feedforward
        self.layer_norm_eps, self.batch_first, self.norm_first = layer_norm_eps, batch_first, norm_first
        options = {"bias": bias, "device": device, "dtype": dtype}
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **options))
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        numbers = range(1, len(self.attentions) + 2)
        for i in numbers:
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, **options))
        for i in numbers:
            setattr(self, f"dropout{i}", Dropout(dropout))

    def reset_parameters(self) -> None:
        """Does nothing: the parts of the layer initialize their own parameters."""

    def _residual(self, x: Tensor, i: int, part: Callable[[Tensor], Tensor]) -> Tensor:
        """`x` and the part number `i` of it."""
        norm, dropout = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
        return x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention, then two linear layers. Source: `torch.nn.TransformerEncoderLayer`.

    >>> import miniflow as flow
    >>> flow.nn.TransformerEncoderLayer(8, 2)(flow.zeros(5, 3, 8)).shape
    miniflow.Size([5, 3, 8])
    """

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attention(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]

        return self._residual(self._residual(src, 1, attention), 2, self._feed_forward)


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to an encoder's results, then two linear layers. `torch.nn.TransformerDecoderLayer`.

    >>> import miniflow as flow
    >>> flow.nn.TransformerDecoderLayer(8, 2)(flow.zeros(5, 3, 8), flow.zeros(4, 3, 8)).shape
    miniflow.Size([5, 3, 8])
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attention(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]

        def to_memory(x: Tensor) -> Tensor:
            options = {"need_weights": False, "attn_mask": memory_mask, "is_causal": memory_is_causal}
            return self.multihead_attn(x, memory, memory, memory_key_padding_mask, **options)[0]

        return self._residual(self._residual(self._residual(tgt, 1, attention), 2, to_memory), 3, self._feed_forward)


class _Stack(Layer):
    """Copies of a layer, one after the other, then a norm."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm  # the layers are registered first, as in PyTorch

    def _through(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, *args, **options)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """`num_layers` copies of an encoder layer, one after the other, then `norm`.

    Args:
        encoder_layer: the layer to copy.
        num_layers: how many copies.
        norm: the last layer, or None.
        enable_nested_tensor, mask_check: ignored; there are no nested tensors.

    Source: `torch.nn.TransformerEncoder`.
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):  # fmt: skip
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        return self._through(src, mask, src_key_padding_mask, bool(is_causal))


class TransformerDecoder(_Stack):
    """`num_layers` copies of a decoder layer, one after the other, then `norm`. `torch.nn.TransformerDecoder`."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__(decoder_layer, num_layers, norm)

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Any, **options: Any) -> Tensor:
        """Takes what a layer takes, see `TransformerDecoderLayer`."""
        return self._through(tgt, memory, *masks, **options)


class Transformer(Layer):
    """An encoder, and a decoder that attends to its results; the other arguments are those of their layers.

    Args:
        d_model: E, the number of features.
        nhead: the number of heads.
        num_encoder_layers, num_decoder_layers: how many layers.
        custom_encoder, custom_decoder: modules to use instead.

    Shapes: source (S, N, E), target (T, N, E) -> (T, N, E); the batch first with `batch_first`.

    >>> import miniflow as flow
    >>> model = flow.nn.Transformer(8, 2, 1, 1, 16)
    >>> model(flow.zeros(5, 3, 8), flow.zeros(4, 3, 8)).shape
    miniflow.Size([4, 3, 8])

    Source: `torch.nn.Transformer`; Vaswani et al. 2017, "Attention Is All You Need".
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Callable[[Tensor], Tensor] = relu,
        custom_encoder: Module | None = None, custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        options = {"bias": bias, "device": device, "dtype": dtype}
        sizes = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first
        self.encoder, self.decoder = custom_encoder, custom_decoder
        if custom_encoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, **options)
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*sizes, **options), num_encoder_layers, norm)
        if custom_decoder is None:
            norm = LayerNorm(d_model, layer_norm_eps, **options)
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*sizes, **options), num_decoder_layers, norm)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the matrices again, also those of a custom encoder or decoder."""
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError(
                f"Transformer: got {src.shape[-1]} and {tgt.shape[-1]} features; expected d_model={self.d_model}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        padding = tgt_key_padding_mask, memory_key_padding_mask
        return self.decoder(tgt, memory, tgt_mask, memory_mask, *padding, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """(sz, sz): 0 where a position may see another, -inf above the diagonal."""
        return triu(full((sz, sz), -math.inf, device=device, dtype=dtype), 1)
