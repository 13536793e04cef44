"""MLP-Mixer, ResMLP and gMLP: patches of an image, mixed by linear layers across patches instead of attention.

Tolstikhin et al., "MLP-Mixer: An all-MLP architecture for vision", 2021; Touvron et al., "ResMLP: Feedforward networks
for image classification with data-efficient training", 2021; Liu et al., "Pay attention to MLPs", 2021. The names and
state-dict keys are timm's.
"""

from __future__ import annotations

from functools import partial

from miniflow import nn
from miniflow.ops.creation import full, ones, zeros
from miniflow.tensor import Tensor
from miniflow.vision.layers import DropPath, GatedMlp, Mlp, PatchEmbed, lecun_normal_
from miniflow.vision.layers.blocks import Factory
from miniflow.vision.models.registry import Variant
from miniflow.vision.models.vision_transformer import LayerNorm


class MixerBlock(nn.Module):
    """x + an MLP of each feature across all patches, then x + an MLP of each patch. MLP-Mixer, section 2.

    Args:
        dim, seq_len: features of a patch, and how many patches there are.
        mlp_ratio: 4 for ResMLP, 6 for gMLP: features inside the MLP of a patch, for each of `dim`.
        drop, drop_path: dropout in MLPs, and the probability with which nothing is added to a sample.

    Shapes: (N, seq_len, dim) -> the same.
    """

    def __init__(self, dim: int, seq_len: int, mlp_ratio: float = 4, drop: float = 0.0, drop_path: float = 0.0):
        super().__init__()
        self.norm1 = LayerNorm(dim)
        self.mlp_tokens = Mlp(seq_len, dim // 2, drop=drop)
        self.drop_path = DropPath(drop_path)
        self.norm2 = LayerNorm(dim)
        self.mlp_channels = Mlp(dim, int(dim * mlp_ratio), drop=drop)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        return x + self.drop_path(self.mlp_channels(self.norm2(x)))


class Affine(nn.Module):
    """alpha * x + beta, of each feature: what ResMLP has for a normalization."""

    def __init__(self, dim: int):
        super().__init__()
        self.alpha, self.beta = nn.Parameter(ones(1, 1, dim)), nn.Parameter(zeros(1, 1, dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha * x + self.beta


class ResBlock(nn.Module):
    """x + a linear function of each feature across all patches, then x + an MLP of each patch. ResMLP, section 2.

    Args:
        dim, seq_len, mlp_ratio, drop, drop_path: as in `MixerBlock`.
        init_values: what is added is multiplied by this at first.
    """

    def __init__(
        self, dim: int, seq_len: int, mlp_ratio: float = 4, drop: float = 0.0, drop_path: float = 0.0,
        init_values: float = 1e-4,
    ):  # fmt: skip
        super().__init__()
        self.norm1 = Affine(dim)
        self.linear_tokens = nn.Linear(seq_len, seq_len)
        self.drop_path = DropPath(drop_path)
        self.norm2 = Affine(dim)
        self.mlp_channels = Mlp(dim, int(dim * mlp_ratio), drop=drop)
        self.ls1, self.ls2 = (nn.Parameter(full((dim,), init_values)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path(self.ls1 * self.linear_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        return x + self.drop_path(self.ls2 * self.mlp_channels(self.norm2(x)))


class SpatialGatingUnit(nn.Module):
    """Half of the features, times a linear function across all patches of the other half. gMLP, section 2.1.

    Shapes: (N, seq_len, dim) -> (N, seq_len, dim / 2).
    """

    def __init__(self, dim: int, seq_len: int):
        super().__init__()
        self.norm = nn.LayerNorm(dim // 2)
        self.proj = nn.Linear(seq_len, seq_len)

    def forward(self, x: Tensor) -> Tensor:
        u, v = x.chunk(2, dim=-1)
        return u * self.proj(self.norm(v).transpose(1, 2)).transpose(1, 2)


class SpatialGatingBlock(nn.Module):
    """x + an MLP of each patch with a gate across all patches. gMLP, section 2. The arguments are `MixerBlock`'s."""

    def __init__(self, dim: int, seq_len: int, mlp_ratio: float = 6, drop: float = 0.0, drop_path: float = 0.0):
        super().__init__()
        gate = partial(SpatialGatingUnit, seq_len=seq_len)
        self.norm = LayerNorm(dim)
        self.mlp_channels = GatedMlp(dim, int(dim * mlp_ratio), gate_layer=gate, drop=drop)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop_path(self.mlp_channels(self.norm(x)))


class MlpMixer(nn.Module):
    """Patches as tokens, blocks, the mean, and a classifier.

    Args:
        patch_size, num_blocks, embed_dim: the side of a patch, how many blocks there are, and features of a patch.
        block_layer, norm_layer: make a block, and the last normalization.
        mlp_ratio: of the blocks.
        img_size: the height and width of images.
        num_classes: how many logits to return.
        drop_rate, proj_drop_rate, drop_path_rate: dropout before the classifier; `drop` and `drop_path` of the blocks.

    Raises:
        ShapeError: for images of another size.

    >>> import miniflow as flow
    >>> MlpMixer(16, 1, 8, img_size=32, num_classes=10)(flow.zeros(1, 3, 32, 32)).shape
    miniflow.Size([1, 10])

    Source: Tolstikhin et al., 2021, figure 1; `timm.models.mlp_mixer`.
    """

    def __init__(
        self, patch_size: int, num_blocks: int, embed_dim: int, block_layer: Factory = MixerBlock,
        mlp_ratio: float = 4, norm_layer: Factory = LayerNorm, img_size: int = 224, num_classes: int = 1000,
        drop_rate: float = 0.0, proj_drop_rate: float = 0.0, drop_path_rate: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        self.stem = PatchEmbed(img_size, patch_size, embed_dim=embed_dim)
        options = (embed_dim, self.stem.num_patches, mlp_ratio, proj_drop_rate, drop_path_rate)
        self.blocks = nn.Sequential(*(block_layer(*options) for _ in range(num_blocks)))
        self.norm = norm_layer(embed_dim)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(embed_dim, num_classes)
        lecun_normal_(self.stem.proj.weight)
        nn.init.zeros_(self.stem.proj.bias)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6 if "mlp" in name else 0.0)
            if name.endswith("gate.proj"):  # a gate is open at first
                nn.init.normal_(module.weight, std=1e-6)
                nn.init.ones_(module.bias)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, img_size, img_size)."""
        x = self.norm(self.blocks(self.stem(x)))  # (N, patches, embed_dim)
        return self.head(self.head_drop(x.mean(1)))


def _resmlp(name: str, patch_size: int, num_blocks: int, embed_dim: int, init_values: float) -> Variant:
    options = {"block_layer": partial(ResBlock, init_values=init_values), "norm_layer": Affine}
    return Variant(name, MlpMixer, patch_size, num_blocks, embed_dim, hub=f"timm/{name}.fb_in1k", **options)


GMLP = {"block_layer": SpatialGatingBlock, "mlp_ratio": 6}

mixer_s32_224 = Variant("mixer_s32_224", MlpMixer, 32, 8, 512, source="timm")
mixer_s16_224 = Variant("mixer_s16_224", MlpMixer, 16, 8, 512, source="timm")
mixer_b32_224 = Variant("mixer_b32_224", MlpMixer, 32, 12, 768, source="timm")
mixer_b16_224 = Variant("mixer_b16_224", MlpMixer, 16, 12, 768, hub="timm/mixer_b16_224.goog_in21k_ft_in1k")
mixer_l32_224 = Variant("mixer_l32_224", MlpMixer, 32, 24, 1024, source="timm")
mixer_l16_224 = Variant("mixer_l16_224", MlpMixer, 16, 24, 1024, hub="timm/mixer_l16_224.goog_in21k_ft_in1k")
resmlp_12_224 = _resmlp("resmlp_12_224", 16, 12, 384, 1e-4)
resmlp_24_224 = _resmlp("resmlp_24_224", 16, 24, 384, 1e-5)
resmlp_36_224 = _resmlp("resmlp_36_224", 16, 36, 384, 1e-6)
resmlp_big_24_224 = _resmlp("resmlp_big_24_224", 8, 24, 768, 1e-6)
gmlp_ti16_224 = Variant("gmlp_ti16_224", MlpMixer, 16, 30, 128, source="timm", **GMLP)
gmlp_s16_224 = Variant("gmlp_s16_224", MlpMixer, 16, 30, 256, hub="timm/gmlp_s16_224.ra3_in1k", **GMLP)
gmlp_b16_224 = Variant("gmlp_b16_224", MlpMixer, 16, 30, 512, source="timm", **GMLP)
