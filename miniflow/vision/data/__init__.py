"""What recipes of training do to images and batches: timm's and flowvision's names."""

from miniflow.vision.data.mixup import (
    CutMix,
    FastCollateMixup,
    Mixup,
    cutmix_bbox_and_lam,
    fast_collate,
    mixup_target,
)
from miniflow.vision.data.random_erasing import RandomErasing

IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of pixels from 0 to 1
IMAGENET_INCEPTION_MEAN = IMAGENET_INCEPTION_STD = (0.5, 0.5, 0.5)
