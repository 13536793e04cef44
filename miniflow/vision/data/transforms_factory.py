"""The transforms of a recipe of training or evaluation on ImageNet, by their options."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from miniflow.errors import ArgumentTypeError
from miniflow.ops.generator import default_generator
from miniflow.vision import transforms
from miniflow.vision.data import auto_augment as policies
from miniflow.vision.data.constants import DEFAULT_CROP_PCT, IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from miniflow.vision.data.random_erasing import RandomErasing
from miniflow.vision.transforms.image import InterpolationMode, require

Numbers = Sequence[float]


class RandomResizedCropAndInterpolation(transforms.RandomResizedCrop):
    """A part of random size and place, resized by a mode or, if it is "random", bilinear or bicubic. Of timm."""

    def __init__(self, size: Any, scale: Numbers, ratio: Numbers, interpolation: str = "bilinear"):
        super().__init__(size, scale, ratio)
        self.modes = policies.RANDOM_INTERPOLATION if interpolation == "random" else (InterpolationMode(interpolation),)

    def forward(self, img: Any) -> Any:
        self.interpolation = self.modes[default_generator.numpy().integers(len(self.modes))]
        return super().forward(img)


def transforms_imagenet_train(
    img_size: int | Sequence[int] = 224, scale: Numbers | None = None, ratio: Numbers | None = None,
    hflip: float = 0.5, vflip: float = 0.0, color_jitter: float | Numbers | None = 0.4, auto_augment: str | None = None,
    interpolation: str = "random", mean: Numbers = IMAGENET_DEFAULT_MEAN, std: Numbers = IMAGENET_DEFAULT_STD,
    re_prob: float = 0.0, re_mode: str = "const", re_count: int = 1, re_num_splits: int = 0,
    use_prefetcher: bool = False, normalize: bool = True, separate: bool = False,
) -> Any:  # fmt: skip
    """The transforms of training; the arguments are those of `create_transform`."""
    first = [RandomResizedCropAndInterpolation(img_size, scale or (0.08, 1.0), ratio or (3 / 4, 4 / 3), interpolation)]
    first += [transforms.RandomHorizontalFlip(hflip)] * (hflip > 0)
    first += [transforms.RandomVerticalFlip(vflip)] * (vflip > 0)
    second = []
    if auto_augment:
        hparams: dict[str, Any] = {"img_mean": tuple(min(255, round(255 * x)) for x in mean)}
        if interpolation != "random":
            hparams["interpolation"] = InterpolationMode(interpolation)
        if auto_augment.startswith("augmix"):
            second.append(policies.augment_and_mix_transform(auto_augment, {**hparams, "translate_pct": 0.3}))
        elif auto_augment.startswith("rand"):
            second.append(policies.rand_augment_transform(auto_augment, hparams))
        else:
            second.append(policies.auto_augment_transform(auto_augment, hparams))
    if color_jitter is not None and (not auto_augment or "3a" in auto_augment):
        factors = color_jitter if isinstance(color_jitter, Sequence) else (float(color_jitter),) * 3
        second.append(transforms.ColorJitter(*factors))
    last = final(mean, std, normalize and not use_prefetcher)
    if re_prob > 0 and len(last) > 1:
        last.append(RandomErasing(re_prob, mode=re_mode, max_count=re_count, num_splits=re_num_splits))
    if separate:
        return tuple(transforms.Compose(part) for part in (first, second, last))
    return transforms.Compose(first + second + last)


def final(mean: Numbers, std: Numbers, normalize: bool) -> list[Any]:
    """From an image to floats of mean 0 and standard deviation 1, or to bytes."""
    return [transforms.ToTensor(), transforms.Normalize(mean, std)] if normalize else [transforms.PILToTensor()]


def transforms_imagenet_eval(
    img_size: int | Sequence[int] = 224, crop_pct: float | None = None, interpolation: str = "bilinear",
    mean: Numbers = IMAGENET_DEFAULT_MEAN, std: Numbers = IMAGENET_DEFAULT_STD, use_prefetcher: bool = False,
    normalize: bool = True,
) -> transforms.Compose:  # fmt: skip
    """The transforms of evaluation; the arguments are those of `create_transform`."""
    height, width = img_size if isinstance(img_size, Sequence) else (img_size, img_size)
    size = [math.floor(side / (crop_pct or DEFAULT_CROP_PCT)) for side in (height, width)]
    resize = transforms.Resize(size[0] if size[0] == size[1] else size, InterpolationMode(interpolation))
    last = final(mean, std, normalize and not use_prefetcher)
    return transforms.Compose([resize, transforms.CenterCrop((height, width)), *last])


def create_transform(
    input_size: int | Sequence[int] = 224, is_training: bool = False, no_aug: bool = False,
    interpolation: str = "bilinear", crop_pct: float | None = None, mean: Numbers = IMAGENET_DEFAULT_MEAN,
    std: Numbers = IMAGENET_DEFAULT_STD, use_prefetcher: bool = False, normalize: bool = True, **augmentations: Any,
) -> Any:  # fmt: skip
    """The transforms of images of Pillow for training or evaluation, as one.

    Args:
        input_size: a number, (h, w) or (c, h, w).
        is_training: whether at random; no_aug: without that even in training.
        interpolation: "bilinear", "bicubic" and others, in training also "random".
        crop_pct: evaluation resizes the shorter side, or both sides if they are to differ, and keeps this share of
            them in the middle; 0.875 by default.
        mean, std: of each channel.
        use_prefetcher: end with bytes, as a loader normalizes them; so without `normalize`.
        augmentations: of training: `scale` (0.08, 1) and `ratio` (3/4, 4/3) of the random part; `hflip` 0.5 and `vflip`
            0, probabilities; `color_jitter` 0.4; `auto_augment`, a string of `auto_augment`; `re_prob`,
            `re_mode`, `re_count`, `re_num_splits` of `RandomErasing`; `separate`: three parts instead of one.

    Raises:
        ArgumentError: for another interpolation or policy.
        ArgumentTypeError: for another argument.

    >>> import miniflow as flow
    >>> train = flow.vision.data.create_transform(64, is_training=True, auto_augment="rand-m9-n3-mstd0.5-inc1")
    >>> train.transforms[2].num_layers
    3

    Source: `timm.data.create_transform`.
    """
    unknown = sorted(augmentations.keys() - inspect.signature(transforms_imagenet_train).parameters.keys())
    require(not unknown, "create_transform", "those that are documented", ArgumentTypeError, arguments=unknown)
    modes = [mode.value for mode in InterpolationMode] + ["random"] * is_training
    require(interpolation in modes, "create_transform", f"one of {', '.join(modes)}", interpolation=interpolation)
    size = tuple(input_size[-2:]) if isinstance(input_size, Sequence) else input_size
    options = {"mean": mean, "std": std, "use_prefetcher": use_prefetcher, "normalize": normalize}
    if is_training and not no_aug:
        return transforms_imagenet_train(size, interpolation=interpolation, **options, **augmentations)
    interpolation = "bilinear" if interpolation == "random" else interpolation
    return transforms_imagenet_eval(size, 1.0 if is_training else crop_pct, interpolation, **options)
