"""Swin: attention inside windows of an image, which are shifted in every other block, at four resolutions.

Liu et al., "Swin Transformer: Hierarchical vision transformer using shifted windows", 2021, and "Swin Transformer V2:
Scaling up capacity and resolution", 2022. The names and state-dict keys are torchvision's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.creation import from_numpy, full, zeros
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.layers import MLP, Permute, StochasticDepth, init_truncated
from miniflow.vision.models.registry import Variant


class PatchMerging(nn.Module):
    """2 x 2 neighbours become one token, of twice the features: (N, H, W, C) -> (N, H / 2, W / 2, 2 C)."""

    def __init__(self, dim: int):
        super().__init__()
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(4 * dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.reduction(self.norm(self.neighbours(x)))

    def neighbours(self, x: Tensor) -> Tensor:
        """(N, H / 2, W / 2, 4 C), where an odd H or W is padded with a zero."""
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        return cat([x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], -1)


class PatchMergingV2(PatchMerging):
    """As `PatchMerging`, with the normalization last."""

    def __init__(self, dim: int):
        super().__init__(dim)
        self.norm = nn.LayerNorm(2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.reduction(self.neighbours(x)))


@functools.lru_cache(maxsize=64)
def shifted_mask(height: int, width: int, window: int, shifts: tuple[int, int]) -> np.ndarray:
    """What to add to scores of attention so that no token sees one that the shift brought from the other side.

    Returns:
        Of shape (windows, 1, window^2, window^2): 0 where both come from one region of the image, -100 elsewhere.
    """
    rows, columns = (
        np.repeat([0, 1, 2], [size - window, window - shift, shift]) if shift else np.zeros(size, int)
        for size, shift in zip((height, width), shifts, strict=True)
    )
    regions = rows[:, None] * 3 + columns  # (H, W)
    regions = regions.reshape(height // window, window, width // window, window).swapaxes(1, 2)
    regions = regions.reshape(-1, 1, window * window)
    return np.where(regions[..., :, None] == regions[..., None, :], np.float32(0), np.float32(-100))


class ShiftedWindowAttention(nn.Module):
    """Attention inside each window of M x M tokens, with a learned bias for each offset between two tokens.

    Args:
        dim, num_heads: features of a token, which the heads divide among them.
        window_size, shift_size: M, and how far windows are shifted down and to the right.
        attention_dropout, dropout: of the weights and of the result.

    Shapes: (N, H, W, dim) -> the same; an H or W that M does not divide is padded with zeros.

    Source: Liu et al., 2021, section 3.2.
    """

    def __init__(
        self, dim: int, window_size: int, shift_size: int, num_heads: int, attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.window_size, self.shift_size, self.num_heads = window_size, shift_size, num_heads
        self.attention_dropout = nn.Dropout(attention_dropout)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.define_bias(2 * window_size - 1)
        places = np.indices((window_size, window_size)).reshape(2, -1)  # (2, M M)
        down, right = places[:, :, None] - places[:, None, :] + window_size - 1  # each (M M, M M), from 0 to 2 M - 2
        self.register_buffer("relative_position_index", from_numpy((down * (2 * window_size - 1) + right).reshape(-1)))

    def define_bias(self, offsets: int) -> None:
        """Parameters for biases: one for each head and offset."""
        table = nn.init.trunc_normal_(zeros(offsets**2, self.num_heads), std=0.02)
        self.relative_position_bias_table = nn.Parameter(table)

    def biases(self) -> Tensor:
        """Of all offsets: (offsets, heads)."""
        return self.relative_position_bias_table

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Of queries and keys (..., M M, dim / heads), how well they fit: (..., M M, M M)."""
        return query / math.sqrt(query.shape[-1]) @ key.transpose(-2, -1)

    def projected(self, x: Tensor) -> Tensor:
        """Queries, keys and values in one tensor."""
        return self.qkv(x)

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        m = self.window_size
        x = F.pad(x, (0, 0, 0, -w % m, 0, -h % m))
        _, height, width, _ = x.shape
        shifts = tuple(0 if m >= size else self.shift_size for size in (height, width))  # one window sees all anyway
        x = x.roll((-shifts[0], -shifts[1]), (1, 2))
        x = x.reshape(n, height // m, m, width // m, m, c).transpose(2, 3).reshape(n, -1, m * m, c)
        query, key, value = (  # each (N, windows, heads, M M, dim / heads)
            part.unflatten(3, (self.num_heads, -1)).transpose(2, 3) for part in self.projected(x).chunk(3, dim=-1)
        )
        bias = self.biases()[self.relative_position_index].reshape(m * m, m * m, -1).permute(2, 0, 1)
        scores = self.scores(query, key) + bias
        if any(shifts):
            scores = scores + scores.new_tensor(shifted_mask(height, width, m, shifts))
        x = self.attention_dropout(scores.softmax(-1)) @ value
        x = self.dropout(self.proj(x.transpose(2, 3).flatten(3)))  # (N, windows, M M, dim)
        x = x.reshape(n, height // m, width // m, m, m, c).transpose(2, 3).reshape(n, height, width, c)
        return x.roll(shifts, (1, 2))[:, :h, :w]


class ShiftedWindowAttentionV2(ShiftedWindowAttention):
    """As `ShiftedWindowAttention`, with cosines for scores, and biases that an MLP computes from the offsets.

    Source: Liu et al., 2022, section 3.
    """

    def define_bias(self, offsets: int) -> None:
        steps = 8 * np.linspace(-1, 1, offsets, dtype=np.float32)
        steps = np.sign(steps) * np.log2(np.abs(steps) + 1) / np.log2(np.float32(8))
        table = np.stack(np.meshgrid(steps, steps, indexing="ij"), -1)[None]  # (1, offsets, offsets, 2)
        self.register_buffer("relative_coords_table", from_numpy(table))
        self.logit_scale = nn.Parameter(full((self.num_heads, 1, 1), math.log(10)))
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, 512), nn.ReLU(inplace=True), nn.Linear(512, self.num_heads, bias=False)
        )

    def biases(self) -> Tensor:
        return 16 * self.cpb_mlp(self.relative_coords_table).reshape(-1, self.num_heads).sigmoid()

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        cosines = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).transpose(-2, -1)
        return cosines * self.logit_scale.clamp(max=math.log(100)).exp()

    def projected(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv.bias.chunk(3)
        return F.linear(
            x, self.qkv.weight, cat([query, 0 * key, value])
        )  # a bias would change what keys have in common


class SwinTransformerBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), both of which may be dropped for a sample.

    Args:
        dim, num_heads, window_size, shift_size, dropout, attention_dropout: as in `ShiftedWindowAttention`.
        mlp_ratio: features inside the MLP for each of a token.
        stochastic_depth_prob: with which either is dropped.
    """

    attention: type[ShiftedWindowAttention] = ShiftedWindowAttention

    def __init__(
        self, dim: int, num_heads: int, window_size: int, shift_size: int, mlp_ratio: float = 4.0,
        dropout: float = 0.0, attention_dropout: float = 0.0, stochastic_depth_prob: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = self.attention(dim, window_size, shift_size, num_heads, attention_dropout, dropout)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, [int(dim * mlp_ratio), dim], activation_layer=nn.GELU, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class SwinTransformerBlockV2(SwinTransformerBlock):
    """As `SwinTransformerBlock`, with the normalizations last: x + norm(attention(x)), then x + norm(mlp(x))."""

    attention = ShiftedWindowAttentionV2

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.stochastic_depth(self.norm1(self.attn(x)))
        return x + self.stochastic_depth(self.norm2(self.mlp(x)))


class SwinTransformer(nn.Module):
    """Patches of 4 x 4 pixels, four stages of blocks with half the height and width each, the mean, a classifier.

    Args:
        embed_dim, depths, num_heads: features of a token in the first stage; blocks and heads of each stage.
        window_size: M, the side of a window in tokens.
        mlp_ratio, dropout, attention_dropout: of the blocks.
        stochastic_depth_prob: of the last block; of the others it is less the earlier they are.
        num_classes: how many logits to return.
        block, downsample_layer: those of version 2 have V2 in their names.

    >>> import miniflow as flow
    >>> SwinTransformer(8, (1, 1), (1, 2), 2, num_classes=10)(flow.zeros(1, 3, 32, 32)).shape
    miniflow.Size([1, 10])

    Source: Liu et al., 2021, figure 3; `torchvision.models.SwinTransformer`.
    """

    def __init__(
        self, embed_dim: int, depths: Sequence[int], num_heads: Sequence[int], window_size: int,
        mlp_ratio: float = 4.0, dropout: float = 0.0, attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.1, num_classes: int = 1000,
        block: type[SwinTransformerBlock] = SwinTransformerBlock, downsample_layer: type[PatchMerging] = PatchMerging,
    ):  # fmt: skip
        super().__init__()
        patches = nn.Conv2d(3, embed_dim, 4, stride=4)
        stages: list[nn.Module] = [nn.Sequential(patches, Permute((0, 2, 3, 1)), nn.LayerNorm(embed_dim))]
        rates = iter(np.linspace(0, stochastic_depth_prob, sum(depths)).tolist())
        options = (mlp_ratio, dropout, attention_dropout)
        for stage, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            dim = embed_dim * 2**stage
            shifts = [i % 2 * (window_size // 2) for i in range(depth)]
            blocks = [block(dim, heads, window_size, shift, *options, next(rates)) for shift in shifts]
            stages += [nn.Sequential(*blocks), downsample_layer(dim)]
        self.features = nn.Sequential(*stages[:-1])  # (N, H / 32, W / 32, 8 embed_dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)
        init_truncated(self, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        return self.head(self.norm(self.features(x)).mean((1, 2)))


SMALL, LARGE = (2, 2, 6, 2), (2, 2, 18, 2)
HEADS, MORE_HEADS = (3, 6, 12, 24), (4, 8, 16, 32)
V2 = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2}

swin_t = Variant("swin_t", SwinTransformer, 96, SMALL, HEADS, 7, stochastic_depth_prob=0.2)
swin_s = Variant("swin_s", SwinTransformer, 96, LARGE, HEADS, 7, stochastic_depth_prob=0.3)
swin_b = Variant("swin_b", SwinTransformer, 128, LARGE, MORE_HEADS, 7, stochastic_depth_prob=0.5)
swin_v2_t = Variant("swin_v2_t", SwinTransformer, 96, SMALL, HEADS, 8, stochastic_depth_prob=0.2, **V2)
swin_v2_s = Variant("swin_v2_s", SwinTransformer, 96, LARGE, HEADS, 8, stochastic_depth_prob=0.3, **V2)
swin_v2_b = Variant("swin_v2_b", SwinTransformer, 128, LARGE, MORE_HEADS, 8, stochastic_depth_prob=0.5, **V2)
