"""AlexNet: five convolutions and three linear layers, with which deep learning won ImageNet in 2012.

Krizhevsky, Sutskever and Hinton, "ImageNet classification with deep convolutional neural networks", 2012; here in the
layout for one GPU of Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.
"""

from __future__ import annotations

from miniflow import nn
from miniflow.tensor import Tensor
from miniflow.vision.models.registry import Variant


class AlexNet(nn.Module):
    """Convolutions of 11x11, 5x5 and thrice 3x3 with ReLU, three max poolings, and three linear layers.

    Args:
        num_classes: how many logits to return.
        dropout: probability, before the first two linear layers.

    Source: Krizhevsky, 2014; `torchvision.models.alexnet`.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5):
        super().__init__()
        self.features = nn.Sequential(  # (N, 3, 224, 224)
            nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2), nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),  # (N, 64, 27, 27)
            nn.Conv2d(64, 192, kernel_size=5, padding=2), nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),  # (N, 192, 13, 13)
            nn.Conv2d(192, 384, kernel_size=3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, kernel_size=3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1), nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),  # (N, 256, 6, 6)
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True),
            nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W), at least 63 pixels wide."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


alexnet = Variant("alexnet", AlexNet)
