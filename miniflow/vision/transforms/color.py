"""What colour the pixels are: brightness, contrast, hue and histograms; blurred and erased images.

Of tensors, floats go from 0 (black) to 1, and integers to the largest of their dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np

from miniflow.dtype import float32, uint8
from miniflow.errors import ArgumentTypeError, DTypeError
from miniflow.nn import functional as F
from miniflow.ops.creation import from_numpy
from miniflow.ops.indexing import where
from miniflow.ops.joining import stack
from miniflow.ops.statistics import bincount
from miniflow.tensor import Tensor
from miniflow.vision.pillow import pillow
from miniflow.vision.transforms.conversion import convert_image_dtype, pil_to_tensor, to_pil_image
from miniflow.vision.transforms.image import (
    Image,
    in_floats,
    is_pil,
    largest,
    on_pil,
    pair,
    pil_version,
    require,
)

GRAY_OR_RGB = (1, 3)
BYTES = "flow.uint8: use convert_image_dtype"
LUMINANCE = (0.2989, 0.587, 0.114)  # how bright red, green and blue are: ITU-R BT.601
SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13  # Pillow's ImageFilter.SMOOTH


def blend(img: Tensor, other: Tensor | float, ratio: float) -> Tensor:
    """ratio img + (1 - ratio) other, within the range of the dtype."""
    ratio = float(ratio)  # bytes times an integer would be bytes
    return (img * ratio + other * (1 - ratio)).clamp(0, largest(img)).to(img.dtype)


def enhances(op: str, img: Image, factor: float) -> bool:
    """`on_pil` for the functions below: a factor of 0 makes a dull image, 1 the image itself, more its opposite."""
    require(isinstance(factor, Real) and factor >= 0, op, "a factor of at least 0", factor=factor)
    return on_pil(op, img, GRAY_OR_RGB)


def adjust_brightness(img: Image, brightness_factor: float) -> Image:
    """Brighter than black by a factor. Source: `torchvision.transforms.functional.adjust_brightness`.

    >>> import miniflow as flow
    >>> adjust_brightness(flow.tensor([[[0, 50, 200]]], dtype=flow.uint8), 2.0).tolist()
    [[[0, 100, 255]]]
    """
    if enhances("adjust_brightness", img, brightness_factor):
        return pillow("ImageEnhance").Brightness(img).enhance(brightness_factor)
    return blend(img, 0.0, brightness_factor)


def adjust_contrast(img: Image, contrast_factor: float) -> Image:
    """Farther from the mean gray by a factor. Source: `torchvision.transforms.functional.adjust_contrast`."""
    if enhances("adjust_contrast", img, contrast_factor):
        return pillow("ImageEnhance").Contrast(img).enhance(contrast_factor)
    gray = rgb_to_grayscale(img)
    gray = gray if gray.is_floating_point() else gray.float()
    return blend(img, gray.mean((-3, -2, -1), keepdim=True), contrast_factor)


def adjust_saturation(img: Image, saturation_factor: float) -> Image:
    """Farther from gray by a factor. Source: `torchvision.transforms.functional.adjust_saturation`."""
    if enhances("adjust_saturation", img, saturation_factor):
        return pillow("ImageEnhance").Color(img).enhance(saturation_factor)
    return img if img.shape[-3] == 1 else blend(img, rgb_to_grayscale(img), saturation_factor)


def adjust_sharpness(img: Image, sharpness_factor: float) -> Image:
    """Farther from a smoothed image by a factor. Source: `torchvision.transforms.functional.adjust_sharpness`."""
    if enhances("adjust_sharpness", img, sharpness_factor):
        return pillow("ImageEnhance").Sharpness(img).enhance(sharpness_factor)
    if min(img.shape[-2:]) <= 2:
        return img
    smooth = img.clone()
    smooth[..., 1:-1, 1:-1] = filtered(img, SMOOTH)
    return blend(img, smooth, sharpness_factor)


def filtered(img: Tensor, kernel: np.ndarray, border: Sequence[int] = (0, 0, 0, 0)) -> Tensor:
    """Each channel correlated with a kernel (h, w), after reflected borders: left, right, top, bottom."""

    def correlated(x: Tensor) -> Tensor:  # (N, C, H, W)
        weight = from_numpy(kernel).to(x.device, x.dtype).expand((x.shape[1], 1, *kernel.shape))
        return F.conv2d(F.pad(x, border, mode="reflect"), weight, groups=x.shape[1])

    return in_floats(img, correlated)


def gaussian_blur(img: Image, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None) -> Image:
    """Each pixel the mean of those around it, with the weights of a normal distribution.

    Args:
        img: an image or a tensor.
        kernel_size: odd widths of x and of y, or one for both.
        sigma: standard deviations of x and of y, in pixels, or one for both; None for 0.15 kernel_size + 0.35.

    Source: `torchvision.transforms.functional.gaussian_blur`.
    """
    sizes = pair("gaussian_blur", kernel_size)
    sigma = [0.15 * n + 0.35 for n in sizes] if sigma is None else [sigma] if isinstance(sigma, Real) else list(sigma)
    fits = all(n % 2 for n in sizes) and len(sigma) in (1, 2) and all(s > 0 for s in sigma)
    expected = "odd sizes, and one or two numbers sigma above 0"
    require(fits, "gaussian_blur", expected, kernel_size=kernel_size, sigma=sigma)
    if on_pil("gaussian_blur", img):
        return to_pil_image(gaussian_blur(pil_to_tensor(img), kernel_size, sigma), img.mode)
    places = [np.arange(n, dtype=np.float32) - (n - 1) / 2 for n in sizes]
    weights = [np.exp(-0.5 * (x / np.float32(s)) ** 2) for x, s in zip(places, (sigma[0], sigma[-1]), strict=True)]
    across, down = (w / w.sum() for w in weights)
    return filtered(img, np.outer(down, across), [sizes[0] // 2] * 2 + [sizes[1] // 2] * 2)


def adjust_hue(img: Image, hue_factor: float) -> Image:
    """Colours moved around the colour circle by `hue_factor` of a turn, from -0.5 to 0.5.

    Source: `torchvision.transforms.functional.adjust_hue`.
    """
    fits = isinstance(hue_factor, Real) and -0.5 <= hue_factor <= 0.5
    require(fits, "adjust_hue", "a number from -0.5 to 0.5", hue_factor=hue_factor)
    if on_pil("adjust_hue", img, GRAY_OR_RGB):
        if img.mode in ("L", "1", "I", "F"):
            return img
        hue, *others = img.convert("HSV").split()
        hue = hue.point([(n + int(hue_factor * 255)) % 256 for n in range(256)])
        return pillow("Image").merge("HSV", (hue, *others)).convert(img.mode)
    if img.shape[-3] == 1:
        return img
    hue, saturation, value = hsv_of_rgb(convert_image_dtype(img, float32))
    return convert_image_dtype(rgb_of_hsv((hue + hue_factor) % 1.0, saturation, value), img.dtype)


def hsv_of_rgb(img: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value, from 0 to 1, of RGB (..., 3, H, W). Smith, "Color gamut transform pairs", 1978."""
    red, green, blue = img.unbind(-3)
    value, range = img.amax(-3), img.amax(-3) - img.amin(-3)
    divisor = where(range == 0, 1.0, range)
    after_green = where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor)
    hue = where(value == red, (green - blue) / divisor, after_green) / 6 % 1.0
    return where(range == 0, 0.0, hue), range / where(value == 0, 1.0, value), value


