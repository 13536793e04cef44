"""Images of Pillow, arrays and tensors into each other; dtypes and normalization of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.dtype import dtype, float32, float64, get_default_dtype, int32, int64, uint8
from miniflow.errors import ArgumentTypeError, DTypeError, ShapeError
from miniflow.ops.creation import as_tensor, from_numpy
from miniflow.tensor import Tensor
from miniflow.vision.pillow import pillow
from miniflow.vision.transforms.image import is_pil, largest, require, white

OTHER_THAN_UINT8 = {"I": np.int32, "I;16": np.int16, "F": np.float32}  # by Pillow's mode
MODES = {  # by the number of channels and the dtype; the first one where none is named
    (1, "uint8"): ["L"], (1, "int16"): ["I;16"], (1, "int32"): ["I"], (1, "float32"): ["F"], (2, "uint8"): ["LA"],
    (3, "uint8"): ["RGB", "YCbCr", "HSV"], (4, "uint8"): ["RGBA", "CMYK", "RGBX"],
}  # fmt: skip


def to_tensor(pic: Any) -> Tensor:
    """A tensor (C, H, W) of an image of Pillow, or of an array (H, W) or (H, W, C).

    Bytes become floats from 0 to 1, of the default dtype; other numbers stay as they are.

    Raises:
        ArgumentTypeError: for other types.
        ShapeError: for arrays of other dims.

    >>> to_tensor(np.array([[[0, 255]], [[51, 102]]], np.uint8)).tolist()
    [[[0.0], [0.2...]], [[1.0], [0.4...]]]

    Source: `torchvision.transforms.functional.to_tensor`.
    """
    array = pic
    if is_pil(pic):
        array = np.array(pic, OTHER_THAN_UINT8.get(pic.mode, np.uint8)) * np.uint8(255 if pic.mode == "1" else 1)
    img = channels_first("to_tensor", array).contiguous()
    return img.to(get_default_dtype()) / 255 if img.dtype is uint8 else img


def channels_first(op: str, array: np.ndarray) -> Tensor:
    """(C, H, W) of (H, W) or (H, W, C)."""
    require(isinstance(array, np.ndarray), op, "an image of Pillow or an array", ArgumentTypeError, pic=array)
    require(array.ndim in (2, 3), op, "(H, W) or (H, W, C)", ShapeError, pic=array)
    return from_numpy(array).reshape((*array.shape[:2], -1)).permute(2, 0, 1)


def pil_to_tensor(pic: Any) -> Tensor:
    """The bytes (C, H, W) of an image of Pillow. Source: `torchvision.transforms.functional.pil_to_tensor`."""
    require(is_pil(pic), "pil_to_tensor", "an image of Pillow", ArgumentTypeError, pic=pic)
    fits, expected = not pic.mode.startswith("I;16"), "another mode, as there is no uint16: use pic.convert('I')"
    require(fits, "pil_to_tensor", expected, DTypeError, mode=pic.mode)
    return channels_first("pil_to_tensor", np.array(pic))


def to_pil_image(pic: Tensor | np.ndarray, mode: str | None = None) -> Any:
    """An image of Pillow of a tensor (C, H, W) or (H, W), or of an array (H, W, C) or (H, W).

    Floats are multiplied by 255, but for mode "F".

    Args:
        pic: with 1 to 4 channels.
        mode: Pillow's name of the colours; None for L, LA, RGB or RGBA, or what the dtype asks for.

    Raises:
        ArgumentTypeError: for other types.
        ShapeError: for other shapes.
        ArgumentError: for a mode that does not fit the channels and the dtype.

    Source: `torchvision.transforms.functional.to_pil_image`.
    """
    require(isinstance(pic, Tensor | np.ndarray), "to_pil_image", "a tensor or an array", ArgumentTypeError, pic=pic)
    array = pic if isinstance(pic, np.ndarray) else pic.numpy(force=True)
    array = array.transpose(1, 2, 0) if isinstance(pic, Tensor) and array.ndim == 3 else array
    array = array[:, :, None] if array.ndim == 2 else array
    expected = "two dims, or three with 1 to 4 channels"
    require(array.ndim == 3 and 1 <= array.shape[2] <= 4, "to_pil_image", expected, ShapeError, pic=pic)
    if array.dtype.kind == "f" and mode != "F":
        array = (array * 255).astype(np.uint8)
    height, width, channels = array.shape
    modes = MODES.get((channels, array.dtype.name), [])
    expected = " or ".join(modes) or "bytes, or one channel of int16, int32 or float32"
    fits = bool(modes) and mode in (None, *modes)
    require(fits, "to_pil_image", expected, mode=mode, dtype=array.dtype.name, channels=channels)
    return pillow().frombytes(mode or modes[0], (width, height), array.tobytes())


def convert_image_dtype(image: Tensor, dtype: dtype = float32) -> Tensor:
    """Another dtype, and its range: floats go from 0 to 1, integers from 0 to their largest.

    Raises:
        ArgumentTypeError: for what is not a tensor.
        DTypeError: from floats to integers of which they do not hold the largest.

    >>> import miniflow as flow
    >>> convert_image_dtype(flow.tensor([0.0, 0.5, 1.0]), flow.uint8).tolist()
    [0, 127, 255]

    Source: `torchvision.transforms.functional.convert_image_dtype`.
    """
    fits, expected = isinstance(image, Tensor) and hasattr(dtype, "numpy"), "a tensor, and a dtype such as flow.uint8"
    require(fits, "convert_image_dtype", expected, ArgumentTypeError, image=image, dtype=dtype)
    if image.dtype is dtype or (image.is_floating_point() and dtype.is_floating_point):
        return image.to(dtype)
    if dtype.is_floating_point:
        return image.to(dtype) / largest(image)
    old, new = largest(image), white(dtype)
    if image.is_floating_point():
        fits = dtype is not int64 and (dtype is not int32 or image.dtype is float64)
        require(fits, "convert_image_dtype", "an integer of fewer bits", DTypeError, image=image, dtype=dtype)
        return (image * (new + 1 - 1e-3)).to(dtype)  # of equal parts of 0 to 1, each integer has one
    if old > new:
        return (image // ((old + 1) // (new + 1))).to(dtype)
    return image.to(dtype) * ((new + 1) // (old + 1))


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(x - mean) / std for each channel.

    Args:
        tensor: (..., C, H, W), floats.
        mean, std: one number for each channel, or one for all.
        inplace: write into `tensor`.

    Raises:
        DTypeError: for integers.
        ShapeError: for other numbers of means than channels.
        ArgumentError: for a standard deviation of 0.

    >>> import miniflow as flow
    >>> normalize(flow.ones(2, 1, 1), mean=[0.5, 0.0], std=[0.5, 2.0]).flatten().tolist()
    [1.0, 0.5]

    Source: `torchvision.transforms.functional.normalize`.
    """
    require(isinstance(tensor, Tensor), "normalize", "a tensor: use to_tensor first", ArgumentTypeError, tensor=tensor)
    is_float, expected = tensor.is_floating_point(), "floats: use convert_image_dtype"
    require(is_float, "normalize", expected, DTypeError, tensor=tensor, dtype=tensor.dtype)
    require(tensor.ndim >= 3, "normalize", "(..., C, H, W)", ShapeError, tensor=tensor)
    require(bool(np.all(std)), "normalize", "no 0 in std, which divides", std=std)
    mean, std = (as_tensor(x, dtype=tensor.dtype, device=tensor.device).reshape((-1, 1, 1)) for x in (mean, std))
    fits = {len(mean), len(std)} <= {1, tensor.shape[-3]}
    expected = f"one number, or {tensor.shape[-3]} as the image has channels"
    require(fits, "normalize", expected, ShapeError, mean=mean.flatten().tolist(), std=std.flatten().tolist())
    return tensor.sub_(mean).div_(std) if inplace else (tensor - mean) / std
