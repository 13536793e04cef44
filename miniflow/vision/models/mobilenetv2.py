"""MobileNet v2: residual blocks that are narrow outside and wide inside, where each channel is convolved by itself.

Sandler et al., "MobileNetV2: Inverted residuals and linear bottlenecks", 2018. Its block is also that of MobileNet v3,
MNASNet and EfficientNet.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.layers import (
    Conv2dNormActivation,
    StochasticDepth,
    init_convolutions,
    init_linears,
    make_divisible,
)
from miniflow.vision.layers.blocks import Factory
from miniflow.vision.models.registry import Variant


class InvertedResidual(nn.Module):
    """x + project(excite(depthwise(expand(x)))), without the sum where the shape changes.

    `expand` and `project` are 1x1 convolutions, `depthwise` convolves each channel by itself, and a normalization
    follows each of them. No activation follows `project`: on few channels ReLU would lose information.

    Args:
        inputs, expanded, outputs: channels; `expanded` as many as `inputs`: there is no `expand`.
        kernel_size, stride, dilation: of `depthwise`; a dilation above 1 stands in for the stride.
        norm_layer, activation_layer: what makes them.
        excite: squeeze and excitation of the expanded channels, or None.
        drop: with what probability training leaves only x of a sample, which is stochastic depth.
        branch: the name in the state dict. In "block" convolution and normalization are children of a child; in "conv"
            (MobileNet v2) those of `project` are direct children, in "layers" (MNASNet) those of all three.

    Shapes: (N, inputs, H, W) -> (N, outputs, H / stride, W / stride).

    Source: Sandler et al., 2018, section 3.4; Howard et al., "Searching for MobileNetV3", 2019, figure 4.
    """

    def __init__(
        self, inputs: int, expanded: int, outputs: int, kernel_size: int = 3, stride: int = 1, dilation: int = 1,
        norm_layer: Factory = nn.BatchNorm2d, activation_layer: Factory = nn.ReLU6, excite: nn.Module | None = None,
        drop: float = 0.0, branch: str = "block",
    ):  # fmt: skip
        super().__init__()
        self.out_channels, self.stride, self.branch = outputs, stride, branch
        self.use_res_connect = stride == 1 and inputs == outputs
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=activation_layer)
        layers: list[nn.Module] = [] if expanded == inputs else [conv(inputs, expanded, 1)]
        step = {"stride": stride} if dilation == 1 else {"dilation": dilation}
        layers.append(conv(expanded, expanded, kernel_size, groups=expanded, **step))
        if excite is not None:
            layers.append(excite)
        layers.append(conv(expanded, outputs, 1, activation_layer=None))
        nested = {"block": len(layers), "conv": len(layers) - 1, "layers": 0}[branch]
        direct = [child for layer in layers[nested:] for child in layer]
        self.add_module(branch, nn.Sequential(*layers[:nested], *direct))
        self.stochastic_depth = StochasticDepth(drop, "row")

    def forward(self, x: Tensor) -> Tensor:
        y = getattr(self, self.branch)(x)
        return x + self.stochastic_depth(y) if self.use_res_connect else y


# t: expanded / inputs, c: outputs, n: blocks, s: stride of the first
TABLE_2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class MobileNetV2(nn.Module):
    """A convolution, 17 inverted residuals, a 1x1 convolution, and a linear classifier.

    Args:
        num_classes: how many logits to return.
        width_mult: all channels are multiplied by this.
        inverted_residual_setting: rows (t, c, n, s) of the paper's table 2.
        round_nearest: channels are a multiple of this.
        norm_layer: what makes a normalization from a number of channels.
        dropout: probability, before the classifier.

    >>> import miniflow as flow
    >>> MobileNetV2(num_classes=10, width_mult=0.25)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 10])

    Source: Sandler et al., 2018, table 2; `torchvision.models.mobilenetv2`.
    """

    def __init__(
        self, num_classes: int = 1000, width_mult: float = 1.0,
        inverted_residual_setting: Sequence[Sequence[int]] = TABLE_2, round_nearest: int = 8,
        norm_layer: Factory = nn.BatchNorm2d, dropout: float = 0.2,
    ):  # fmt: skip
        super().__init__()
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.ReLU6)
        channels = make_divisible(32 * width_mult, round_nearest)
        layers: list[nn.Module] = [conv(3, channels, stride=2)]
        for t, c, n, s in inverted_residual_setting:
            outputs = make_divisible(c * width_mult, round_nearest)
            for i in range(n):
                sizes, stride = (channels, channels * t, outputs), s if i == 0 else 1
                layers.append(InvertedResidual(*sizes, stride=stride, norm_layer=norm_layer, branch="conv"))
                channels = outputs
        self.last_channel = make_divisible(1280 * max(1.0, width_mult), round_nearest)
        self.features = nn.Sequential(*layers, conv(channels, self.last_channel, 1))  # (N, 1280, H / 32, W / 32)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes))
        init_convolutions(self)
        init_linears(self)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        return self.classifier(self.features(x).mean((2, 3)))


mobilenet_v2 = Variant("mobilenet_v2", MobileNetV2)
