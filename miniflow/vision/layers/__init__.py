"""Layers that several models share."""

from miniflow.vision.layers.blocks import Conv2dNormActivation
from miniflow.vision.layers.weight_init import init_convolutions

__all__ = ["Conv2dNormActivation", "init_convolutions"]
