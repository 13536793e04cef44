"""MNASNet: inverted residuals whose kernels and widths were searched for accuracy and speed on a phone.

Tan et al., "MnasNet: Platform-aware neural architecture search for mobile", 2018.
"""

from __future__ import annotations

from functools import partial

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.layers import Conv2dNormActivation, init_convolutions, make_divisible
from miniflow.vision.models.mobilenetv2 import InvertedResidual
from miniflow.vision.models.registry import Variant

# expanded / inputs, kernel size, outputs, blocks, stride of the first
B1 = ((3, 3, 24, 3, 2), (3, 5, 40, 3, 2), (6, 5, 80, 3, 2), (6, 3, 96, 2, 1), (6, 5, 192, 4, 2), (6, 3, 320, 1, 1))


class MNASNet(nn.Module):
    """A convolution, a depthwise separable one, inverted residuals, a 1x1 convolution, and a linear classifier.

    Args:
        alpha: all channels but the last 1280 are multiplied by this.
        num_classes: how many logits to return.
        dropout: probability, before the classifier.

    >>> import miniflow as flow
    >>> MNASNet(0.25, num_classes=10)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 10])

    Source: Tan et al., 2018, MnasNet-B1; `torchvision.models.mnasnet`.
    """

    def __init__(self, alpha: float, num_classes: int = 1000, dropout: float = 0.2):
        super().__init__()
        norm = partial(nn.BatchNorm2d, momentum=1 - 0.9997)
        conv = partial(Conv2dNormActivation, norm_layer=norm)
        first, channels = make_divisible(32 * alpha), make_divisible(16 * alpha)
        layers = [*conv(3, first, 3, stride=2), *conv(first, first, 3, groups=first)]
        layers += conv(first, channels, 1, activation_layer=None)
        for t, kernel_size, outputs, repeats, stride in B1:
            outputs = make_divisible(outputs * alpha)
            blocks = []
            for i in range(repeats):
                sizes = (channels, channels * t, outputs, kernel_size, stride if i == 0 else 1)
                blocks.append(InvertedResidual(*sizes, norm_layer=norm, activation_layer=nn.ReLU, branch="layers"))
                channels = outputs
            layers.append(nn.Sequential(*blocks))
        self.layers = nn.Sequential(*layers, *conv(channels, 1280, 1))  # (N, 1280, H / 32, W / 32)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, num_classes))
        init_convolutions(self)
        nn.init.kaiming_uniform_(self.classifier[1].weight, mode="fan_out", nonlinearity="sigmoid")
        nn.init.zeros_(self.classifier[1].bias)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        return self.classifier(self.layers(x).mean((2, 3)))


mnasnet0_5 = Variant("mnasnet0_5", MNASNet, 0.5)
mnasnet0_75 = Variant("mnasnet0_75", MNASNet, 0.75)
mnasnet1_0 = Variant("mnasnet1_0", MNASNet, 1.0)
mnasnet1_3 = Variant("mnasnet1_3", MNASNet, 1.3)
