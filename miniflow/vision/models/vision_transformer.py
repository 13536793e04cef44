"""ViT: an image is a sequence of patches, which a transformer reads as it reads words.

Dosovitskiy et al., "An image is worth 16x16 words: Transformers for image recognition at scale", 2021. The names and
state-dict keys are torchvision's: `vit_b_16` is the base size on patches of 16 x 16 pixels.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial

from miniflow import nn
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.ops.creation import empty, zeros
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.layers import MLP, init_truncated
from miniflow.vision.layers.blocks import Factory
from miniflow.vision.models.registry import Variant

LayerNorm = partial(nn.LayerNorm, eps=1e-6)


class EncoderBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    Args:
        num_heads, hidden_dim, mlp_dim: heads of attention, features of a token, and those inside the MLP.
        dropout, attention_dropout: of what both return, and of the weights of attention.
        norm_layer: what makes a normalization from a number of features.

    Shapes: (N, tokens, hidden_dim) -> the same.
    """

    def __init__(
        self, num_heads: int, hidden_dim: int, mlp_dim: int, dropout: float = 0.0, attention_dropout: float = 0.0,
        norm_layer: Factory = LayerNorm,
    ):  # fmt: skip
        super().__init__()
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLP(hidden_dim, [mlp_dim, hidden_dim], activation_layer=nn.GELU, dropout=dropout)
        for layer in (self.mlp[0], self.mlp[3]):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + self.dropout(y)
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Embeddings of positions are added to tokens, blocks follow, and a normalization.

    Args:
        seq_length: how many tokens there are.
        num_layers: how many blocks there are.
        hidden_dim, dropout: features of a token, and dropout before the blocks.
        block, norm_layer: make a block, and a normalization.
    """

    def __init__(
        self, seq_length: int, num_layers: int, hidden_dim: int, dropout: float, block: Factory, norm_layer: Factory
    ):
        super().__init__()
        self.pos_embedding = nn.Parameter(nn.init.normal_(empty(1, seq_length, hidden_dim), std=0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(OrderedDict((f"encoder_layer_{i}", block()) for i in range(num_layers)))
        self.ln = norm_layer(hidden_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """Patches as tokens, a class token before them, an encoder, and a classifier of what the class token becomes.

    Args:
        image_size: the height and width of images.
        patch_size: those of a patch, which divide it.
        num_layers, num_heads, hidden_dim, mlp_dim: of the encoder.
        dropout, attention_dropout: of tokens, and of the weights of attention.
        num_classes: how many logits to return.
        representation_size: features of a hidden layer of the classifier, with tanh; None for no such layer.
        norm_layer: what makes a normalization from a number of features.

    Raises:
        ArgumentError: if patches do not fill images.

    >>> import miniflow as flow
    >>> VisionTransformer(32, 16, 1, 2, 8, 16, num_classes=10)(flow.zeros(1, 3, 32, 32)).shape
    miniflow.Size([1, 10])

    Source: Dosovitskiy et al., 2021, section 3.1; `torchvision.models.VisionTransformer`.
    """

    def __init__(
        self, image_size: int, patch_size: int, num_layers: int, num_heads: int, hidden_dim: int, mlp_dim: int,
        dropout: float = 0.0, attention_dropout: float = 0.0, num_classes: int = 1000,
        representation_size: int | None = None, norm_layer: Factory = LayerNorm,
    ):  # fmt: skip
        super().__init__()
        if image_size % patch_size:
            expected = "an image_size that patch_size divides"
            raise refusal(ArgumentError, "VisionTransformer", expected, image_size=image_size, patch_size=patch_size)
        self.image_size = image_size
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(zeros(1, 1, hidden_dim))
        block = partial(EncoderBlock, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        length = (image_size // patch_size) ** 2 + 1
        self.encoder = Encoder(length, num_layers, hidden_dim, dropout, block, norm_layer)
        heads: OrderedDict[str, nn.Module] = OrderedDict()
        if representation_size is not None:
            heads["pre_logits"] = nn.Linear(hidden_dim, representation_size)
            heads["act"] = nn.Tanh()
        heads["head"] = nn.Linear(representation_size or hidden_dim, num_classes)
        self.heads = nn.Sequential(heads)
        init_truncated(self.conv_proj, nn.Conv2d, std=1 / math.sqrt(3 * patch_size**2))
        init_truncated(self.heads, nn.Linear, std=1 / math.sqrt(hidden_dim))
        nn.init.zeros_(self.heads.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, image_size, image_size).

        Raises:
            ShapeError: for images of another size, for which there are no embeddings of positions.
        """
        if tuple(x.shape[2:]) != (self.image_size, self.image_size):
            raise refusal(ShapeError, "VisionTransformer", f"(N, 3, {self.image_size}, {self.image_size})", x=x)
        x = self.conv_proj(x).flatten(2).transpose(1, 2)  # (N, patches, hidden_dim)
        x = cat([self.class_token.expand(len(x), -1, -1), x], 1)
        return self.heads(self.encoder(x)[:, 0])


def _variant(name: str, *sizes: int) -> Variant:
    patch_size, num_layers, num_heads, hidden_dim = sizes
    options = {"num_layers": num_layers, "num_heads": num_heads, "hidden_dim": hidden_dim, "mlp_dim": 4 * hidden_dim}
    return Variant(name, VisionTransformer, image_size=224, patch_size=patch_size, **options)


vit_b_16 = _variant("vit_b_16", 16, 12, 12, 768)
vit_b_32 = _variant("vit_b_32", 32, 12, 12, 768)
vit_l_16 = _variant("vit_l_16", 16, 24, 16, 1024)
vit_l_32 = _variant("vit_l_32", 32, 24, 16, 1024)
vit_h_14 = _variant("vit_h_14", 14, 32, 16, 1280)
