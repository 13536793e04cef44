"""Where the pixels go: resized, cropped, padded, flipped, rotated and distorted images.

Sizes are (h, w); points and shifts are (x, y), in pixels, from the upper left corner to the right and down. A `fill` is
the colour outside of the image: a number, or one for each channel; None for 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from miniflow.dtype import uint8
from miniflow.errors import ArgumentTypeError, ShapeError
from miniflow.nn import functional as F
from miniflow.ops.creation import from_numpy, ones_like
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.pillow import pillow
from miniflow.vision.transforms.image import (
    BILINEAR,
    NEAREST,
    PILLOW_NUMBERS,
    Image,
    InterpolationMode,
    are_numbers,
    check_center,
    get_dimensions,
    in_floats,
    mode_of,
    on_pil,
    pair,
    pil_version,
    require,
)

BORDERS = ("constant", "edge", "reflect", "symmetric")
Fill = float | Sequence[float] | None
Size = int | Sequence[int]
Point = Sequence[float]


@pil_version(lambda img: pillow("ImageOps").mirror(img))
def hflip(img: Image) -> Image:
    """Left and right exchanged. Source: `torchvision.transforms.functional.hflip`."""
    return img.flip(-1)


@pil_version(lambda img: pillow("ImageOps").flip(img))
def vflip(img: Image) -> Image:
    """Top and bottom exchanged. Source: `torchvision.transforms.functional.vflip`."""
    return img.flip(-2)


def resize(
    img: Image, size: Size, interpolation: InterpolationMode = BILINEAR, max_size: int | None = None,
    antialias: bool | None = True,
) -> Image:  # fmt: skip
    """Another size.

    Args:
        img: tensors have nearest, bilinear and bicubic interpolation.
        size: (h, w); or the shorter side, to which the other one is in proportion.
        interpolation: how a pixel between pixels is computed.
        max_size: of the longer side, where `size` is one number.
        antialias: let smaller tensors hold all of the larger ones; images of Pillow always do.

    >>> import miniflow as flow
    >>> resize(flow.zeros(3, 40, 60), 20).shape
    miniflow.Size([3, 20, 30])

    Source: `torchvision.transforms.functional.resize`.
    """
    mode, new = mode_of("resize", interpolation), resized_size(img, size, max_size)
    if get_dimensions(img)[1:] == new:
        return img
    if on_pil("resize", img):
        return img.resize(new[::-1], PILLOW_NUMBERS[mode])
    smooth = mode in ("bilinear", "bicubic")

    def resized(x: Tensor) -> Tensor:  # (N, C, H, W)
        y = F.interpolate(x, new, mode=mode, antialias=smooth and bool(antialias))
        return y.clamp(0, 255) if img.dtype is uint8 else y  # bicubic interpolation goes beyond

    return in_floats(img, resized)


def resized_size(img: Image, size: Size, max_size: int | None) -> list[int]:
    """[h, w] that `resize` makes."""
    _, height, width = get_dimensions(img)
    new = pair("resize", size)
    is_two = isinstance(size, tuple | list) and len(size) == 2
    fits = max_size is None or (not is_two and max_size > new[0])
    require(fits, "resize", "a max_size above the one number for the shorter side", size=size, max_size=max_size)
    if is_two:
        return new
    short, long = new[0], int(new[0] * max(height, width) / min(height, width))
    if max_size is not None and long > max_size:
        short, long = int(max_size * short / long), max_size
    return [long, short] if width <= height else [short, long]


def pad(img: Image, padding: Size, fill: Fill = 0, padding_mode: str = "constant") -> Image:
    """A larger image, with a border.

    Args:
        img: an image or a tensor.
        padding: one width; two, of left and right and of top and bottom; or four, of left, top, right and bottom.
            Negative ones cut off.
        fill: the colour of a constant border; of tensors one number.
        padding_mode: what the border holds: "constant", "edge" (copies of the outermost pixel), "reflect" (mirrored at
            the outermost pixel) or "symmetric" (mirrored at its outer edge).

    >>> import miniflow as flow
    >>> pad(flow.tensor([[1, 2, 3]]), [2, 0, 1, 0], padding_mode="reflect").tolist()
    [[3, 2, 1, 2, 3, 2]]

    Source: `torchvision.transforms.functional.pad`.
    """
    widths = [padding] if isinstance(padding, Integral) else list(padding) if isinstance(padding, tuple | list) else []
    fits = len(widths) in (1, 2, 4) and padding_mode in BORDERS
    require(fits, "pad", f"1, 2 or 4 widths, and a mode of {BORDERS}", padding=padding, padding_mode=padding_mode)
    left, top, right, bottom = widths * (4 // len(widths))
    is_constant = padding_mode == "constant"
    if not on_pil("pad", img) and is_constant:
        require(fill is None or isinstance(fill, Real), "pad", "one number for a tensor", ArgumentTypeError, fill=fill)
        return F.pad(img, [left, right, top, bottom], value=fill or 0)
    _, height, width = get_dimensions(img)
    rows, columns = (bordered(*n, padding_mode) for n in ((height, top, bottom), (width, left, right)))
    if isinstance(img, Tensor):
        rows, columns = from_numpy(rows).to(img.device), from_numpy(columns).to(img.device)
        return img.index_select(-2, rows).index_select(-1, columns)
    if is_constant:
        result = pillow("ImageOps").expand(img, (left, top, right, bottom), color_of(img, fill))
    else:
        result = pillow().fromarray(np.asarray(img)[rows[:, None], columns])
    if img.mode == "P":
        result.putpalette(img.getpalette())
    return result


def bordered(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Which of n pixels are in a row with a border."""
    inside = np.arange(max(-before, 0), n - max(-after, 0))
    return np.pad(inside, (max(before, 0), max(after, 0)), mode=mode)


