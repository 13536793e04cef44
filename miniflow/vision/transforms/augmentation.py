"""Transforms with random parameters. `get_params` draws them, by flow's default generator.

Source: `torchvision.transforms`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

from miniflow.errors import ArgumentTypeError, ShapeError
from miniflow.ops.creation import tensor
from miniflow.ops.generator import default_generator
from miniflow.ops.random import randn
from miniflow.tensor import Tensor
from miniflow.vision.transforms import functional as F
from miniflow.vision.transforms.geometry import Fill, Point, Size
from miniflow.vision.transforms.image import (
    BILINEAR,
    NEAREST,
    Image,
    InterpolationMode,
    are_numbers,
    check_center,
    get_dimensions,
    pair,
    require,
)
from miniflow.vision.transforms.transform import Transform, happens

TINY = 1e-6
Range = Sequence[float]
Ends = float | Range  # a number x for the range around the neutral value, or both ends
Mode = InterpolationMode
Part = tuple[int, int, int, int]  # top, left, height, width


def require_ranges(op: str, low: float, high: float, **ranges: Range | None) -> None:
    """Raise ArgumentError unless ranges are pairs (a, b) with low <= a <= b <= high."""
    for name, values in ranges.items():
        fits = isinstance(values, tuple | list) and len(values) == 2 and low <= values[0] <= values[1] <= high
        require(fits, op, f"two numbers (a, b), {low} <= a <= b <= {high}", **{name: values})


def random_part(img: Image, scale: Range, ratio: Range, largest: Sequence[int]) -> Part | None:
    """A part of random area (a share of the image's) and width / height: the first of ten that is small enough."""
    draw, (_, height, width) = default_generator.numpy(), get_dimensions(img)
    areas, ratios = height * width * draw.uniform(*scale, 10), np.exp(draw.uniform(*np.log(ratio), 10))
    for area, part_ratio in zip(areas.tolist(), ratios.tolist(), strict=True):
        h, w = round(math.sqrt(area / part_ratio)), round(math.sqrt(area * part_ratio))
        if 0 < h <= largest[0] and 0 < w <= largest[1]:
            return draw.integers(height - h + 1).item(), draw.integers(width - w + 1).item(), h, w
    return None


class RandomCrop(Transform):
    """A part (h, w), from a random place.

    Args:
        size: (h, w), or one number.
        padding, fill, padding_mode: of `pad`, which comes first.
        pad_if_needed: pad images that are smaller than `size`.
    """

    def __init__(
        self, size: Size, padding: Size | None = None, pad_if_needed: bool = False, fill: Fill = 0,
        padding_mode: str = "constant",
    ):  # fmt: skip
        super().__init__(locals())
        self.size = pair("RandomCrop", size)

    @staticmethod
    def get_params(img: Image, output_size: Sequence[int]) -> Part:
        """Top, left, height and width of the part."""
        draw, (_, height, width), (h, w) = default_generator.numpy(), get_dimensions(img), output_size
        fits = h <= height and w <= width
        require(fits, "RandomCrop", f"at most the image's ({height}, {width})", ShapeError, size=output_size)
        return draw.integers(height - h + 1).item(), draw.integers(width - w + 1).item(), h, w

    def forward(self, img: Image) -> Image:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, height, width = get_dimensions(img)
        missing = [max(self.size[1] - width, 0), max(self.size[0] - height, 0)]
        if self.pad_if_needed and any(missing):
            img = F.pad(img, missing, self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))


class RandomResizedCrop(Transform):
    """A part of random size and place, resized. Szegedy et al., "Going deeper with convolutions", 2015.

    Args:
        size: (h, w) of the result, or one number.
        scale: the least and the largest share of the image's area.
        ratio: the least and the largest width / height.
        interpolation, antialias: as for `resize`.
    """

    def __init__(
        self, size: Size, scale: Range = (0.08, 1.0), ratio: Range = (3 / 4, 4 / 3), interpolation: Mode = BILINEAR,
        antialias: bool | None = True,
    ):  # fmt: skip
        super().__init__(locals())
        self.size = pair("RandomResizedCrop", size)
        require_ranges("RandomResizedCrop", TINY, math.inf, scale=scale, ratio=ratio)

    @staticmethod
    def get_params(img: Image, scale: Range, ratio: Range) -> Part:
        """Top, left, height and width of the part; if none of ten fits, the largest in the middle."""
        _, height, width = get_dimensions(img)
        h, w = min(height, round(width / ratio[0])), min(width, round(height * ratio[1]))
        return random_part(img, scale, ratio, (height, width)) or ((height - h) // 2, (width - w) // 2, h, w)

    def forward(self, img: Image) -> Image:
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation, self.antialias)


