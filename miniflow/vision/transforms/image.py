"""What transforms take: an image of Pillow, or a tensor (..., C, H, W), and how the two are told apart."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from numbers import Integral, Real
from typing import Any

import numpy as np

from miniflow.dtype import bool_, dtype, float64
from miniflow.errors import ArgumentError, ArgumentTypeError, ShapeError, refusal
from miniflow.tensor import Tensor

Image = Any  # a PIL.Image.Image or a Tensor


class InterpolationMode(Enum):
    """How a pixel between pixels is computed; tensors have the first four. Functions take Pillow's numbers, too.

    Source: `torchvision.transforms.InterpolationMode`.
    """

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
PILLOW_NUMBERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5, "nearest-exact": 0}


def mode_of(op: str, interpolation: InterpolationMode | int) -> str:
    """The name of a mode, which may be given by Pillow's number."""
    if type(interpolation) is int and 0 <= interpolation <= 5:
        return list(PILLOW_NUMBERS)[interpolation]
    expected = "an InterpolationMode, such as InterpolationMode.BILINEAR"
    require(isinstance(interpolation, InterpolationMode), op, expected, ArgumentTypeError, interpolation=interpolation)
    return interpolation.value


def require(condition: bool, op: str, expected: str, error: type[Exception] = ArgumentError, /, **got: Any) -> None:
    """Raise `error`, which says what was got and what is expected, unless a condition holds."""
    if not condition:
        raise refusal(error, op, expected, **got)


def is_pil(img: Any) -> bool:
    """Whether this is an image of Pillow; if there are any, Pillow has been imported."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(img, module.Image)


def on_pil(op: str, img: Any, channels: Sequence[int] = ()) -> bool:
    """Whether an image is one of Pillow's, and not a tensor.

    Args:
        op: who asks.
        channels: the numbers of channels that a tensor may have; any, if none is given.

    Raises:
        ArgumentTypeError: for other types.
        ShapeError: for tensors of less than two dims, or other numbers of channels.
    """
    if is_pil(img):
        return True
    expected = "an image of Pillow, or a tensor, which to_tensor makes of an array"
    require(isinstance(img, Tensor), op, expected, ArgumentTypeError, img=img)
    fits = img.ndim >= 2 and (not channels or get_dimensions(img)[0] in channels)
    require(fits, op, f"(..., {' or '.join(map(str, channels)) or 'C'}, H, W)", ShapeError, img=img)
    return False


def pil_version(on_image: Callable, channels: Sequence[int] = ()) -> Callable[[Callable], Callable]:
    """Decorate a function of tensors, with as many channels as given: `on_image` is the one for images of Pillow."""

    def decorate(on_tensor: Callable) -> Callable:
        @functools.wraps(on_tensor)
        def function(img: Image, *args: Any, **kwargs: Any) -> Any:
            chosen = on_image if on_pil(on_tensor.__name__, img, channels) else on_tensor
            return chosen(img, *args, **kwargs)

        return function

    return decorate


@pil_version(lambda img: [len(img.getbands()), img.height, img.width])
def get_dimensions(img: Image) -> list[int]:
    """Channels, height and width.

    >>> import miniflow as flow
    >>> get_dimensions(flow.zeros(3, 4, 5)), get_dimensions(flow.zeros(4, 5))
    ([3, 4, 5], [1, 4, 5])

    Source: `torchvision.transforms.functional.get_dimensions`.
    """
    return [1, 1, *img.shape][-3:] if img.ndim > 2 else [1, *img.shape]


def get_image_size(img: Image) -> list[int]:
    """Width and height. Source: `torchvision.transforms.functional.get_image_size`."""
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img: Image) -> int:
    """The number of channels. Source: `torchvision.transforms.functional.get_image_num_channels`."""
    return get_dimensions(img)[0]


def pair(op: str, size: int | Sequence[int]) -> list[int]:
    """[h, w], which may be given as one number."""
    sizes = [size] if isinstance(size, Integral) else list(size) if isinstance(size, tuple | list) else []
    fits = len(sizes) in (1, 2) and all(isinstance(n, Integral) and n > 0 for n in sizes)
    require(fits, op, "an integer above 0, or two of them (h, w)", size=size)
    return [int(sizes[0]), int(sizes[-1])]


def are_numbers(values: object, count: int) -> bool:
    """Whether values are a tuple or list of `count` numbers."""
    return isinstance(values, tuple | list) and len(values) == count and all(isinstance(x, Real) for x in values)


def check_center(op: str, center: object) -> None:
    """Raise ArgumentTypeError unless a center is None or two numbers."""
    fits = center is None or are_numbers(center, 2)
    require(fits, op, "two numbers (x, y), or None for the middle", ArgumentTypeError, center=center)


def white(kind: dtype) -> int:
    """1 for floats and truth values, and the largest of integers."""
    return 1 if kind.is_floating_point or kind is bool_ else int(np.iinfo(kind.numpy).max)


def largest(img: Tensor) -> int:
    """What white is."""
    return white(img.dtype)


def in_floats(img: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """A function of floats (N, C, H, W), applied to an image: integers are computed in float32, and rounded."""
    x = img if img.dtype is float64 else img.float()
    y = function(x.reshape((-1, *get_dimensions(img))))
    y = y.reshape((*img.shape[:-2], *y.shape[-2:]))
    return (y if img.is_floating_point() else y.round()).to(img.dtype)