def rgb_of_hsv(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """The inverse of `hsv_of_rgb`: each channel falls from `value` where the hue is farther from its colour."""
    distances = [(n + hue * 6) % 6 for n in (5, 3, 1)]  # red, green, blue
    amounts = [where(k < 2, k, 4 - k).clamp(0, 1) for k in distances]
    return stack([value - value * saturation * amount for amount in amounts], -3)


def adjust_gamma(img: Image, gamma: float, gain: float = 1) -> Image:
    """gain x^gamma, of x from 0 to 1: above 1, shadows are darker. Source: `torchvision.transforms.functional`."""
    require(isinstance(gamma, Real) and gamma >= 0, "adjust_gamma", "a gamma of at least 0", gamma=gamma)
    if on_pil("adjust_gamma", img, GRAY_OR_RGB):
        table = [int((256 - 1e-3) * gain * (n / 255) ** gamma) for n in range(256)]
        return img.convert("RGB").point(table * 3).convert(img.mode)
    x = img if img.is_floating_point() else convert_image_dtype(img, float32)
    return convert_image_dtype((gain * x**gamma).clamp(0, 1), img.dtype)


def rgb_to_grayscale(img: Image, num_output_channels: int = 1) -> Image:
    """How bright the pixels are, in one channel or three equal ones: L = 0.2989 R + 0.587 G + 0.114 B.

    Source: `torchvision.transforms.functional.rgb_to_grayscale`.
    """
    count = num_output_channels
    require(count in (1, 3), "rgb_to_grayscale", "1 or 3", num_output_channels=count)
    if on_pil("rgb_to_grayscale", img, GRAY_OR_RGB):
        gray = img.convert("L")
        return gray if count == 1 else pillow("Image").merge("RGB", [gray] * 3)
    gray = img.clone()
    if img.shape[-3] == 3:
        red, green, blue = (x * weight for x, weight in zip(img.unbind(-3), LUMINANCE, strict=True))
        gray = (red + green + blue).to(img.dtype).unsqueeze(-3)
    return gray.expand((*img.shape[:-3], count, *img.shape[-2:]))


def to_grayscale(img: Image, num_output_channels: int = 1) -> Image:
    """`rgb_to_grayscale` of an image of Pillow. Source: `torchvision.transforms.functional.to_grayscale`."""
    require(is_pil(img), "to_grayscale", "an image of Pillow: use rgb_to_grayscale", ArgumentTypeError, img=img)
    return rgb_to_grayscale(img, num_output_channels)


@pil_version(lambda img: pillow("ImageOps").invert(img), GRAY_OR_RGB)
def invert(img: Image) -> Image:
    """Black and white exchanged. Source: `torchvision.transforms.functional.invert`."""
    return largest(img) - img


def posterize(img: Image, bits: int) -> Image:
    """The upper bits of each byte. Source: `torchvision.transforms.functional.posterize`.

    >>> import miniflow as flow
    >>> posterize(flow.tensor([[[15, 16, 255]]], dtype=flow.uint8), 4).tolist()
    [[[0, 16, 240]]]
    """
    require(isinstance(bits, Integral) and 0 <= bits <= 8, "posterize", "an integer from 0 to 8", bits=bits)
    if on_pil("posterize", img, GRAY_OR_RGB):
        return pillow("ImageOps").posterize(img, bits) if bits else pillow().new(img.mode, img.size)
    require(img.dtype is uint8, "posterize", BYTES, DTypeError, img=img, dtype=img.dtype)
    return img & 256 - 2 ** (8 - bits)


@pil_version(lambda img, threshold: pillow("ImageOps").solarize(img, threshold), GRAY_OR_RGB)
def solarize(img: Image, threshold: float) -> Image:
    """What is at least `threshold` is inverted. Source: `torchvision.transforms.functional.solarize`."""
    expected = f"at most {largest(img)}, which is white"
    fits = isinstance(threshold, Real) and threshold <= largest(img)
    require(fits, "solarize", expected, threshold=threshold)
    return where(img >= threshold, invert(img), img)


@pil_version(lambda img: pillow("ImageOps").autocontrast(img), GRAY_OR_RGB)
def autocontrast(img: Image) -> Image:
    """Each channel stretched from black to white. Source: `torchvision.transforms.functional.autocontrast`."""
    x = img if img.is_floating_point() else img.float()
    low, range = x.amin((-2, -1), keepdim=True), x.amax((-2, -1), keepdim=True) - x.amin((-2, -1), keepdim=True)
    stretched = (x - low) * (largest(img) / where(range == 0, 1.0, range))
    return where(range == 0, x, stretched).clamp(0, largest(img)).to(img.dtype)


@pil_version(lambda img: pillow("ImageOps").equalize(img), GRAY_OR_RGB)
def equalize(img: Image) -> Image:
    """Each channel's values spread, so that all are about as frequent.

    Source: `torchvision.transforms.functional.equalize`.
    """
    require(img.dtype is uint8, "equalize", BYTES, DTypeError, img=img, dtype=img.dtype)
    channels = img.reshape((-1, img.shape[-2] * img.shape[-1]))
    return stack([equalized(channel) for channel in channels]).reshape(img.shape)


def equalized(channel: Tensor) -> Tensor:
    """Bytes (pixels,), of which n is replaced by how many pixels are darker, in steps of 1 / 255 of all."""
    histogram = bincount(channel, minlength=256)
    brightest = histogram[channel.max().item()].item()
    step = (len(channel) - brightest) // 255
    if step == 0:
        return channel
    darker = histogram.cumsum(0) - histogram
    return ((darker + step // 2) // step).clamp(0, 255)[channel.long()].to(channel.dtype)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Tensor | float, inplace: bool = False) -> Tensor:
    """A tensor (..., C, H, W) in which rows i .. i + h - 1 and columns j .. j + w - 1 are v.

    Source: `torchvision.transforms.functional.erase`.
    """
    require(isinstance(img, Tensor), "erase", "a tensor: use to_tensor first", ArgumentTypeError, img=img)
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v.to(img.device) if isinstance(v, Tensor) else v
    return img
