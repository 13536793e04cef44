"""Computer vision: `vision.models` holds networks for images, `vision.layers` and `vision.ops` their parts."""

from miniflow.vision import layers, models, ops

__all__ = ["layers", "models", "ops"]
