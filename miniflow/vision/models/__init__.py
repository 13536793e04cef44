"""Networks for images."""

from miniflow.vision.models.lenet import LeNet
from miniflow.vision.models.mlp import MLP

__all__ = ["MLP", "LeNet"]
