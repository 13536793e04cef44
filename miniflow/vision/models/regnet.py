"""RegNet: ResNeXt blocks whose widths follow a line, of which four numbers are the whole design.

Radosavovic, Kosaraju, Girshick, He and Dollár, "Designing network design spaces", 2020.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.layers import SqueezeExcitation, init_convolutions, init_linears
from miniflow.vision.layers.blocks import Conv2dNormActivation, Factory, make_divisible
from miniflow.vision.models.registry import Variant


def stages(depth: int, w_0: int, w_a: float, w_m: float) -> list[tuple[int, int]]:
    """The width and the number of blocks of each stage.

    Block j would be u_j = w_0 + w_a j channels wide. It gets the nearest w_0 w_m^s with an integer s, and of that the
    nearest multiple of 8, by which successive blocks are equally wide: a stage.

    >>> stages(16, 48, 27.89, 2.09)
    [(48, 1), (104, 3), (208, 6), (440, 6)]

    Source: Radosavovic et al., 2020, equations 2 to 4.
    """
    u = w_0 + w_a * np.arange(depth)
    s = np.round(np.log(u / w_0) / np.log(w_m))
    widths, depths = np.unique(8 * np.round(w_0 * w_m**s / 8), return_counts=True)
    return [(int(width), int(number)) for width, number in zip(widths, depths, strict=True)]


class Block(nn.Module):
    """relu(x + f(x)), f of a 1x1, a grouped 3x3 and a 1x1 convolution, with as many channels inside as outside.

    Args:
        inputs, outputs: channels.
        stride: of the 3x3 convolution.
        group_width: channels of each group.
        se_ratio: squeeze and excitation before the last convolution has se_ratio * inputs channels; None: without.
        norm_layer, activation: what makes them.
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, group_width: int, se_ratio: float | None, norm_layer: Factory,
        activation: Factory,
    ):  # fmt: skip
        super().__init__()
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=activation)
        self.proj = None
        if inputs != outputs or stride != 1:
            self.proj = conv(inputs, outputs, 1, stride, activation_layer=None)
        layers = {"a": conv(inputs, outputs, 1), "b": conv(outputs, outputs, 3, stride, groups=outputs // group_width)}
        if se_ratio is not None:
            layers["se"] = SqueezeExcitation(outputs, round(se_ratio * inputs), activation)
        self.f = nn.Sequential({**layers, "c": conv(outputs, outputs, 1, activation_layer=None)})
        self.activation = activation(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.proj is None else self.proj(x)
        return self.activation(identity + self.f(x))


class RegNet(nn.Module):
    """A convolution, stages of residual blocks, each at half the size of the one before, and a linear classifier.

    Args:
        depth: number of blocks.
        w_0, w_a, w_m: of the line that widths follow, see `stages`.
        group_width: channels of each group.
        se_ratio: of squeeze and excitation, which RegNetY has and RegNetX has not.
        num_classes: how many logits to return.
        stem_width: channels of the first convolution.
        norm_layer, activation: what makes them.

    >>> import miniflow as flow
    >>> RegNet(4, 16, 8.0, 2.0, group_width=8, num_classes=10)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 10])

    Source: Radosavovic et al., 2020, section 4 and tables 7 and 8; `torchvision.models.regnet`.
    """

    def __init__(
        self, depth: int, w_0: int, w_a: float, w_m: float, group_width: int, se_ratio: float | None = None,
        num_classes: int = 1000, stem_width: int = 32, norm_layer: Factory = nn.BatchNorm2d,
        activation: Factory = nn.ReLU,
    ):  # fmt: skip
        super().__init__()
        self.stem = Conv2dNormActivation(3, stem_width, 3, 2, norm_layer=norm_layer, activation_layer=activation)
        channels, trunk = stem_width, {}
        for i, (width, number) in enumerate(stages(depth, w_0, w_a, w_m), 1):
            group = min(group_width, width)
            width, blocks = make_divisible(width, group), {}
            for j in range(number):
                stride = 2 if j == 0 else 1
                blocks[f"block{i}-{j}"] = Block(channels, width, stride, group, se_ratio, norm_layer, activation)
                channels = width
            trunk[f"block{i}"] = nn.Sequential(blocks)
        self.trunk_output = nn.Sequential(trunk)  # (N, channels, H / 32, W / 32)
        self.fc = nn.Linear(channels, num_classes)
        init_convolutions(self)
        init_linears(self)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        return self.fc(self.trunk_output(self.stem(x)).mean((2, 3)))


# depth, w_0, w_a, w_m, group width
regnet_x_400mf = Variant("regnet_x_400mf", RegNet, 22, 24, 24.48, 2.54, 16)
regnet_x_800mf = Variant("regnet_x_800mf", RegNet, 16, 56, 35.73, 2.28, 16)
regnet_x_1_6gf = Variant("regnet_x_1_6gf", RegNet, 18, 80, 34.01, 2.25, 24)
regnet_x_3_2gf = Variant("regnet_x_3_2gf", RegNet, 25, 88, 26.31, 2.25, 48)
regnet_x_8gf = Variant("regnet_x_8gf", RegNet, 23, 80, 49.56, 2.88, 120)
regnet_x_16gf = Variant("regnet_x_16gf", RegNet, 22, 216, 55.59, 2.1, 128)
regnet_x_32gf = Variant("regnet_x_32gf", RegNet, 23, 320, 69.86, 2.0, 168)
regnet_y_400mf = Variant("regnet_y_400mf", RegNet, 16, 48, 27.89, 2.09, 8, se_ratio=0.25)
regnet_y_800mf = Variant("regnet_y_800mf", RegNet, 14, 56, 38.84, 2.4, 16, se_ratio=0.25)
regnet_y_1_6gf = Variant("regnet_y_1_6gf", RegNet, 27, 48, 20.71, 2.65, 24, se_ratio=0.25)
regnet_y_3_2gf = Variant("regnet_y_3_2gf", RegNet, 21, 80, 42.63, 2.66, 24, se_ratio=0.25)
regnet_y_8gf = Variant("regnet_y_8gf", RegNet, 17, 192, 76.82, 2.19, 56, se_ratio=0.25)
regnet_y_16gf = Variant("regnet_y_16gf", RegNet, 18, 200, 106.23, 2.48, 112, se_ratio=0.25)
regnet_y_32gf = Variant("regnet_y_32gf", RegNet, 20, 232, 115.89, 2.53, 232, se_ratio=0.25)
regnet_y_128gf = Variant("regnet_y_128gf", RegNet, 27, 456, 160.83, 2.52, 264, se_ratio=0.25)
