"""Computer vision: `vision.models` holds networks for images, `vision.layers` and `vision.ops` their parts.

`vision.transforms` changes images, `vision.datasets` holds data sets of them, and `vision.utils` draws on them;
`vision.data`, `vision.loss`, `vision.metrics`, `vision.model_ema` and `vision.scheduler` are what recipes of training
take from timm.
"""

from miniflow.vision import data, datasets, layers, loss, metrics, model_ema, models, ops, scheduler, transforms, utils

__all__ = [
    "data", "datasets", "layers", "loss", "metrics", "model_ema", "models", "ops", "scheduler", "transforms", "utils",
]  # fmt: skip
