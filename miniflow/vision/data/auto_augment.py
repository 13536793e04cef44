"""Augmentation policies by timm's strings: `original-mstd0.5`, `rand-m9-mstd0.5-inc1`, `augmix-m5-w4`.

They change images of Pillow. A magnitude m is from 0 to 10; `LEVELS` makes the argument of an operation of m / 10.

Source: timm's `auto_augment`; Cubuk et al. 2018, "AutoAugment", and 2019, "RandAugment"; Hendrycks et al. 2020,
"AugMix".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from miniflow.errors import ArgumentError, refusal
from miniflow.ops.generator import default_generator
from miniflow.vision.pillow import pillow
from miniflow.vision.transforms import functional as F
from miniflow.vision.transforms.autoaugment import OPERATIONS, POLICIES
from miniflow.vision.transforms.geometry import warp
from miniflow.vision.transforms.image import InterpolationMode

Draw = np.random.Generator
RANDOM_INTERPOLATION = InterpolationMode.BILINEAR, InterpolationMode.BICUBIC
HPARAMS = {"translate_pct": 0.45, "img_mean": (128, 128, 128), "magnitude_std": 0.0}


def solarize_add(img: Any, add: int, threshold: int = 128) -> Any:
    """What is below the threshold, brighter by `add`."""
    return img.point([min(255, i + add) if i < threshold else i for i in range(256)] * len(img.getbands()))


def blurred(img: Any, radius: float) -> Any:
    """Blurred with a standard deviation of `radius` pixels."""
    return img.filter(pillow("ImageFilter").GaussianBlur(radius))


MORE_OPERATIONS: dict[str, Callable[..., Any]] = {  # of an image, an argument, interpolation and fill
    **OPERATIONS,
    "ShearX": lambda img, m, **how: warp("affine", img, [1, m, 0, 0, 1, 0], **how),
    "ShearY": lambda img, m, **how: warp("affine", img, [1, 0, 0, m, 1, 0], **how),
    "TranslateXRel": lambda img, m, **how: warp("affine", img, [1, 0, m * img.size[0], 0, 1, 0], **how),
    "TranslateYRel": lambda img, m, **how: warp("affine", img, [1, 0, 0, 0, 1, m * img.size[1]], **how),
    "SolarizeAdd": lambda img, m, **how: solarize_add(img, m),
    "Desaturate": lambda img, m, **how: F.adjust_saturation(img, 1 - m),
    **dict.fromkeys(("GaussianBlur", "GaussianBlurRand"), lambda img, m, **how: blurred(img, m)),
}


def sign(draw: Draw) -> int:
    """-1 or 1."""
    return -1 if draw.random() > 0.5 else 1


BLENDS = ("Color", "Contrast", "Brightness", "Sharpness")
LEVELS: dict[str, Callable[[float, Draw, Mapping], float]] = {  # of x from 0 to 1, a generator and hparams
    **dict.fromkeys(("AutoContrast", "Equalize", "Invert"), lambda x, draw, h: 0),
    "Rotate": lambda x, draw, h: sign(draw) * 30 * x,
    "Posterize": lambda x, draw, h: min(8, int(4 * x)),
    "PosterizeIncreasing": lambda x, draw, h: max(0, 4 - int(4 * x)),
    "PosterizeOriginal": lambda x, draw, h: min(8, 4 + int(4 * x)),
    "Solarize": lambda x, draw, h: min(256, int(256 * x)),
    "SolarizeIncreasing": lambda x, draw, h: 256 - min(256, int(256 * x)),
    "SolarizeAdd": lambda x, draw, h: min(128, int(110 * x)),
    **dict.fromkeys(BLENDS, lambda x, draw, h: 1.8 * x - 0.9),
    **dict.fromkeys([f"{name}Increasing" for name in BLENDS], lambda x, draw, h: max(-0.9, sign(draw) * 0.9 * x)),
    **dict.fromkeys(("ShearX", "ShearY"), lambda x, draw, h: sign(draw) * 0.3 * x),
    **dict.fromkeys(("TranslateXRel", "TranslateYRel"), lambda x, draw, h: sign(draw) * h["translate_pct"] * x),
    "Desaturate": lambda x, draw, h: min(1.0, 0.5 + 0.5 * x),
    "GaussianBlur": lambda x, draw, h: min(2.0, 0.1 + 1.9 * x),
    "GaussianBlurRand": lambda x, draw, h: 0.1 + (2 * min(1.0, x) - 0.1) * draw.random(),
}


@dataclass
class AugmentOp:
    """One operation, which is applied with a probability.

    Args:
        name: of `LEVELS`; "...Increasing" changes more with a larger magnitude.
        prob: the probability.
        magnitude: from 0 to 10.
        hparams: "translate_pct", the largest shift as a share of a side; "img_mean", the colour outside of the image;
            "interpolation", one of `InterpolationMode`, or bilinear and bicubic at random;
            "magnitude_std", the standard deviation of the magnitude, infinite for one from 0 to `magnitude`;
            "magnitude_max", its limit, 10 by default.

    Source: timm's `AugmentOp`.
    """

    name: str
    prob: float = 0.5
    magnitude: float = 10
    hparams: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, img: Any, draw: Draw | None = None) -> Any:
        draw, hparams = draw or default_generator.numpy(), {**HPARAMS, **self.hparams}
        if self.prob < 1 and draw.random() > self.prob:
            return img
        magnitude, std = self.magnitude, hparams["magnitude_std"]
        if std > 0:
            magnitude = draw.uniform(0, magnitude) if std == math.inf else draw.normal(magnitude, std)
        magnitude = max(0.0, min(magnitude, hparams.get("magnitude_max") or 10))
        argument = LEVELS[self.name](magnitude / 10, draw, hparams)
        how = hparams.get("interpolation", RANDOM_INTERPOLATION)
        if isinstance(how, tuple) and self.name.startswith(("Rotate", "Shear", "Translate")):
            how = how[draw.integers(len(how))]
        operation = MORE_OPERATIONS[self.name.removesuffix("Increasing").removesuffix("Original")]
        return operation(img, argument, interpolation=how, fill=hparams["img_mean"])


AUTO_POLICIES = {
    "original": POLICIES["imagenet"].replace("Posterize", "PosterizeOriginal"),
    "originalr": POLICIES["imagenet"].replace("Posterize", "PosterizeIncreasing"),
    "3a": "Solarize 1.0 5; Desaturate 1.0 10; GaussianBlurRand 1.0 10",
}
RANDOM_OPERATIONS = (
    "AutoContrast Equalize Invert Rotate Posterize Solarize SolarizeAdd Color Contrast Brightness Sharpness ShearX "
    "ShearY TranslateXRel TranslateYRel"
)
AUGMIX_OPERATIONS = (
    "AutoContrast Color Contrast Brightness Sharpness Equalize Rotate Posterize Solarize ShearX ShearY TranslateXRel "
    "TranslateYRel"
)
CHOICES = {  # sets of operations, all of them increasing; some with weights
    "3a": "Solarize Desaturate GaussianBlur",
    "3aw": "Solarize 6 Desaturate 6 GaussianBlur 6 Rotate 3 ShearX 2 ShearY 2 Posterize 1 AutoContrast 1 Color 1 "
    "Sharpness 1 Contrast 1 Brightness 1 Equalize 1 Invert 1",
    "weights": "Rotate 3 ShearX 2 ShearY 2 TranslateXRel 1 TranslateYRel 1 Color 0.25 Sharpness 0.25 AutoContrast 0.25 "
    "Solarize 0.05 SolarizeAdd 0.05 Contrast 0.05 Brightness 0.05 Equalize 0.05 Posterize 0.05 Invert 0.05",
}


def increasing(name: str) -> str:
    """The operation of the kind that changes more with a larger magnitude, where there are two."""
    return f"{name}Increasing" if f"{name}Increasing" in LEVELS else name


@dataclass
class AutoAugment:
    """Applies one of several sequences of operations. timm's `AutoAugment`."""

    policy: Sequence[Sequence[AugmentOp]]

    def __call__(self, img: Any) -> Any:
        draw = default_generator.numpy()
        for op in self.policy[draw.integers(len(self.policy))]:
            img = op(img, draw)
        return img


