"""Layers for the images of a batch that differ in size: tensors of dtype `flow.tensor_buffer`, see `ops.tensor_buffer`.

An image is an array (H, W, C). These run before a network, on the CPU; nothing is differentiated, and no graph records
them. They have the names of OneFlow, where some classes are written small.

Source: `oneflow.nn.image`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np

from miniflow.dtype import dtype, float32, int32, uint8
from miniflow.errors import ArgumentError, DataError, DTypeError, ShapeError, refusal
from miniflow.nn.modules.module import Module
from miniflow.ops.creation import from_numpy
from miniflow.ops.tensor_buffer import buffer_of, elements_of
from miniflow.ops.vision import cubic_kernel, linear_kernel, resampling
from miniflow.tensor import Tensor

KERNELS = {"bilinear": (linear_kernel, 1), "bicubic": (cubic_kernel, 2)}
COLOR_SPACES = {"RGB": "RGB", "BGR": "RGB", "GRAY": "L"}  # what is asked for: what Pillow decodes


def images_of(x: Tensor, op: str) -> list[np.ndarray]:
    """The arrays of a tensor buffer, each (H, W, C)."""
    images = elements_of(x, op)
    for i, image in enumerate(images):
        if image.ndim != 3:
            raise ShapeError(f"{op}: got image {i} of shape {image.shape}; expected (H, W, C)")
    return images


class flip(Module):
    """Flip each image by its code: 0 not at all, 1 left and right, 2 top and bottom, 3 both.

    >>> import miniflow as flow
    >>> images = flow.tensor_list_to_tensor_buffer([np.arange(6).reshape(1, 2, 3), np.arange(6).reshape(2, 1, 3)])
    >>> flow.nn.image.flip()(images, flow.tensor([1, 1], dtype=flow.int8)).tolist()
    [[[[3, 4, 5], [0, 1, 2]]], [[[0, 1, 2]], [[3, 4, 5]]]]

    Source: `oneflow.nn.image.flip`.
    """

    def forward(self, images: Tensor, flip_code: Tensor) -> Tensor:
        """Args: images (N,), dtype `tensor_buffer`, of (H, W, C); flip_code (N,), integers. Returns: as `images`."""
        if flip_code.is_floating_point():
            raise DTypeError(f"flip: got flip_code of {flip_code.dtype}; expected integers: use flip_code.int()")
        arrays, codes = images_of(images, "flip"), flip_code.reshape(-1).tolist()
        if len(codes) != len(arrays) or not set(codes) <= {0, 1, 2, 3}:
            raise ArgumentError(f"flip: got flip_code={codes}; expected {len(arrays)} numbers from 0 to 3")
        flipped = [x[:: -1 if code & 2 else 1, :: -1 if code & 1 else 1] for x, code in zip(arrays, codes, strict=True)]
        return buffer_of([x.copy() for x in flipped], images.shape)


class normalize(Module):
    """(x - mean) / std for each channel.

    Args:
        std, mean: one number for each channel.

    >>> import miniflow as flow
    >>> images = flow.gen_tensor_buffer((1,), [(1, 1, 2)], [5.0])
    >>> flow.nn.image.normalize(std=(2.0, 4.0), mean=(1.0, 1.0))(images).tolist()
    [[[[2.0, 1.0]]]]

    Source: `oneflow.nn.image.normalize`.
    """

    def __init__(self, std: Sequence[float], mean: Sequence[float]):
        super().__init__()
        self.std, self.mean = tuple(std), tuple(mean)

    def forward(self, input: Tensor) -> Tensor:
        """Args: input (N,), dtype `tensor_buffer`, of floating (H, W, C). Returns: as `input`."""
        images = images_of(input, "normalize")
        for i, image in enumerate(images):
            if image.dtype.kind != "f":
                raise DTypeError(f"normalize: got image {i} of {image.dtype}; expected floats: decode to flow.float32")
            if not image.shape[2] == len(self.mean) == len(self.std):
                expected = f"{image.shape[2]} numbers of both, as image {i} has channels"
                raise refusal(ShapeError, "normalize", expected, std=self.std, mean=self.mean)
        return buffer_of([((x - self.mean) / self.std).astype(x.dtype) for x in images], input.shape)

    def extra_repr(self) -> str:
        return f"std={self.std}, mean={self.mean}"


class batch_align(Module):
    """One tensor of all images, each in the upper left corner, with zeros around it.

    Args:
        shape: (H, W, C), at least that of the largest image. H and W are rounded up to multiples of `alignment`.
        dtype: of the result: `flow.uint8`, whose limits floats are cut to, or `flow.float32`.
        alignment: a power of two, or 0 for none.

    >>> import miniflow as flow
    >>> images = flow.gen_tensor_buffer((2,), [(3, 2, 1), (1, 4, 1)], [1.0, 2.0])
    >>> flow.nn.image.batch_align(shape=(3, 4, 1), dtype=flow.float32, alignment=2)(images)[1, :2, :, 0].tolist()
    [[2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]]

    Source: `oneflow.nn.image.batch_align`.
    """

    def __init__(self, shape: Sequence[int], dtype: dtype, alignment: int):
        super().__init__()
        if alignment < 0 or alignment & (alignment - 1) or len(shape) != 3:
            expected = "three sizes, and a power of two or 0"
            raise refusal(ArgumentError, "batch_align", expected, shape=tuple(shape), alignment=alignment)
        if dtype not in (uint8, float32):
            raise DTypeError(f"batch_align: got dtype={dtype}; expected flow.uint8 or flow.float32")
        self.shape, self.dtype, self.alignment = tuple(shape), dtype, alignment

    def forward(self, input: Tensor) -> Tensor:
        """Args: input (N,), dtype `tensor_buffer`, of (H, W, C). Returns: (N, H, W, C)."""
        images, step, (*sizes, channels) = images_of(input, "batch_align"), self.alignment or 1, self.shape
        result = np.zeros((len(images), *[-(-n // step) * step for n in sizes], channels), self.dtype.numpy)
        for i, image in enumerate(images):
            h, w, c = image.shape
            if h > result.shape[1] or w > result.shape[2] or c != channels:
                expected = f"at most {result.shape[1:3]} pixels of {channels} channels: give a larger shape"
                raise ShapeError(f"batch_align: got image {i} of shape {image.shape}; expected {expected}")
            result[i, :h, :w] = within(image, result.dtype)
        return from_numpy(result)


class decode(Module):
    """Images from the bytes of their files (JPEG, PNG, ...), by Pillow.

    Args:
        dtype: `flow.uint8`, or `flow.float32` for the same numbers from 0 to 255.
        color_space: "BGR", "RGB" or "GRAY", of one channel.

    Source: `oneflow.nn.image.decode`, which decodes by OpenCV: the decoders may differ by 1 in a pixel of a JPEG file.
    """

    def __init__(self, dtype: dtype = uint8, color_space: str = "BGR"):
        super().__init__()
        if color_space not in COLOR_SPACES:
            raise refusal(ArgumentError, "decode", "'BGR', 'RGB' or 'GRAY'", color_space=color_space)
        if dtype not in (uint8, float32):
            raise DTypeError(f"decode: got dtype={dtype}; expected flow.uint8 or flow.float32")
        self.dtype, self.color_space = dtype, color_space

    def forward(self, input: Tensor) -> Tensor:
        """Args: input (N,), dtype `tensor_buffer`, of bytes as int8 or uint8. Returns: of (H, W, C).

        Raises:
            ImportError: if Pillow is not installed.
            DataError: for bytes that are not an image.
        """
        return buffer_of([self.image(x, i) for i, x in enumerate(elements_of(input, "decode"))], input.shape)

    def image(self, raw: np.ndarray, i: int) -> np.ndarray:
        """The image (H, W, C) of the bytes of one file, the i-th."""
        try:
            from PIL import Image
        except ImportError as error:
            raise ImportError("nn.image.decode needs Pillow, which is not installed: pip install pillow") from error
        if raw.dtype.itemsize != 1:
            raise DTypeError(f"decode: got array {i} of {raw.dtype}; expected bytes, flow.uint8")
        try:
            pixels = np.array(Image.open(io.BytesIO(raw.tobytes())).convert(COLOR_SPACES[self.color_space]))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"decode: array {i} is no image that Pillow can read ({error}); expected a file") from error
        pixels = pixels.reshape(*pixels.shape[:2], -1).astype(self.dtype.numpy)
        return pixels[..., ::-1].copy() if self.color_space == "BGR" else pixels


class Resize(Module):
    """Each image in another size.

    Args:
        target_size: (width, height), at least 1; with `keep_aspect_ratio` an int, the new length of a side.
        min_size, max_size: with `keep_aspect_ratio`, limits of the other side: where it would pass them, it is as long
            as the limit, and the ratio decides over the first side.
        keep_aspect_ratio: keep the ratio of the sides, so that the results differ in size.
        resize_side: "shorter" or "longer": the side that `target_size` is of.
        channels: of all images, without `keep_aspect_ratio`.
        dtype: of the result, without `keep_aspect_ratio`: `flow.uint8` (if None) or `flow.float32`.
        interpolation_type: "bilinear", "nearest_neighbor" or "nn", "bicubic", "area" (means of what a new pixel
            covers), or "auto": "area" for fewer pixels than before, else "bilinear".

    >>> import miniflow as flow
    >>> images = flow.gen_tensor_buffer((2,), [(3, 2, 1), (2, 8, 1)], [1.0, 2.0])
    >>> y, scale, _ = flow.nn.image.Resize((4, 4), channels=1, dtype=flow.float32)(images)
    >>> y.shape, scale.tolist()[1]
    (miniflow.Size([2, 4, 4, 1]), [0.5, 2.0])
    >>> flow.nn.image.Resize(4, keep_aspect_ratio=True)(images)[2].tolist()
    [[4, 6], [16, 4]]

    Source: `oneflow.nn.image.Resize`. The numbers are those of OpenCV's `resize`, but uint8 may be rounded
    otherwise, and "area" is the mean also where one side grows and the other shrinks.

    Raises:
        ArgumentError, DTypeError: for another size, side, interpolation or dtype.
        ShapeError: for an image without pixels, or with other channels.
    """

    def __init__(
        self,
        target_size: int | Sequence[int] | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
        keep_aspect_ratio: bool = False,
        resize_side: str = "shorter",
        channels: int = 3,
        dtype: dtype | None = None,
        interpolation_type: str = "auto",
    ):
        super().__init__()
        sizes = [target_size] if keep_aspect_ratio else target_size
        fits = isinstance(sizes, list | tuple) and len(sizes) == 2 - keep_aspect_ratio
        if not fits or not all(isinstance(n, int) and n >= 1 for n in sizes):
            expected = "an int with keep_aspect_ratio, else (width, height), at least 1"
            options = {"target_size": target_size, "keep_aspect_ratio": keep_aspect_ratio}
            raise refusal(ArgumentError, "Resize", expected, **options)
        if resize_side not in ("shorter", "longer"):
            raise refusal(ArgumentError, "Resize", "'shorter' or 'longer'", resize_side=resize_side)
        if interpolation_type not in (*KERNELS, "nn", "nearest_neighbor", "area", "auto"):
            expected = "bilinear, bicubic, nn, nearest_neighbor, area or auto"
            raise refusal(ArgumentError, "Resize", expected, interpolation_type=interpolation_type)
        if dtype not in (None, uint8, float32):
            raise DTypeError(f"Resize: got dtype={dtype}; expected flow.uint8 or flow.float32")
        self.target_size, self.min_size, self.max_size = target_size, min_size or 0, max_size or np.inf
        self.keep_aspect_ratio, self.resize_side, self.channels = keep_aspect_ratio, resize_side, channels
        self.dtype, self.interpolation_type = dtype or uint8, interpolation_type

    def forward(self, input: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Args: input (N,), dtype `tensor_buffer`, of (H, W, C).

        Returns:
            the images, (N, height, width, C) or with `keep_aspect_ratio` a tensor buffer; how much wider and higher
            each is, float32 (N, 2); with `keep_aspect_ratio` the new widths and heights, int32 (N, 2), else None.
        """
        images = images_of(input, "Resize")
        for i, image in enumerate(images):
            if not image.size:
                raise ShapeError(f"Resize: got image {i} of shape {image.shape}; expected at least one pixel")
        sizes = [self.new_size(*image.shape[:2]) for image in images]
        pairs = zip(sizes, images, strict=True)
        scale = np.array([(w / x.shape[1], h / x.shape[0]) for (w, h), x in pairs], np.float32).reshape(-1, 2)
        dtypes = [x.dtype if self.keep_aspect_ratio else self.dtype.numpy for x in images]
        triples = zip(images, sizes, dtypes, strict=True)
        resized = [resize(x, *size, self.interpolation_type, dtype) for x, size, dtype in triples]
        if self.keep_aspect_ratio:
            new_sizes = from_numpy(np.array(sizes, int32.numpy).reshape(-1, 2))
            return buffer_of(resized, input.shape), from_numpy(scale), new_sizes
        for i, image in enumerate(images):
            if image.shape[2] != self.channels:
                raise ShapeError(f"Resize: got image {i} of shape {image.shape}; expected {self.channels} channels")
        width, height = self.target_size
        batch = np.array(resized, self.dtype.numpy).reshape(-1, height, width, self.channels)
        return from_numpy(batch), from_numpy(scale), None

    def new_size(self, height: int, width: int) -> tuple[int, int]:
        """The new width and height of an image."""
        if not self.keep_aspect_ratio:
            return tuple(self.target_size)
        ratio, side = min(height, width) / max(height, width), self.target_size
        if self.resize_side == "longer":
            short, long = max(round(side * ratio), self.min_size), side
            long = round(short / ratio) if short == self.min_size > round(side * ratio) else long
        else:
            short, long = side, min(round(side / ratio), self.max_size)
            short = round(long * ratio) if long == self.max_size < round(side / ratio) else short
        return (short, long) if width < height else (long, short)


