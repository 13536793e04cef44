"""VGG: nothing but 3x3 convolutions, more channels at each pooling, and three linear layers.

Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014.
"""

from __future__ import annotations

from collections.abc import Sequence

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.layers import init_convolutions, init_linears
from miniflow.vision.models.registry import Variant

A, B, D, E = (1, 1, 2, 2, 2), (2, 2, 2, 2, 2), (2, 2, 3, 3, 3), (2, 2, 4, 4, 4)  # the columns of the paper's table 1


class VGG(nn.Module):
    """Five groups of 3x3 convolutions with ReLU, each with a max pooling at its end, and three linear layers.

    Args:
        convolutions: how many there are in each group, of 64, 128, 256, 512 and 512 channels.
        batch_norm: whether normalizations follow them; the paper, which is older, has none.
        num_classes: how many logits to return.
        init_weights: False keeps the first weights of `nn.Conv2d` and `nn.Linear`.
        dropout: probability, after the first two linear layers.

    Source: Simonyan and Zisserman, 2014, table 1; `torchvision.models.vgg`.
    """

    def __init__(
        self, convolutions: Sequence[int], batch_norm: bool = False, num_classes: int = 1000, init_weights: bool = True,
        dropout: float = 0.5,
    ):  # fmt: skip
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for channels, repeats in zip((64, 128, 256, 512, 512), convolutions, strict=True):
            for _ in range(repeats):
                layers.append(nn.Conv2d(inputs, channels, kernel_size=3, padding=1))
                layers += [nn.BatchNorm2d(channels)] if batch_norm else []
                layers.append(nn.ReLU(inplace=True))
                inputs = channels
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        self.features = nn.Sequential(*layers)  # (N, 512, H / 32, W / 32)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )  # fmt: skip
        if init_weights:
            init_convolutions(self)
            init_linears(self)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W), at least 32 pixels wide."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


vgg11 = Variant("vgg11", VGG, A)
vgg11_bn = Variant("vgg11_bn", VGG, A, batch_norm=True)
vgg13 = Variant("vgg13", VGG, B)
vgg13_bn = Variant("vgg13_bn", VGG, B, batch_norm=True)
vgg16 = Variant("vgg16", VGG, D)
vgg16_bn = Variant("vgg16_bn", VGG, D, batch_norm=True)
vgg19 = Variant("vgg19", VGG, E)
vgg19_bn = Variant("vgg19_bn", VGG, E, batch_norm=True)