@dataclass
class RandAugment:
    """Applies `num_layers` of the operations, with weights without repetition. timm's `RandAugment`."""

    ops: Sequence[AugmentOp]
    num_layers: int = 2
    choice_weights: Sequence[float] | None = None

    def __call__(self, img: Any) -> Any:
        draw, weights = default_generator.numpy(), self.choice_weights
        for i in draw.choice(len(self.ops), self.num_layers, weights is None, weights):
            img = self.ops[i](img, draw)
        return img


@dataclass
class AugMixAugment:
    """m of a mean of `width` chains of `depth` operations (1 to 3 if it is -1), and 1 - m of the image itself.

    m and the weights of the mean are drawn from Beta and Dirichlet distributions of `alpha`. timm's `AugMixAugment`.
    """

    ops: Sequence[AugmentOp]
    alpha: float = 1.0
    width: int = 3
    depth: int = -1

    def __call__(self, img: Any) -> Any:
        draw, mean = default_generator.numpy(), 0.0
        weights = np.float32(draw.dirichlet([self.alpha] * self.width))
        m = np.float32(draw.beta(self.alpha, self.alpha))
        for weight in weights:
            depth, changed = self.depth if self.depth > 0 else draw.integers(1, 4), img
            for i in draw.choice(len(self.ops), depth):
                changed = self.ops[i](changed, draw)
            mean = mean + weight * np.asarray(changed, np.float32)
        image = pillow()
        return image.blend(img, image.fromarray(np.clip(mean, 0, 255).astype(np.uint8)), m)