RandomSizedCrop = RandomResizedCrop  # flowvision's other name


class RandomErasing(Transform):
    """A random part of a tensor (..., C, H, W) erased, with probability p. Zhong et al., "Random erasing", 2017.

    Args:
        p: the probability.
        scale: the least and the largest share of the image's area.
        ratio: the least and the largest height / width.
        value: what the part becomes: a number, one for each channel, or "random" for standard normal ones.
        inplace: write into the tensor.
    """

    def __init__(
        self, p: float = 0.5, scale: Range = (0.02, 0.33), ratio: Range = (0.3, 3.3),
        value: float | Sequence[float] | str = 0, inplace: bool = False,
    ):  # fmt: skip
        super().__init__(locals())
        require_ranges("RandomErasing", 0, 1, scale=scale)
        require_ranges("RandomErasing", TINY, math.inf, ratio=ratio)
        fits = value == "random" or isinstance(value, Real | tuple | list)
        require(fits, "RandomErasing", "a number, one for each channel, or 'random'", value=value)

    @staticmethod
    def get_params(img: Tensor, scale: Range, ratio: Range, value: Sequence[float] | None = None) -> tuple:
        """Top, left, height and width of the part, and what it becomes; None for random numbers."""
        channels, height, width = get_dimensions(img)
        part = random_part(img, scale, (1 / ratio[1], 1 / ratio[0]), (height - 1, width - 1))
        if part is None:
            return 0, 0, height, width, img
        return *part, randn(channels, *part[2:]) if value is None else tensor(value).reshape((-1, 1, 1))

    def forward(self, img: Tensor) -> Tensor:
        require(isinstance(img, Tensor), "RandomErasing", "a tensor: use ToTensor first", ArgumentTypeError, img=img)
        if not happens(self.p):
            return img
        value = [self.value] if isinstance(self.value, Real) else self.value
        expected = f"one number, or {get_dimensions(img)[0]} as the image has channels"
        require(len(value) in (1, img.shape[-3]) or value == "random", "RandomErasing", expected, value=value)
        part = self.get_params(img, self.scale, self.ratio, None if value == "random" else [*map(float, value)])
        return F.erase(img, *part, self.inplace)


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in random order.

    Args:
        brightness, contrast, saturation: x for a factor from max(0, 1 - x) to 1 + x; or the two ends.
        hue: x for a turn from -x to x of the colour circle, at most 0.5; or the two ends.
    """

    def __init__(self, brightness: Ends = 0, contrast: Ends = 0, saturation: Ends = 0, hue: Ends = 0):
        factors = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
        factors = {name: (max(0, 1 - x), 1 + x) if isinstance(x, Real) else x for name, x in factors.items()}
        hue = (-hue, hue) if isinstance(hue, Real) else hue
        require_ranges("ColorJitter", 0, math.inf, **factors)
        require_ranges("ColorJitter", -0.5, 0.5, hue=hue)
        factors = {name: None if x[0] == x[1] == 1 else tuple(x) for name, x in factors.items()}
        super().__init__({**factors, "hue": None if hue[0] == hue[1] == 0 else tuple(hue)})

    @staticmethod
    def get_params(*ranges: Range | None) -> tuple[list[int], float | None, float | None, float | None, float | None]:
        """The order, and the factors of brightness, contrast, saturation and hue."""
        draw = default_generator.numpy()
        return draw.permutation(4).tolist(), *[None if x is None else draw.uniform(*x) for x in ranges]

    def forward(self, img: Image) -> Image:
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        adjust = F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue
        for i in order:
            img = img if factors[i] is None else adjust[i](img, factors[i])
        return img


def angles(op: str, counts: Sequence[int] = (2,), **argument: Ends) -> list[float]:
    """The ends of the ranges that an argument gives; those of x are -x and x."""
    (degrees,) = argument.values()
    ends = [-degrees, degrees] if isinstance(degrees, Real) else list(degrees)
    fits = (
        len(ends) in counts
        and are_numbers(ends, len(ends))
        and all(a <= b for a, b in zip(ends[::2], ends[1::2], strict=True))
    )
    require(fits, op, f"a number of at least 0, or {' or '.join(map(str, counts))} ends of ranges", **argument)
    return ends


class RandomRotation(Transform):
    """Rotated by a random angle.

    Args:
        degrees: x for an angle from -x to x; or the two ends.
        interpolation, expand, center, fill: as for `rotate`.
    """

    def __init__(
        self, degrees: Ends, interpolation: Mode = NEAREST, expand: bool = False, center: Point | None = None,
        fill: Fill = 0,
    ):  # fmt: skip
        super().__init__(locals())
        self.degrees = angles("RandomRotation", degrees=degrees)
        check_center("RandomRotation", center)

    @staticmethod
    def get_params(degrees: Range) -> float:
        """The angle."""
        return default_generator.numpy().uniform(*degrees)

    def forward(self, img: Image) -> Image:
        angle = self.get_params(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(Transform):
    """Rotated, shifted, scaled and sheared at random.

    Args:
        degrees: x for an angle from -x to x; or the two ends.
        translate: the largest shifts, as shares of width and height.
        scale: the least and the largest factor.
        shear: as `degrees`, of the x axis; four numbers are the ends for x and for y.
        interpolation, fill, center: as for `affine`.
    """

    def __init__(
        self, degrees: Ends, translate: Range | None = None, scale: Range | None = None, shear: Ends | None = None,
        interpolation: Mode = NEAREST, fill: Fill = 0, center: Point | None = None,
    ):  # fmt: skip
        super().__init__(locals())
        self.degrees = angles("RandomAffine", degrees=degrees)
        check_center("RandomAffine", center)
        self.shear = None if shear is None else angles("RandomAffine", (2, 4), shear=shear)
        fits = translate is None or (len(translate) == 2 and all(0 <= x <= 1 for x in translate))
        require(fits, "RandomAffine", "two numbers from 0 to 1", translate=translate)
        require_ranges("RandomAffine", TINY, math.inf, scale=scale or (1, 1))

    @staticmethod
    def get_params(
        degrees: Range, translate: Range | None, scale_ranges: Range | None, shears: Range | None, img_size: Point
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
        """Angle, shift (x, y), scale and shear (x, y), for an image (w, h)."""
        draw = default_generator.numpy()
        x, y = (share * size for share, size in zip(translate or (0, 0), img_size, strict=True))
        shift = round(draw.uniform(-x, x)), round(draw.uniform(-y, y))
        ends = [*(shears or (0, 0)), 0, 0]
        scale = draw.uniform(*(scale_ranges or (1, 1)))
        return draw.uniform(*degrees), shift, scale, (draw.uniform(*ends[:2]), draw.uniform(*ends[2:4]))

    def forward(self, img: Image) -> Image:
        size = get_dimensions(img)[:0:-1]
        parameters = self.get_params(self.degrees, self.translate, self.scale, self.shear, size)
        return F.affine(img, *parameters, self.interpolation, self.fill, self.center)


class RandomPerspective(Transform):
    """The image seen from a random place, with probability p.

    Args:
        distortion_scale: how far corners move at most, as a share of half of the image.
        p: the probability.
        interpolation, fill: as for `perspective`.
    """

    def __init__(self, distortion_scale: float = 0.5, p: float = 0.5, interpolation: Mode = BILINEAR, fill: Fill = 0):
        super().__init__(locals())
        require(0 <= distortion_scale <= 1, "RandomPerspective", "0 to 1", distortion_scale=distortion_scale)

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float) -> tuple[list[list[int]], list[list[int]]]:
        """The corners (x, y) of the image, and where they move: inward."""
        farthest = [int(distortion_scale * (n // 2)) for n in (width, height)]
        moves = default_generator.numpy().integers(0, farthest, (4, 2), endpoint=True)
        corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]])
        inward = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
        return corners.tolist(), (corners + inward * moves).tolist()

    def forward(self, img: Image) -> Image:
        _, height, width = get_dimensions(img)
        if not happens(self.p):
            return img
        points = self.get_params(width, height, self.distortion_scale)
        return F.perspective(img, *points, self.interpolation, self.fill)


class GaussianBlur(Transform):
    """Blurred with a random standard deviation.

    Args:
        kernel_size: odd widths (w, h) of the kernel, or one for both.
        sigma: the least and the largest standard deviation, in pixels, or one number.
    """

    def __init__(self, kernel_size: Size, sigma: Ends = (0.1, 2.0)):
        kernel_size, sigma = pair("GaussianBlur", kernel_size), (sigma, sigma) if isinstance(sigma, Real) else sigma
        super().__init__(locals())
        require_ranges("GaussianBlur", TINY, math.inf, sigma=sigma)
        require(all(n % 2 for n in kernel_size), "GaussianBlur", "odd numbers", kernel_size=kernel_size)

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        """The standard deviation."""
        return default_generator.numpy().uniform(sigma_min, sigma_max)

    def forward(self, img: Image) -> Image:
        return F.gaussian_blur(img, self.kernel_size, self.get_params(*self.sigma))
