"""The functions that transforms call, of an image of Pillow or of a tensor (..., C, H, W).

Source: `torchvision.transforms.functional`.
"""

# ruff: noqa: F403, F405
from miniflow.vision.transforms.color import *
from miniflow.vision.transforms.conversion import *
from miniflow.vision.transforms.geometry import *
from miniflow.vision.transforms.image import *

__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation",
    "adjust_sharpness", "affine", "autocontrast", "center_crop", "convert_image_dtype", "crop", "equalize", "erase",
    "five_crop", "gaussian_blur", "get_dimensions", "get_image_num_channels", "get_image_size", "hflip", "invert",
    "normalize", "pad", "perspective", "pil_to_tensor", "posterize", "resize", "resized_crop", "rgb_to_grayscale",
    "rotate", "solarize", "ten_crop", "to_grayscale", "to_pil_image", "to_tensor", "vflip",
]  # fmt: skip
