"""MobileNet v3: inverted residuals with squeeze and excitation and with hard swish, found by search.

Howard et al., "Searching for MobileNetV3", 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.layers import SqueezeExcitation, init_convolutions, init_linears
from miniflow.vision.layers.blocks import Conv2dNormActivation, Factory, make_divisible
from miniflow.vision.models.mobilenetv2 import InvertedResidual
from miniflow.vision.models.registry import Variant

RE, HS = nn.ReLU, nn.Hardswish
Row = tuple[int, int, int, bool, type[nn.Module], int]
# kernel size, expanded channels, outputs, squeeze and excitation, nonlinearity, stride; a line for each size and width
LARGE: Sequence[Row] = (
    (3, 16, 16, False, RE, 1),
    (3, 64, 24, False, RE, 2), (3, 72, 24, False, RE, 1),
    (5, 72, 40, True, RE, 2), (5, 120, 40, True, RE, 1), (5, 120, 40, True, RE, 1),
    (3, 240, 80, False, HS, 2), (3, 200, 80, False, HS, 1), (3, 184, 80, False, HS, 1), (3, 184, 80, False, HS, 1),
    (3, 480, 112, True, HS, 1), (3, 672, 112, True, HS, 1),
    (5, 672, 160, True, HS, 2), (5, 960, 160, True, HS, 1), (5, 960, 160, True, HS, 1),
)  # fmt: skip
SMALL: Sequence[Row] = (
    (3, 16, 16, True, RE, 2),
    (3, 72, 24, False, RE, 2), (3, 88, 24, False, RE, 1),
    (5, 96, 40, True, HS, 2), (5, 240, 40, True, HS, 1), (5, 240, 40, True, HS, 1),
    (5, 120, 48, True, HS, 1), (5, 144, 48, True, HS, 1),
    (5, 288, 96, True, HS, 2), (5, 576, 96, True, HS, 1), (5, 576, 96, True, HS, 1),
)  # fmt: skip


class MobileNetV3(nn.Module):
    """A convolution, inverted residuals, a 1x1 convolution, and two linear layers.

    Args:
        table: rows of the paper's table 1 (large) or 2 (small).
        last_channel: features between the two linear layers.
        num_classes: how many logits to return.
        width_mult: all channels are multiplied by this.
        reduced_tail: halve the channels from the last stride on, as detection and segmentation do.
        dilated: dilate the kernels from the last stride on instead of making images smaller, as segmentation does.
        norm_layer: what makes a normalization from a number of channels.
        dropout: probability, before the last layer.

    >>> import miniflow as flow
    >>> MobileNetV3(SMALL, 1024, num_classes=10, width_mult=0.25)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 10])

    Source: Howard et al., 2019, tables 1 and 2, and section 6.3; `torchvision.models.mobilenetv3`.
    """

    def __init__(
        self, table: Sequence[Row], last_channel: int, num_classes: int = 1000, width_mult: float = 1.0,
        reduced_tail: bool = False, dilated: bool = False, norm_layer: Factory | None = None, dropout: float = 0.2,
    ):  # fmt: skip
        super().__init__()
        norm_layer = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=HS)
        tail = max(i for i, row in enumerate(table) if row[-1] == 2)
        half = 2 if reduced_tail else 1
        channels = make_divisible(16 * width_mult)
        layers: list[nn.Module] = [conv(3, channels, stride=2)]
        for i, (kernel_size, expanded, outputs, excite, nonlinearity, stride) in enumerate(table):
            expanded = make_divisible(expanded // (half if i > tail else 1) * width_mult)
            outputs = make_divisible(outputs // (half if i >= tail else 1) * width_mult)
            squeeze = SqueezeExcitation(expanded, make_divisible(expanded // 4), scale_activation=nn.Hardsigmoid)
            sizes = (channels, expanded, outputs, kernel_size, stride, 2 if dilated and i >= tail else 1)
            layers.append(InvertedResidual(*sizes, norm_layer, nonlinearity, squeeze if excite else None))
            channels = outputs
        self.features = nn.Sequential(*layers, conv(channels, 6 * channels, 1))  # (N, 960 or 576, H / 32, W / 32)
        last_channel = make_divisible(last_channel // half * width_mult)
        self.classifier = nn.Sequential(
            nn.Linear(6 * channels, last_channel), HS(inplace=True), nn.Dropout(dropout),
            nn.Linear(last_channel, num_classes),
        )  # fmt: skip
        init_convolutions(self)
        init_linears(self)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        return self.classifier(self.features(x).mean((2, 3)))


mobilenet_v3_large = Variant("mobilenet_v3_large", MobileNetV3, LARGE, 1280)
mobilenet_v3_small = Variant("mobilenet_v3_small", MobileNetV3, SMALL, 1024)
