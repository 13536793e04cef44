"""Transforms of images: what makes tensors of them, and what changes them at random, so that a network learns what does
not matter. `functional` has the functions that the classes apply."""

# ruff: noqa: F403, F405
from miniflow.vision.transforms import functional
from miniflow.vision.transforms.augmentation import *
from miniflow.vision.transforms.autoaugment import *
from miniflow.vision.transforms.image import *
from miniflow.vision.transforms.transform import *

__all__ = [
    "AugMix", "AutoAugment", "AutoAugmentPolicy", "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype",
    "FiveCrop", "GaussianBlur", "Grayscale", "InterpolationMode", "Lambda", "Normalize", "PILToTensor", "Pad",
    "RandAugment", "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast", "RandomChoice",
    "RandomCrop", "RandomEqualize", "RandomErasing", "RandomGrayscale", "RandomHorizontalFlip", "RandomInvert",
    "RandomOrder", "RandomPerspective", "RandomPosterize", "RandomResizedCrop", "RandomRotation", "RandomSizedCrop",
    "RandomSolarize", "RandomVerticalFlip", "Resize", "Scale", "Solarization", "TenCrop", "ToPILImage", "ToTensor",
    "TrivialAugmentWide", "functional",
]  # fmt: skip
