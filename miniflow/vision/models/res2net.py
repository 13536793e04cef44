"""Res2Net and Res2NeXt: residual blocks that see several scales at once.

Gao et al., "Res2Net: A new multi-scale backbone architecture", 2019. The names and state-dict keys are timm's; `26w_4s`
is a width of 26 channels and 4 scales.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from miniflow import nn
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.models.registry import Variant
from miniflow.vision.models.resnet import Norm, ResNet, conv1x1, conv3x3


class Bottle2neck(nn.Module):
    """A bottleneck of which the 3x3 convolution is one for each group of channels but the last, each on the last's too.

    y_1 = K_1(x_1), y_i = K_i(x_i + y_{i-1}), y_s = x_s; a block that makes images smaller adds no y_{i-1}.

    Args:
        inplanes, planes, stride, downsample, groups, base_width, dilation, norm_layer: as in `resnet.Bottleneck`.
        scale: s, into how many groups of channels x is split.

    >>> import miniflow as flow
    >>> Bottle2neck(32, 8)(flow.zeros(1, 32, 4, 4)).shape
    miniflow.Size([1, 32, 4, 4])
    """

    expansion = 4

    def __init__(
        self, inplanes: int, planes: int, stride: int = 1, downsample: nn.Module | None = None, groups: int = 1,
        base_width: int = 26, dilation: int = 1, norm_layer: Norm = nn.BatchNorm2d, scale: int = 4,
    ):  # fmt: skip
        super().__init__()
        self.width = width = int(planes * base_width / 64) * groups
        self.conv1 = conv1x1(inplanes, width * scale)
        self.bn1 = norm_layer(width * scale)
        self.convs = nn.ModuleList(conv3x3(width, width, stride, groups, dilation) for _ in range(scale - 1))
        self.bns = nn.ModuleList(norm_layer(width) for _ in range(scale - 1))
        self.pool = None if downsample is None else nn.AvgPool2d(3, stride, padding=1)
        self.conv3 = conv1x1(width * scale, planes * self.expansion)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        *xs, last = self.relu(self.bn1(self.conv1(x))).split(self.width, 1)
        ys: list[Tensor] = []
        for x_i, conv, bn in zip(xs, self.convs, self.bns, strict=True):
            if ys and self.pool is None:
                x_i = x_i + ys[-1]
            ys.append(self.relu(bn(conv(x_i))))
        ys.append(last if self.pool is None else self.pool(last))
        x = self.bn3(self.conv3(cat(ys, 1)))
        return self.relu(x + identity)


class Res2Net(ResNet):
    """A ResNet of `Bottle2neck` blocks.

    Args:
        layers: how many blocks there are in each stage.
        scale: into how many groups of channels a block splits its input.
        zero_init_residual: let each block begin as the identity: the scale of its last normalization is zero.
        **options: of `ResNet`, such as `num_classes`; `width_per_group` and `groups` are those of the blocks.

    Source: Gao et al., 2019, section 3; `timm.models.res2net`.
    """

    def __init__(self, layers: Sequence[int], scale: int = 4, zero_init_residual: bool = True, **options: Any):
        block: Any = partial(Bottle2neck, scale=scale)
        block.expansion = Bottle2neck.expansion
        super().__init__(block, layers, **options)
        for module in self.modules():
            if zero_init_residual and isinstance(module, Bottle2neck):
                nn.init.zeros_(module.bn3.weight)


def _variant(name: str, width: int, scale: int, layers: Sequence[int] = (3, 4, 6, 3), groups: int = 1) -> Variant:
    options = {"layers": layers, "scale": scale, "width_per_group": width, "groups": groups}
    return Variant(name, Res2Net, hub=f"timm/{name}.in1k", **options)


res2net50_14w_8s = _variant("res2net50_14w_8s", 14, 8)
res2net50_26w_4s = _variant("res2net50_26w_4s", 26, 4)
res2net50_26w_6s = _variant("res2net50_26w_6s", 26, 6)
res2net50_26w_8s = _variant("res2net50_26w_8s", 26, 8)
res2net50_48w_2s = _variant("res2net50_48w_2s", 48, 2)
res2net101_26w_4s = _variant("res2net101_26w_4s", 26, 4, (3, 4, 23, 3))
res2next50 = _variant("res2next50", 4, 4, groups=8)
