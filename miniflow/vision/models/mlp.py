"""A multilayer perceptron: linear layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Sequence

from miniflow import nn
from miniflow.tensor import Tensor


class MLP(nn.Module):
    """y = W_n relu(... relu(W_1 x + b_1) ...) + b_n, on flattened images.

    Args:
        sizes: the number of features of the input, of each hidden layer, and of the output.

    >>> import miniflow as flow
    >>> MLP((784, 32, 10))(flow.zeros(3, 1, 28, 28)).shape
    miniflow.Size([3, 10])

    Source: Rumelhart, Hinton and Williams, "Learning representations by back-propagating errors", 1986.
    """

    def __init__(self, sizes: Sequence[int] = (784, 256, 128, 10)):
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in zip(sizes[:-2], sizes[1:-1], strict=True):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))

    def forward(self, images: Tensor) -> Tensor:
        """The logits (N, sizes[-1]) of images (N, ...) with sizes[0] values each."""
        return self.layers(images)
