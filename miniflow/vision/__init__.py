"""Computer vision: `vision.models` holds networks for images."""

from miniflow.vision import models

__all__ = ["models"]