def resize(image: np.ndarray, width: int, height: int, interpolation_type: str, dtype: np.dtype) -> np.ndarray:
    """An image (H, W, C) in another size, rounded for integers."""
    h, w, _ = image.shape
    if interpolation_type == "auto":
        interpolation_type = "bilinear" if width * height >= w * h else "area"
    if interpolation_type in ("nn", "nearest_neighbor"):
        rows, columns = np.arange(height) * h // height, np.arange(width) * w // width
        return within(image[rows[:, None], columns], dtype)
    weights = matrix(interpolation_type)
    values = np.einsum("ih,hwc,jw->ijc", weights(h, height), image.astype(np.float64), weights(w, width), optimize=True)
    return within(np.rint(values) if dtype.kind in "iu" else values, dtype)


def within(image: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """An image of another dtype: integers end at their limits, rather than begin again at the other one."""
    if dtype.kind in "iu" and dtype != image.dtype:
        image = image.clip(np.iinfo(dtype).min, np.iinfo(dtype).max)
    return image.astype(dtype)


def matrix(interpolation_type: str) -> Callable[[int, int], np.ndarray]:
    """A function of an old and a new length: (new, old), how much of each old element is in a new one."""
    if interpolation_type == "area":
        return area
    return lambda n, m: resampling(n, (np.arange(m) + 0.5) * n / m - 0.5, *KERNELS[interpolation_type])


def area(n: int, m: int) -> np.ndarray:
    """Of m equal parts of n elements: the share of each element in a part."""
    ends, old = np.arange(m + 1) * n / m, np.arange(n)
    overlap = np.minimum(ends[1:, None], old + 1) - np.maximum(ends[:-1, None], old)
    return overlap.clip(0) * m / n
