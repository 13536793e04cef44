"""Computer vision: `vision.models` holds networks for images, `vision.layers` and `vision.ops` their parts.

`vision.datasets` holds data sets of images.
"""

from miniflow.vision import datasets, layers, models, ops

__all__ = ["datasets", "layers", "models", "ops"]