def sections(config: str, **defaults: Any) -> dict[str, Any]:
    """The values in a string such as `rand-m9-mstd0.5`, of the types that the defaults have."""
    values = dict(defaults)
    for section in config.split("-")[1:]:
        found = re.fullmatch(r"([a-z]+?)(weights|3aw?|\d+(?:\.\d+)?)", section)
        kind = type(defaults.get(found[1])) if found else type(None)
        if kind is type(None) or (kind is int and not found[2].isdigit()):
            expected = f"sections {', '.join(defaults)}, each with its value"
            raise refusal(ArgumentError, "create_transform", expected, auto_augment=config)
        values[found[1]] = kind(found[2])
    return values


def auto_augment_transform(config_str: str, hparams: Mapping[str, Any] | None = None) -> AutoAugment:
    """A policy that training found: `original`, `originalr` or `3a`, then `-mstd` and a number.

    Args:
        config_str: the string.
        hparams: of `AugmentOp`, which precede the string.

    Raises:
        ArgumentError: for another policy or section.

    Source: `timm.data.auto_augment_transform`.
    """
    name = config_str.split("-")[0]
    if name not in AUTO_POLICIES:
        raise refusal(ArgumentError, "auto_augment_transform", f"one of {', '.join(AUTO_POLICIES)}", config=config_str)
    hparams = {"magnitude_std": sections(config_str, mstd=0.0)["mstd"], **(hparams or {})}
    policy = []
    for sequence in AUTO_POLICIES[name].split(";"):
        operations = [(op, *map(float, numbers), 0.0) for op, *numbers in map(str.split, sequence.split("+"))]
        policy.append([AugmentOp(op, prob, magnitude, hparams) for op, prob, magnitude, *_ in operations])
    return AutoAugment(policy)


def rand_augment_transform(config_str: str, hparams: Mapping[str, Any] | None = None) -> RandAugment:
    """Operations at random: `rand`, then sections in any order.

    Args:
        config_str: `m` magnitude (10); `n` how many (2); `p` probability of each (0.5); `mstd` the standard deviation
            of the magnitude, above 100 for magnitudes from 0 to m; `mmax` its limit (10); `inc1` operations that change
            more with a larger magnitude; `tweights`, `t3a` or `t3aw` other sets of operations.
        hparams: of `AugmentOp`, which precede the string.

    Raises:
        ArgumentError: for another section.

    Source: `timm.data.rand_augment_transform`.
    """
    given = sections(config_str, m=10.0, n=2, p=0.5, mstd=0.0, mmax=10.0, inc=0, t="")
    std = math.inf if given["mstd"] > 100 else given["mstd"]
    hparams = {"magnitude_std": std, "magnitude_max": given["mmax"], **(hparams or {})}
    words = CHOICES.get(given["t"], RANDOM_OPERATIONS).split()
    weights = np.array([float(word) for word in words if word[0].isdigit()])
    names = [word for word in words if not word[0].isdigit()]
    if given["inc"] or given["t"] in CHOICES:
        names = list(map(increasing, names))
    ops = [AugmentOp(name, given["p"], given["m"], hparams) for name in names]
    return RandAugment(ops, given["n"], weights / weights.sum() if len(weights) else None)


def augment_and_mix_transform(config_str: str, hparams: Mapping[str, Any] | None = None) -> AugMixAugment:
    """Chains of operations, mixed: `augmix`, then sections in any order.

    Args:
        config_str: `m` magnitude (3); `w` how many chains (3); `d` their length (1 to 3 at random); `a` the parameter
            of the distributions (1); `mstd` the standard deviation of the magnitude, which is from 0 to m without it.
        hparams: of `AugmentOp`, which precede the string.

    Raises:
        ArgumentError: for another section; timm's `b`, which blends in another order, is one.

    Source: `timm.data.augment_and_mix_transform`.
    """
    given = sections(config_str, m=3.0, w=3, d=-1, a=1.0, mstd=math.inf)
    hparams = {"magnitude_std": given["mstd"], **(hparams or {})}
    ops = [AugmentOp(increasing(name), 1.0, given["m"], hparams) for name in AUGMIX_OPERATIONS.split()]
    return AugMixAugment(ops, given["a"], given["w"], given["d"])
