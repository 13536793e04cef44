"""What `torchvision.utils` has: images as a grid, as a file, and with boxes and masks drawn on them.

And of flowvision's: accuracy, meters and the moving average of weights.
"""

from miniflow.vision.metrics import AverageMeter, accuracy
from miniflow.vision.model_ema import ModelEma
from miniflow.vision.utils.drawing import draw_bounding_boxes, draw_segmentation_masks, make_grid, save_image

__all__ = [
    "AverageMeter", "ModelEma", "accuracy", "draw_bounding_boxes", "draw_segmentation_masks", "make_grid", "save_image",
]  # fmt: skip
