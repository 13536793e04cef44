"""ConvNeXt: a ResNet whose design follows that of transformers, with convolutions of 7 x 7 for attention.

Liu et al., "A ConvNet for the 2020s", 2022. The names and state-dict keys are torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miniflow import nn
from miniflow.ops.creation import full
from miniflow.tensor import Tensor
from miniflow.vision.layers import LayerNorm2d, Permute, StochasticDepth, init_truncated
from miniflow.vision.models.registry import Variant
from miniflow.vision.models.vision_transformer import LayerNorm


class CNBlock(nn.Module):
    """x + layer_scale * (depthwise 7x7 convolution, normalization, and an MLP of each pixel's channels).

    Args:
        dim: channels.
        layer_scale: what each channel of the sum is multiplied by at first.
        stochastic_depth_prob: with which nothing is added to a sample.

    Shapes: (N, dim, H, W) -> the same.
    """

    def __init__(self, dim: int, layer_scale: float, stochastic_depth_prob: float):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim),
            Permute((0, 2, 3, 1)),  # (N, H, W, dim)
            LayerNorm(dim),
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
            Permute((0, 3, 1, 2)),
        )
        self.layer_scale = nn.Parameter(full((dim, 1, 1), layer_scale))
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, x: Tensor) -> Tensor:
        return x + self.stochastic_depth(self.layer_scale * self.block(x))


class ConvNeXt(nn.Module):
    """Patches of 4 x 4 pixels, four stages of blocks with half the height and width each, the mean, a classifier.

    Args:
        dims, depths: channels and how many blocks there are, for each stage.
        stochastic_depth_prob: of the last block; of the others it is less the earlier they are.
        layer_scale: of the blocks.
        num_classes: how many logits to return.

    >>> import miniflow as flow
    >>> ConvNeXt((4, 8, 16, 32), (1, 1, 1, 1), num_classes=10)(flow.zeros(1, 3, 32, 32)).shape
    miniflow.Size([1, 10])

    Source: Liu et al., 2022, section 2; `torchvision.models.ConvNeXt`.
    """

    def __init__(
        self, dims: Sequence[int], depths: Sequence[int], stochastic_depth_prob: float = 0.0,
        layer_scale: float = 1e-6, num_classes: int = 1000,
    ):  # fmt: skip
        super().__init__()
        rates = iter(np.linspace(0, stochastic_depth_prob, sum(depths)).tolist())
        stages: list[nn.Module] = [nn.Sequential(nn.Conv2d(3, dims[0], 4, stride=4), LayerNorm2d(dims[0]))]
        for i, (dim, depth) in enumerate(zip(dims, depths, strict=True)):
            if i:
                stages.append(nn.Sequential(LayerNorm2d(dims[i - 1]), nn.Conv2d(dims[i - 1], dim, 2, stride=2)))
            stages.append(nn.Sequential(*(CNBlock(dim, layer_scale, next(rates)) for _ in range(depth))))
        self.features = nn.Sequential(*stages)  # (N, dims[-1], H / 32, W / 32)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(LayerNorm2d(dims[-1]), nn.Flatten(1), nn.Linear(dims[-1], num_classes))
        init_truncated(self, nn.Conv2d, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        return self.classifier(self.avgpool(self.features(x)))


DIMS, DEEP = (96, 192, 384, 768), (3, 3, 27, 3)

convnext_tiny = Variant("convnext_tiny", ConvNeXt, DIMS, (3, 3, 9, 3), stochastic_depth_prob=0.1)
convnext_small = Variant("convnext_small", ConvNeXt, DIMS, DEEP, stochastic_depth_prob=0.4)
convnext_base = Variant("convnext_base", ConvNeXt, (128, 256, 512, 1024), DEEP, stochastic_depth_prob=0.5)
convnext_large = Variant("convnext_large", ConvNeXt, (192, 384, 768, 1536), DEEP, stochastic_depth_prob=0.5)
