"""Augmentation policies: which operations with which magnitudes change an image.

All share one table of operations, and one of the magnitudes: m out of n equal steps from a first to a last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from miniflow.dtype import float32
from miniflow.ops.creation import from_numpy, linspace
from miniflow.ops.generator import default_generator
from miniflow.vision.transforms import functional as F
from miniflow.vision.transforms.geometry import Fill
from miniflow.vision.transforms.image import (
    BILINEAR,
    NEAREST,
    Image,
    InterpolationMode,
    get_dimensions,
    is_pil,
    require,
)
from miniflow.vision.transforms.transform import Transform

Mode = InterpolationMode
Chosen = list[tuple[str, float]]  # operations and their magnitudes


class AutoAugmentPolicy(Enum):
    """The data that a policy was found for. Source: `torchvision.transforms.AutoAugmentPolicy`."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


def sheared(img: Image, x: float, y: float, **warp: Any) -> Image:
    """An image sheared by tangents, with its upper left corner fixed."""
    return F.affine(img, 0.0, [0, 0], 1.0, [math.degrees(math.atan(m)) for m in (x, y)], center=[0, 0], **warp)


OPERATIONS: dict[str, Callable[..., Image]] = {  # of an image, a magnitude, and options of `affine`
    "Identity": lambda img, m, **warp: img,
    "ShearX": lambda img, m, **warp: sheared(img, m, 0.0, **warp),
    "ShearY": lambda img, m, **warp: sheared(img, 0.0, m, **warp),
    "TranslateX": lambda img, m, **warp: F.affine(img, 0.0, [int(m), 0], 1.0, 0.0, **warp),
    "TranslateY": lambda img, m, **warp: F.affine(img, 0.0, [0, int(m)], 1.0, 0.0, **warp),
    "Rotate": lambda img, m, **warp: F.rotate(img, m, **warp),
    "Brightness": lambda img, m, **warp: F.adjust_brightness(img, 1 + m),
    "Color": lambda img, m, **warp: F.adjust_saturation(img, 1 + m),
    "Contrast": lambda img, m, **warp: F.adjust_contrast(img, 1 + m),
    "Sharpness": lambda img, m, **warp: F.adjust_sharpness(img, 1 + m),
    "Posterize": lambda img, m, **warp: F.posterize(img, round(m)),
    "Solarize": lambda img, m, **warp: F.solarize(img, m),
    "AutoContrast": lambda img, m, **warp: F.autocontrast(img),
    "Equalize": lambda img, m, **warp: F.equalize(img),
    "Invert": lambda img, m, **warp: F.invert(img),
}
SIGNED = list(OPERATIONS)[1:10]  # their magnitudes are negative half of the time
BLENDS = ["Brightness", "Color", "Contrast", "Sharpness"]
POLICIES = {  # pairs of operation, probability and magnitude: Cubuk et al., "AutoAugment", 2018, tables 7 to 9
    "imagenet": """
        Posterize 0.4 8 + Rotate 0.6 9; Solarize 0.6 5 + AutoContrast 0.6; Equalize 0.8 + Equalize 0.6;
        Posterize 0.6 7 + Posterize 0.6 6; Equalize 0.4 + Solarize 0.2 4; Equalize 0.4 + Rotate 0.8 8;
        Solarize 0.6 3 + Equalize 0.6; Posterize 0.8 5 + Equalize 1.0; Rotate 0.2 3 + Solarize 0.6 8;
        Equalize 0.6 + Posterize 0.4 6; Rotate 0.8 8 + Color 0.4 0; Rotate 0.4 9 + Equalize 0.6;
        Equalize 0.0 + Equalize 0.8; Invert 0.6 + Equalize 1.0; Color 0.6 4 + Contrast 1.0 8;
        Rotate 0.8 8 + Color 1.0 2; Color 0.8 8 + Solarize 0.8 7; Sharpness 0.4 7 + Invert 0.6;
        ShearX 0.6 5 + Equalize 1.0; Color 0.4 0 + Equalize 0.6; Equalize 0.4 + Solarize 0.2 4;
        Solarize 0.6 5 + AutoContrast 0.6; Invert 0.6 + Equalize 1.0; Color 0.6 4 + Contrast 1.0 8;
        Equalize 0.8 + Equalize 0.6
    """,
    "cifar10": """
        Invert 0.1 + Contrast 0.2 6; Rotate 0.7 2 + TranslateX 0.3 9; Sharpness 0.8 1 + Sharpness 0.9 3;
        ShearY 0.5 8 + TranslateY 0.7 9; AutoContrast 0.5 + Equalize 0.9; ShearY 0.2 7 + Posterize 0.3 7;
        Color 0.4 3 + Brightness 0.6 7; Sharpness 0.3 9 + Brightness 0.7 9; Equalize 0.6 + Equalize 0.5;
        Contrast 0.6 7 + Sharpness 0.6 5; Color 0.7 7 + TranslateX 0.5 8; Equalize 0.3 + AutoContrast 0.4;
        TranslateY 0.4 3 + Sharpness 0.2 6; Brightness 0.9 6 + Color 0.2 8; Solarize 0.5 2 + Invert 0.0;
        Equalize 0.2 + AutoContrast 0.6; Equalize 0.2 + Equalize 0.6; Color 0.9 9 + Equalize 0.6;
        AutoContrast 0.8 + Solarize 0.2 8; Brightness 0.1 3 + Color 0.7 0; Solarize 0.4 5 + AutoContrast 0.9;
        TranslateY 0.9 9 + TranslateY 0.7 9; AutoContrast 0.9 + Solarize 0.8 3; Equalize 0.8 + Invert 0.1;
        TranslateY 0.7 9 + AutoContrast 0.9
    """,
    "svhn": """
        ShearX 0.9 4 + Invert 0.2; ShearY 0.9 8 + Invert 0.7; Equalize 0.6 + Solarize 0.6 6; Invert 0.9 + Equalize 0.6;
        Equalize 0.6 + Rotate 0.9 3; ShearX 0.9 4 + AutoContrast 0.8; ShearY 0.9 8 + Invert 0.4;
        ShearY 0.9 5 + Solarize 0.2 6; Invert 0.9 + AutoContrast 0.8; Equalize 0.6 + Rotate 0.9 3;
        ShearX 0.9 4 + Solarize 0.3 3; ShearY 0.8 8 + Invert 0.7; Equalize 0.9 + TranslateY 0.6 6;
        Invert 0.9 + Equalize 0.6; Contrast 0.3 3 + Rotate 0.8 4; Invert 0.8 + TranslateY 0.0 2;
        ShearY 0.7 6 + Solarize 0.4 8; Invert 0.6 + Rotate 0.8 4; ShearY 0.3 7 + TranslateX 0.9 3;
        ShearX 0.1 6 + Invert 0.6; Solarize 0.7 2 + TranslateY 0.6 7; ShearY 0.8 4 + Invert 0.8;
        ShearX 0.7 9 + TranslateY 0.8 3; ShearY 0.8 5 + AutoContrast 0.7; ShearX 0.7 2 + Invert 0.1
    """,
}


