"""PVT v2: a transformer at four resolutions, where attention looks at a smaller image of keys and values.

Wang et al., "Pyramid Vision Transformer", 2021, and "PVT v2: Improved baselines with Pyramid Vision Transformer", 2022,
whose patches overlap, and which needs no embeddings of positions. The names and state-dict keys are timm's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.layers import DropPath, SRAttention, init_truncated
from miniflow.vision.models.registry import Variant
from miniflow.vision.models.vision_transformer import LayerNorm

Size = tuple[int, int]


class OverlapPatchEmbed(nn.Module):
    """Patches that overlap as tokens: (N, inputs, H, W) -> (N, H W / stride^2, outputs), and the two numbers."""

    def __init__(self, inputs: int, outputs: int, patch_size: int, stride: int):
        super().__init__()
        self.proj = nn.Conv2d(inputs, outputs, patch_size, stride, padding=patch_size // 2)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: Tensor) -> tuple[Tensor, Size]:
        x = self.proj(x)
        return self.norm(x.flatten(2).transpose(1, 2)), tuple(x.shape[2:])


class MlpWithDepthwiseConv(nn.Module):
    """fc2(gelu(depthwise 3x3 convolution(fc1(x)))): tokens see their neighbours, and so where the border is."""

    def __init__(self, dim: int, hidden: int, drop: float = 0.0):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.dwconv = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor, size: Size) -> Tensor:
        x = self.dwconv(self.fc1(x).transpose(1, 2).unflatten(2, size))  # (N, hidden, H, W)
        x = self.drop(self.act(x.flatten(2).transpose(1, 2)))
        return self.drop(self.fc2(x))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), both of which may be dropped for a sample.

    Args:
        dim, num_heads, sr_ratio: as in `SRAttention`.
        mlp_ratio: features inside the MLP for each of a token.
        proj_drop, attn_drop, drop_path: dropout of what both return, of the weights of attention, and of either.
    """

    def __init__(
        self, dim: int, num_heads: int, sr_ratio: int, mlp_ratio: float, proj_drop: float = 0.0,
        attn_drop: float = 0.0, drop_path: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.norm1 = LayerNorm(dim)
        self.attn = SRAttention(dim, num_heads, sr_ratio, True, attn_drop, proj_drop)
        self.norm2 = LayerNorm(dim)
        self.mlp = MlpWithDepthwiseConv(dim, int(dim * mlp_ratio), proj_drop)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, size: Size) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), size))
        return x + self.drop_path(self.mlp(self.norm2(x), size))


class Stage(nn.Module):
    """Blocks at one resolution: (N, inputs, H, W) -> (N, outputs, H / 2, W / 2), in the first stage of tokens.

    Args:
        downsample: what makes the images smaller; None in the first stage.
        dim: the features of tokens.
        blocks: of the stage.
    """

    def __init__(self, downsample: OverlapPatchEmbed | None, dim: int, blocks: Sequence[Block]):
        super().__init__()
        self.downsample = downsample
        self.blocks = nn.ModuleList(blocks)
        self.norm = LayerNorm(dim)

    def forward(self, x: Tensor, size: Size | None = None) -> Tensor:
        if self.downsample is not None:
            x, size = self.downsample(x)
        for block in self.blocks:
            x = block(x, size)
        return self.norm(x).transpose(1, 2).unflatten(2, size)


class PyramidVisionTransformerV2(nn.Module):
    """Four stages of blocks with half the height and width each, the mean, and a classifier.

    Args:
        depths, embed_dims, num_heads, sr_ratios, mlp_ratios: of each stage.
        num_classes: how many logits to return.
        drop_rate, proj_drop_rate, attn_drop_rate: dropout before the classifier, in the blocks, and of the weights of
            attention.
        drop_path_rate: of the last block; of the others it is less the earlier they are.

    >>> import miniflow as flow
    >>> PyramidVisionTransformerV2((1,) * 4, (8,) * 4, num_classes=10)(flow.zeros(1, 3, 32, 32)).shape
    miniflow.Size([1, 10])

    Source: Wang et al., 2022, table 1; `timm.models.pvt_v2`.
    """

    def __init__(
        self, depths: Sequence[int], embed_dims: Sequence[int], num_heads: Sequence[int] = (1, 2, 4, 8),
        sr_ratios: Sequence[int] = (8, 4, 2, 1), mlp_ratios: Sequence[float] = (8, 8, 4, 4), num_classes: int = 1000,
        drop_rate: float = 0.0, proj_drop_rate: float = 0.0, attn_drop_rate: float = 0.0, drop_path_rate: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.patch_embed = OverlapPatchEmbed(3, embed_dims[0], 7, 4)  # (N, H / 4 * W / 4, embed_dims[0])
        rates = iter(np.linspace(0, drop_path_rate, sum(depths)).tolist())
        drops, stages = (proj_drop_rate, attn_drop_rate), []
        for i, (depth, dim) in enumerate(zip(depths, embed_dims, strict=True)):
            downsample = OverlapPatchEmbed(embed_dims[i - 1], dim, 3, 2) if i else None
            sizes = (dim, num_heads[i], sr_ratios[i], mlp_ratios[i])
            stages.append(Stage(downsample, dim, [Block(*sizes, *drops, next(rates)) for _ in range(depth)]))
        self.stages = nn.ModuleList(stages)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(embed_dims[-1], num_classes)
        init_truncated(self, nn.Linear)
        for conv in self.modules():
            if isinstance(conv, nn.Conv2d):  # Kaiming's weights, of what one input channel is used for
                nn.init.normal_(conv.weight, std=math.sqrt(2 * conv.groups / (conv.weight[:, 0].numel())))
                nn.init.zeros_(conv.bias)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        x, size = self.patch_embed(x)
        x = self.stages[0](x, size)
        for stage in self.stages[1:]:
            x = stage(x)
        return self.head(self.head_drop(x.mean((2, 3))))


DIMS, HEADS = (64, 128, 320, 512), (1, 2, 5, 8)


def _variant(name: str, *depths: int, dims: Sequence[int] = DIMS, mlp_ratios: Sequence[int] = (8, 8, 4, 4)) -> Variant:
    options = {"depths": depths, "embed_dims": dims, "num_heads": HEADS, "mlp_ratios": mlp_ratios}
    return Variant(name, PyramidVisionTransformerV2, hub=f"timm/{name}.in1k", **options)


pvt_v2_b0 = _variant("pvt_v2_b0", 2, 2, 2, 2, dims=(32, 64, 160, 256))
pvt_v2_b1 = _variant("pvt_v2_b1", 2, 2, 2, 2)
pvt_v2_b2 = _variant("pvt_v2_b2", 3, 4, 6, 3)
pvt_v2_b3 = _variant("pvt_v2_b3", 3, 4, 18, 3)
pvt_v2_b4 = _variant("pvt_v2_b4", 3, 8, 27, 3)
pvt_v2_b5 = _variant("pvt_v2_b5", 3, 6, 40, 3, mlp_ratios=(4, 4, 4, 4))
