"""DeiT: the transformer of ViT, trained on a million images only, with a second token that learns from a teacher.

Touvron et al., "Training data-efficient image transformers & distillation through attention", 2021. The names and
state-dict keys are timm's; those of the networks without the second token are also those of timm's `vit_*` of equal
size.
"""

from __future__ import annotations

from miniflow import nn
from miniflow.ops.creation import empty
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.layers import Attention, DropPath, Mlp, PatchEmbed, init_truncated
from miniflow.vision.models.registry import Variant
from miniflow.vision.models.vision_transformer import LayerNorm


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), both of which may be dropped for a sample.

    Args:
        dim, num_heads: features of a token, and heads of attention.
        mlp_ratio: features inside the MLP for each of a token.
        proj_drop, attn_drop, drop_path: dropout of what both return, of the weights of attention, and of either.

    Shapes: (N, tokens, dim) -> the same.
    """

    def __init__(
        self, dim: int, num_heads: int, mlp_ratio: float = 4.0, proj_drop: float = 0.0, attn_drop: float = 0.0,
        drop_path: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.norm1 = LayerNorm(dim)
        self.attn = Attention(dim, num_heads, True, attn_drop, proj_drop)
        self.norm2 = LayerNorm(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), drop=proj_drop)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class DeiT(nn.Module):
    """Patches, after a class token and a distillation token, through blocks; a classifier of each of the two tokens.

    Args:
        img_size, patch_size: the height and width of images, and of patches.
        num_classes: how many logits to return.
        embed_dim, depth, num_heads, mlp_ratio: features of a token, how many blocks there are, and their sizes.
        drop_rate, proj_drop_rate, attn_drop_rate: dropout before the classifier, in the blocks, and of the weights of
            attention.
        drop_path_rate: of the last block; of the others it is less the earlier they are.
        distilled: whether there is a distillation token, with a classifier of its own.

    Attributes:
        distilled_training: whether to return the logits of both tokens in training mode, those of the second for the
            loss with the teacher's answers; else their mean, as in evaluation.

    Raises:
        ShapeError: for images of another size.

    >>> import miniflow as flow
    >>> model = DeiT(32, 16, num_classes=10, embed_dim=8, depth=1, num_heads=2, distilled=True)
    >>> model.distilled_training = True
    >>> [logits.shape for logits in model(flow.zeros(1, 3, 32, 32))]
    [miniflow.Size([1, 10]), miniflow.Size([1, 10])]

    Source: Touvron et al., 2021, section 4; `timm.models.deit`.
    """

    def __init__(
        self, img_size: int = 224, patch_size: int = 16, num_classes: int = 1000, embed_dim: int = 768, depth: int = 12,
        num_heads: int = 12, mlp_ratio: float = 4.0, drop_rate: float = 0.0, proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0, drop_path_rate: float = 0.0, distilled: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.patch_embed = PatchEmbed(img_size, patch_size, embed_dim=embed_dim)
        self.cls_token = nn.Parameter(nn.init.normal_(empty(1, 1, embed_dim), std=1e-6))
        self.dist_token = nn.Parameter(nn.init.normal_(empty(1, 1, embed_dim), std=0.02)) if distilled else None
        self.tokens = 2 if distilled else 1
        positions = empty(1, self.tokens + self.patch_embed.num_patches, embed_dim)
        self.pos_embed = nn.Parameter(nn.init.normal_(positions, std=0.02))
        rates = [drop_path_rate * i / max(depth - 1, 1) for i in range(depth)]
        options = (embed_dim, num_heads, mlp_ratio, proj_drop_rate, attn_drop_rate)
        self.blocks = nn.Sequential(*(Block(*options, rate) for rate in rates))
        self.norm = LayerNorm(embed_dim)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(embed_dim, num_classes)
        self.head_dist = nn.Linear(embed_dim, num_classes) if distilled else None
        self.distilled_training = False
        init_truncated(self, nn.Linear)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The logits (N, num_classes) of images (N, 3, img_size, img_size), or those of both tokens."""
        x = self.patch_embed(x)  # (N, patches, embed_dim)
        tokens = [self.cls_token, self.dist_token][: self.tokens]
        x = cat([*(token.expand(len(x), -1, -1) for token in tokens), x], 1)
        x = self.head_drop(self.norm(self.blocks(x + self.pos_embed))[:, : self.tokens])
        logits = self.head(x[:, 0])
        if self.head_dist is None:
            return logits
        distilled = self.head_dist(x[:, 1])
        return (logits, distilled) if self.distilled_training and self.training else (logits + distilled) / 2


def _variant(name: str, embed_dim: int, num_heads: int, img_size: int = 224) -> Variant:
    options = {"img_size": img_size, "embed_dim": embed_dim, "num_heads": num_heads, "distilled": "distilled" in name}
    return Variant(name, DeiT, hub=f"timm/{name}.fb_in1k", **options)


deit_tiny_patch16_224 = _variant("deit_tiny_patch16_224", 192, 3)
deit_small_patch16_224 = _variant("deit_small_patch16_224", 384, 6)
deit_base_patch16_224 = _variant("deit_base_patch16_224", 768, 12)
deit_base_patch16_384 = _variant("deit_base_patch16_384", 768, 12, 384)
deit_tiny_distilled_patch16_224 = _variant("deit_tiny_distilled_patch16_224", 192, 3)
deit_small_distilled_patch16_224 = _variant("deit_small_distilled_patch16_224", 384, 6)
deit_base_distilled_patch16_224 = _variant("deit_base_distilled_patch16_224", 768, 12)
deit_base_distilled_patch16_384 = _variant("deit_base_distilled_patch16_384", 768, 12, 384)