def magnitudes(
    shift: tuple[float, float], shear: float = 0.3, angle: float = 30.0, factor: float = 0.9,
    bits: tuple[int, int] = (8, 4),
) -> dict[str, tuple[float, float]]:  # fmt: skip
    """The first and the last magnitude of each operation, as `OPERATIONS` takes them.

    Args:
        shift: the largest ones, (x, y), in pixels.
        shear: the largest tangent.
        angle: the largest, in degrees.
        factor: the largest difference from 1.
        bits: the most and the fewest that are kept.
    """
    return {
        "Identity": (0, 0), "ShearX": (0, shear), "ShearY": (0, shear), "TranslateX": (0, shift[0]),
        "TranslateY": (0, shift[1]), "Rotate": (0, angle), **dict.fromkeys(BLENDS, (0, factor)), "Posterize": bits,
        "Solarize": (255, 0), "AutoContrast": (0, 0), "Equalize": (0, 0),
    }  # fmt: skip


class Policy(Transform):
    """Base: applies the operations that a subclass chooses at random."""

    def choose(self, height: int, width: int) -> Chosen:
        """Operations and their magnitudes, for an image (h, w)."""
        raise NotImplementedError

    def forward(self, img: Image) -> Image:
        return self.applied(img, self.choose(*get_dimensions(img)[1:]))

    def applied(self, img: Image, operations: Chosen) -> Image:
        """The image after operations."""
        for name, magnitude in operations:
            img = OPERATIONS[name](img, magnitude, interpolation=self.interpolation, fill=self.fill)
        return img


def signed(draw: np.random.Generator, name: str, ends: tuple[float, float], step: int, steps: int) -> tuple[str, float]:
    """An operation and its magnitude, of which the sign is random."""
    magnitude = linspace(*ends, steps)[step].item()
    return name, -magnitude if name in SIGNED and draw.random() < 0.5 else magnitude


class AutoAugment(Policy):
    """One of 25 pairs of operations that training found best. Cubuk et al., "AutoAugment", 2018.

    Args:
        policy: the data that it was found for.
        interpolation, fill: as for `affine`.

    Source: `torchvision.transforms.AutoAugment`.
    """

    def __init__(
        self, policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET, interpolation: Mode = NEAREST, fill: Fill = None
    ):
        super().__init__(locals())
        require(isinstance(policy, AutoAugmentPolicy), "AutoAugment", "an AutoAugmentPolicy", policy=policy)

    def choose(self, height: int, width: int) -> Chosen:
        draw = default_generator.numpy()
        ends = {**magnitudes((150 / 331 * width, 150 / 331 * height)), "Invert": (0, 0)}
        pair = draw.choice(POLICIES[self.policy.value].split(";")).split("+")
        chosen = [(name, *map(float, numbers)) for name, *numbers in map(str.split, pair)]
        chosen = [(name, int(step[0]) if step else 0) for name, p, *step in chosen if draw.random() < p]
        return [signed(draw, name, ends[name], step, 10) for name, step in chosen]


