"""LeNet: the convolutional network for handwritten digits (LeCun, Bottou, Bengio and Haffner, 1998)."""

from __future__ import annotations

from miniflow import nn
from miniflow.tensor import Tensor


class LeNet(nn.Module):
    """LeNet in its present-day form: twice (5x5 convolution, ReLU, 2x2 max pooling), then two linear layers.

    The layout is that of LeNet-5 with more channels, ReLU for the sigmoids, and maxima for the averages. It has
    1,663,370 parameters for ten classes.

    Args:
        num_classes: how many logits to return.

    >>> import miniflow as flow
    >>> LeNet()(flow.zeros(3, 1, 28, 28)).shape
    miniflow.Size([3, 10])

    Source: LeCun et al., "Gradient-based learning applied to document recognition", 1998, figure 2.
    """

    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.features = nn.Sequential(  # (N, 1, 28, 28)
            nn.Conv2d(1, 32, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (N, 32, 14, 14)
            nn.Conv2d(32, 64, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (N, 64, 7, 7)
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512),
            nn.ReLU(),
            nn.Linear(512, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 1, 28, 28)."""
        return self.classifier(self.features(images))