def color_of(img: Any, fill: Fill) -> Any:
    """A fill as Pillow takes it: a number for each channel, or one if there is one channel."""
    channels, as_number = len(img.getbands()), float if img.mode == "F" else int
    numbers = [as_number(x) for x in ([fill or 0] if fill is None or isinstance(fill, Real) else fill)]
    require(len(numbers) in (1, channels), "fill", f"one number, or {channels} as the image has channels", fill=fill)
    return numbers[0] if channels == 1 else tuple(numbers * (channels // len(numbers)))


@pil_version(lambda img, top, left, height, width: img.crop((left, top, left + width, top + height)))
def crop(img: Image, top: int, left: int, height: int, width: int) -> Image:
    """A part of an image; what is outside of it is 0.

    >>> import miniflow as flow
    >>> crop(flow.tensor([[1, 2], [3, 4]]), top=1, left=0, height=2, width=2).tolist()
    [[3, 4], [0, 0]]

    Source: `torchvision.transforms.functional.crop`.
    """
    numbers = {"top": top, "left": left, "height": height, "width": width}
    require(all(isinstance(n, Integral) for n in numbers.values()), "crop", "integers", ArgumentTypeError, **numbers)
    y0, y1 = np.clip([top, top + height], 0, img.shape[-2]).tolist()
    x0, x1 = np.clip([left, left + width], 0, img.shape[-1]).tolist()
    before_x, before_y = min(max(-left, 0), width), min(max(-top, 0), height)
    outside = [before_x, before_y, width - before_x - (x1 - x0), height - before_y - (y1 - y0)]
    part = img[..., y0:y1, x0:x1]
    return pad(part, outside) if any(outside) else part


def center_crop(img: Image, output_size: Size) -> Image:
    """The part (h, w) in the middle. Source: `torchvision.transforms.functional.center_crop`."""
    height, width = pair("center_crop", output_size)
    _, h, w = get_dimensions(img)
    if width > w or height > h:
        x, y = max(width - w, 0), max(height - h, 0)
        img = pad(img, [x // 2, y // 2, (x + 1) // 2, (y + 1) // 2])
        _, h, w = get_dimensions(img)
    return crop(img, round((h - height) / 2), round((w - width) / 2), height, width)


def resized_crop(
    img: Image, top: int, left: int, height: int, width: int, size: Size, interpolation: InterpolationMode = BILINEAR,
    antialias: bool | None = True,
) -> Image:  # fmt: skip
    """`resize` of a `crop`. Source: `torchvision.transforms.functional.resized_crop`."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def five_crop(img: Image, size: Size) -> tuple[Image, ...]:
    """The four corners (h, w) and the middle. Source: `torchvision.transforms.functional.five_crop`."""
    height, width = pair("five_crop", size)
    _, h, w = get_dimensions(img)
    require(height <= h and width <= w, "five_crop", f"at most the image's ({h}, {w})", ShapeError, size=size)
    corners = [crop(img, top, left, height, width) for top in (0, h - height) for left in (0, w - width)]
    return (*corners, center_crop(img, [height, width]))


def ten_crop(img: Image, size: Size, vertical_flip: bool = False) -> tuple[Image, ...]:
    """`five_crop` of an image and of its mirror image. Source: `torchvision.transforms.functional.ten_crop`."""
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


def affine(
    img: Image, angle: float, translate: Sequence[int], scale: float, shear: float | Sequence[float],
    interpolation: InterpolationMode = NEAREST, fill: Fill = None, center: Point | None = None,
) -> Image:  # fmt: skip
    """Rotated, sheared, scaled and shifted, around `center`.

    Args:
        img: tensors have nearest and bilinear interpolation.
        angle: in degrees, clockwise.
        translate: (x, y).
        scale: above 0.
        shear: in degrees, of the x and of the y axis; a number is that of x.
        interpolation: how a pixel between pixels is computed.
        fill: the colour outside of the image.
        center: (x, y); None for the middle.

    Source: `torchvision.transforms.functional.affine`.
    """
    require(isinstance(angle, Real), "affine", "a number of degrees", ArgumentTypeError, angle=angle)
    check_center("affine", center)
    shear = [shear, 0.0] if isinstance(shear, Real) else [*shear] * (2 if len(shear) == 1 else 1)
    fits = are_numbers(translate, 2) and are_numbers(shear, 2) and isinstance(scale, Real) and scale > 0
    expected = "two numbers of translate and shear, and a scale above 0"
    require(fits, "affine", expected, translate=translate, scale=scale, shear=shear)
    matrix = inverse_affine(img, angle, translate, scale, shear, center)
    return warp("affine", img, matrix, interpolation, fill)


def inverse_affine(
    img: Image, angle: float, shift: Point, scale: float, shear: Point, center: Point | None
) -> list[float]:
    """[a, b, c, d, e, f]: the pixel (x, y) of the result is taken from (a x + b y + c, d x + e y + f).

    Around the center (p, q), the image is multiplied by s R S, with a rotation R and a shear S, and shifted:

        R S = [[cos(r - v) / cos(v), -cos(r - v) tan(u) / cos(v) - sin(r)],
               [sin(r - v) / cos(v), -sin(r - v) tan(u) / cos(v) + cos(r)]],  of which the determinant is 1
    """
    r, u, v = map(math.radians, (angle, *shear))
    a, b = math.cos(r - v) / math.cos(v), -math.cos(r - v) * math.tan(u) / math.cos(v) - math.sin(r)
    d, e = math.sin(r - v) / math.cos(v), -math.sin(r - v) * math.tan(u) / math.cos(v) + math.cos(r)
    a, b, d, e = (x / scale for x in (e, -b, -d, a))
    _, height, width = get_dimensions(img)
    p, q = (width * 0.5, height * 0.5) if center is None else center
    x, y = -p - shift[0], -q - shift[1]
    return [a, b, a * x + b * y + p, d, e, d * x + e * y + q]


def rotate(
    img: Image, angle: float, interpolation: InterpolationMode = NEAREST, expand: bool = False,
    center: Point | None = None, fill: Fill = None,
) -> Image:  # fmt: skip
    """Rotated counter-clockwise.

    Args:
        img: tensors have nearest and bilinear interpolation.
        angle: in degrees, counter-clockwise.
        interpolation: how a pixel between pixels is computed.
        expand: let the result be as large as the whole of an image that is rotated around its middle.
        center: (x, y); None for the middle.
        fill: the colour outside of the image.

    Source: `torchvision.transforms.functional.rotate`.
    """
    require(isinstance(angle, Real), "rotate", "a number of degrees", ArgumentTypeError, angle=angle)
    check_center("rotate", center)
    if on_pil("rotate", img):
        mode = PILLOW_NUMBERS[mode_of("rotate", interpolation)]
        return img.rotate(angle, mode, expand, center, fillcolor=color_of(img, fill))
    matrix = inverse_affine(img, -angle, [0, 0], 1.0, [0, 0], center)
    if not expand:
        return warp("rotate", img, matrix, interpolation, fill)
    a, b, c, d, e, f = matrix
    _, height, width = get_dimensions(img)
    corners = np.array([[a * x + b * y + c, d * x + e * y + f] for x in (0, width) for y in (0, height)])
    low, high = corners.min(0).round(4), corners.max(0).round(4)  # lest a right angle add a pixel
    w, h = (np.ceil(high) - np.floor(low)).astype(int).tolist()
    x, y = (width - w) / 2, (height - h) / 2  # the upper left corner of the result
    return warp("rotate", img, [a, b, a * x + b * y + c, d, e, d * x + e * y + f], interpolation, fill, [h, w])


def perspective(
    img: Image, startpoints: Sequence[Point], endpoints: Sequence[Point], interpolation: InterpolationMode = BILINEAR,
    fill: Fill = None,
) -> Image:  # fmt: skip
    """The image seen from elsewhere: four points (x, y) of it, `startpoints`, are moved to `endpoints`.

    Args:
        img: tensors have nearest and bilinear interpolation.
        startpoints, endpoints: the corners: top left, top right, bottom right, bottom left.
        interpolation: how a pixel between pixels is computed.
        fill: the colour outside of the image.

    Source: `torchvision.transforms.functional.perspective`.
    """
    fits = np.shape(startpoints) == np.shape(endpoints) == (4, 2)
    require(fits, "perspective", "four points (x, y) of each", startpoints=startpoints, endpoints=endpoints)
    rows = []  # of the equations u z = a x + b y + c and v z = d x + e y + f, see `warp`
    for (x, y), (u, v) in zip(endpoints, startpoints, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    rows = np.array(rows, float)
    require(np.linalg.matrix_rank(rows) == 8, "perspective", "no three points in line", endpoints=endpoints)
    found = np.linalg.solve(rows, np.ravel(startpoints)).astype(np.float32)
    return warp("perspective", img, found.tolist(), interpolation, fill)


def warp(
    op: str, img: Image, coefficients: Sequence[float], interpolation: InterpolationMode, fill: Fill,
    size: Sequence[int] | None = None,
) -> Image:  # fmt: skip
    """The pixel (x, y) of the result is taken from ((a x + b y + c) / z, (d x + e y + f) / z), z = g x + h y + 1.

    Args:
        op: who asks.
        img: an image or a tensor.
        coefficients: a to f, or a to h, of the middles of the pixels.
        interpolation: how a pixel between pixels is computed.
        fill: the colour outside of the image.
        size: (h, w) of the result; None for that of the image.
    """
    mode = mode_of(op, interpolation)
    if on_pil(op, img):
        method = pillow().Transform.AFFINE if len(coefficients) == 6 else pillow().Transform.PERSPECTIVE
        return img.transform(img.size, method, coefficients, PILLOW_NUMBERS[mode], fillcolor=color_of(img, fill))
    channels, height, width = get_dimensions(img)
    require(mode in ("nearest", "bilinear"), op, "nearest or bilinear for a tensor", interpolation=mode)
    fits = not isinstance(fill, tuple | list) or len(fill) in (1, channels)
    require(fits, op, f"one number to fill, or {channels} as the image has channels", fill=fill)
    a, b, c, d, e, f, g, h = [*coefficients, 0, 0][:8]
    rows, columns = size or (height, width)
    x, y = np.arange(columns) + 0.5, np.arange(rows)[:, None] + 0.5
    z = g * x + h * y + 1
    u, v = (a * x + b * y + c) / z, (d * x + e * y + f) / z
    positions = np.stack([u / (width / 2) - 1, v / (height / 2) - 1], -1)  # from -1 to 1 across the image

    def sampled(x: Tensor) -> Tensor:  # (N, C, H, W)
        grid = from_numpy(positions).to(x.device, x.dtype).expand((len(x), *positions.shape))
        if fill is None:
            return F.grid_sample(x, grid, mode=mode, align_corners=False)
        y = F.grid_sample(cat([x, ones_like(x[:, :1])], 1), grid, mode=mode, align_corners=False)
        inside = y[:, -1:]  # how much of a pixel is within the image
        color = from_numpy(np.array(fill, float).reshape(-1, 1, 1)).to(x.device, x.dtype)
        return y[:, :-1] * inside + (1 - inside) * color

    return in_floats(img, sampled)
