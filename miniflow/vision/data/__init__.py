"""What recipes of training do to images and batches: timm's and flowvision's names."""

from miniflow.vision.data.auto_augment import (
    AugmentOp,
    AugMixAugment,
    AutoAugment,
    RandAugment,
    augment_and_mix_transform,
    auto_augment_transform,
    rand_augment_transform,
)
from miniflow.vision.data.constants import (
    DEFAULT_CROP_PCT,
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    IMAGENET_INCEPTION_MEAN,
    IMAGENET_INCEPTION_STD,
)
from miniflow.vision.data.mixup import CutMix, FastCollateMixup, Mixup, cutmix_bbox_and_lam, fast_collate, mixup_target
from miniflow.vision.data.random_erasing import RandomErasing
from miniflow.vision.data.transforms_factory import (
    create_transform,
    transforms_imagenet_eval,
    transforms_imagenet_train,
)
