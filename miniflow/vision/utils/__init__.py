"""What `torchvision.utils` has: images as a grid, as a file, and with boxes and masks drawn on them."""

from miniflow.vision.utils.drawing import draw_bounding_boxes, draw_segmentation_masks, make_grid, save_image

__all__ = ["draw_bounding_boxes", "draw_segmentation_masks", "make_grid", "save_image"]