class RandAugment(Policy):
    """`num_ops` operations of one magnitude. Cubuk et al., "RandAugment", 2019.

    Args:
        num_ops: how many operations.
        magnitude: from 0 to num_magnitude_bins - 1.
        num_magnitude_bins: how many magnitudes there are.
        interpolation, fill: as for `affine`.

    >>> import miniflow as flow
    >>> flow.vision.transforms.RandAugment()(flow.zeros(3, 8, 8, dtype=flow.uint8)).shape
    miniflow.Size([3, 8, 8])

    Source: `torchvision.transforms.RandAugment`.
    """

    def __init__(
        self, num_ops: int = 2, magnitude: int = 9, num_magnitude_bins: int = 31, interpolation: Mode = NEAREST,
        fill: Fill = None,
    ):  # fmt: skip
        super().__init__(locals())
        require(0 <= magnitude < num_magnitude_bins, "RandAugment", "less than num_magnitude_bins", magnitude=magnitude)

    def choose(self, height: int, width: int) -> Chosen:
        draw, ends = default_generator.numpy(), magnitudes((150 / 331 * width, 150 / 331 * height))
        names = draw.choice(list(ends), self.num_ops).tolist()
        return [signed(draw, name, ends[name], self.magnitude, self.num_magnitude_bins) for name in names]


class TrivialAugmentWide(Policy):
    """One operation of a random magnitude. Müller and Hutter, "TrivialAugment", 2021.

    Args:
        num_magnitude_bins: how many magnitudes there are.
        interpolation, fill: as for `affine`.

    Source: `torchvision.transforms.TrivialAugmentWide`.
    """

    def __init__(self, num_magnitude_bins: int = 31, interpolation: Mode = NEAREST, fill: Fill = None):
        super().__init__(locals())

    def choose(self, height: int, width: int) -> Chosen:
        draw, ends = default_generator.numpy(), magnitudes((32, 32), 0.99, 135.0, 0.99, (8, 2))
        name, steps = draw.choice(list(ends)).item(), self.num_magnitude_bins
        return [signed(draw, name, ends[name], draw.integers(steps).item(), steps)]


class AugMix(Policy):
    """A random mean of an image and of `mixture_width` others, made by chains of operations.

    Hendrycks et al., "AugMix", 2019: m x + (1 - m) sum of w_i chain_i(x), with m from a beta distribution, and the
    weights w from a Dirichlet distribution.

    Args:
        severity: how many of the ten magnitudes are used.
        mixture_width: how many chains.
        chain_depth: how many operations in a chain; -1 for one to three.
        alpha: the parameter of both distributions.
        all_ops: also change brightness, colour, contrast and sharpness.
        interpolation, fill: as for `affine`.

    Source: `torchvision.transforms.AugMix`.
    """

    def __init__(
        self, severity: int = 3, mixture_width: int = 3, chain_depth: int = -1, alpha: float = 1.0,
        all_ops: bool = True, interpolation: Mode = BILINEAR, fill: Fill = None,
    ):  # fmt: skip
        super().__init__(locals())
        require(1 <= severity <= 10, "AugMix", "1 to 10", severity=severity)

    def choose(self, height: int, width: int) -> Chosen:
        """Those of one chain."""
        draw, ends = default_generator.numpy(), magnitudes((width / 3, height / 3), bits=(4, 0))
        names = [name for name in list(ends)[1:] if self.all_ops or name not in BLENDS]
        depth = self.chain_depth if self.chain_depth > 0 else draw.integers(1, 4)
        names, steps = draw.choice(names, depth).tolist(), draw.integers(self.severity, size=depth).tolist()
        return [signed(draw, name, ends[name], step, 10) for name, step in zip(names, steps, strict=True)]

    def weights(self, images: int) -> tuple[np.ndarray, np.ndarray]:
        """Those of the image (N, 1), and of the chains (N, mixture_width)."""
        draw = default_generator.numpy()
        image, others = np.split(draw.dirichlet([self.alpha] * 2, images), 2, 1)
        return image, others * draw.dirichlet([self.alpha] * self.mixture_width, images)

    def forward(self, img: Image) -> Image:
        if is_pil(img):
            return F.to_pil_image(self.forward(F.pil_to_tensor(img)), img.mode)
        batch = img.reshape((-1, *get_dimensions(img)))
        shares = from_numpy(np.concatenate(self.weights(len(batch)), 1)).to(img.device, float32)
        first, *others = shares[..., None, None, None].unbind(1)  # (N, 1, 1, 1) each
        mix = first * batch
        for share in others:
            mix = mix + share * self.applied(batch, self.choose(*batch.shape[2:]))
        return mix.reshape(img.shape).to(img.dtype)
