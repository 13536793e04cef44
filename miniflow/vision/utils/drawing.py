"""Images side by side, in a file, and with boxes and masks drawn on them.

Images are tensors (C, H, W) of one or three channels: uint8 from 0 to 255, or floating from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from miniflow.dispatch.tape import no_grad
from miniflow.dtype import bool_, uint8
from miniflow.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, refusal
from miniflow.nn import functional as F
from miniflow.ops.creation import tensor as make_tensor
from miniflow.ops.indexing import where
from miniflow.ops.joining import cat, stack
from miniflow.tensor import Tensor
from miniflow.vision.pillow import pillow

Color: TypeAlias = str | tuple[int, int, int]
"""A name or #RRGGBB, as Pillow knows them, or red, green and blue from 0 to 255."""


@no_grad()
def make_grid(
    tensor: Tensor | Sequence[Tensor], nrow: int = 8, padding: int = 2, normalize: bool = False,
    value_range: tuple[float, float] | None = None, scale_each: bool = False, pad_value: float = 0.0,
) -> Tensor:  # fmt: skip
    """Images side by side, in rows, as one image (3, H, W); those of one channel are grey.

    Args:
        tensor: images (N, C, H, W), one image, or a sequence of images of one size.
        nrow: how many there are in a row.
        padding: the width of what is between them and around them, in pixels.
        normalize: map `value_range` to 0 to 1, and cut off what is beyond.
        value_range: of all images; None for the least and the largest value.
        scale_each: take them of each image by itself.
        pad_value: the colour of the padding.

    Raises:
        ArgumentError: for what is not images, or numbers out of range.

    >>> import miniflow as flow
    >>> make_grid(flow.zeros(10, 1, 28, 28), nrow=5).shape
    miniflow.Size([3, 62, 152])

    Source: `torchvision.utils.make_grid`.
    """
    images = tensor if isinstance(tensor, Tensor) else stack(list(tensor))
    images = images[(None,) * (4 - images.ndim)]
    low, high = value_range or (0, 1)
    if images.ndim != 4 or not images.numel() or nrow < 1 or padding < 0 or low > high:
        expected = (
            "images (N, C, H, W), at least one, nrow above 0, padding of at least 0, and (low, high), low <= high"
        )
        got = {"images": images, "nrow": nrow, "padding": padding, "value_range": value_range}
        raise refusal(ArgumentError, "make_grid", expected, **got)
    if images.shape[1] == 1:
        images = cat([images] * 3, dim=1)
    if normalize:
        parts = images.split(1) if scale_each else [images]
        images = cat([_normalized(part, *(value_range or (part.min(), part.max()))) for part in parts])
    n, c, h, w = images.shape
    if n == 1:
        return images[0]
    columns = min(nrow, n)
    rows = -(-n // columns)
    cells = F.pad(images, (padding, 0, padding, 0), value=pad_value)
    cells = cat([cells, cells.new_full((rows * columns - n, *cells.shape[1:]), pad_value)])
    grid = cells.reshape(rows, columns, c, h + padding, w + padding).permute(2, 0, 3, 1, 4)
    grid = grid.reshape(c, rows * (h + padding), columns * (w + padding))
    return F.pad(grid, (0, padding, 0, padding), value=pad_value)


def _normalized(images: Tensor, low: Any, high: Any) -> Tensor:
    low, high = float(low), float(high)
    return (images.clamp(low, high) - low) / max(high - low, 1e-5)


@no_grad()
def save_image(
    tensor: Tensor | Sequence[Tensor], fp: str | PathLike | BinaryIO, format: str | None = None, **options: Any
) -> None:
    """Write floating images, 0 to 1, as one file, in a grid if there are several. Needs Pillow.

    Args:
        tensor, options: as for `make_grid`.
        fp: the name of the file, whose ending says the format; or an open file.
        format: such as "PNG", for an open file.

    Source: `torchvision.utils.save_image`.
    """
    pixels = (make_grid(tensor, **options) * 255 + 0.5).clamp(0, 255).permute(1, 2, 0).cpu().to(uint8)
    pillow().fromarray(pixels.numpy()).save(fp, format=format)


def _colors(colors: Color | list[Color] | None, count: int) -> list[tuple[int, ...]]:
    """One for each of `count` objects; None for different ones."""
    if colors is None:
        return [tuple(i * step % 255 for step in (2**25 - 1, 2**15 - 1, 2**21 - 1)) for i in range(count)]
    colors = colors if isinstance(colors, list) else [colors] * count
    if len(colors) < count:
        raise ArgumentError(f"colors: got {len(colors)}; expected one for each of {count} objects, or one for all")
    return [pillow("ImageColor").getrgb(color) if isinstance(color, str) else color for color in colors]


def _check(op: str, image: Tensor, channels: tuple[int, ...], drawn: Tensor) -> None:
    if not (isinstance(image, Tensor) and isinstance(drawn, Tensor)):
        raise refusal(ArgumentTypeError, op, "tensors: use flow.tensor, or pil_to_tensor", image=image, drawn=drawn)
    if image.ndim != 3 or image.shape[0] not in channels:
        raise refusal(ShapeError, op, f"one image (C, H, W) of {' or '.join(map(str, channels))} channels", image=image)
    if image.dtype != uint8 and not image.is_floating_point():
        raise refusal(DTypeError, op, "uint8 from 0 to 255, or floating from 0 to 1", image=image)


@no_grad()
def draw_bounding_boxes(
    image: Tensor, boxes: Tensor, labels: Sequence[str | None] | None = None,
    colors: Color | list[Color] | None = None, fill: bool = False, width: int = 1, font: str | None = None,
    font_size: int = 10,
) -> Tensor:  # fmt: skip
    """The image with boxes, (3, H, W) of its dtype. Needs Pillow.

    Args:
        image: (C, H, W).
        boxes: (N, 4), the corners x1, y1, x2, y2 in pixels.
        labels: a text for each box, or None.
        colors: of each box, or of all; by default each has its own.
        fill: whether to tint what is inside.
        width: of the lines, in pixels.
        font, font_size: a file of a TrueType font, and the size of its letters in points; by default Pillow's font.

    Raises:
        ShapeError, DTypeError: for what is no image.
        ArgumentError: for boxes without corners in order, or another number of labels.

    Source: `torchvision.utils.draw_bounding_boxes`.
    """
    _check("draw_bounding_boxes", image, (1, 3), boxes)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise refusal(ShapeError, "draw_bounding_boxes", "(N, 4)", boxes=boxes)
    if bool((boxes[:, :2] > boxes[:, 2:]).any()):
        raise ArgumentError("draw_bounding_boxes: got x1 > x2 or y1 > y2; expected corners, as box_convert makes them")
    if labels is not None and len(labels) != len(boxes):
        raise ArgumentError(
            f"draw_bounding_boxes: got {len(labels)} labels; expected one for each of {len(boxes)} boxes"
        )
    scale = 255.999 if image.is_floating_point() else 1
    pixels = cat([image] * (3 // image.shape[0])) * scale
    picture = pillow().fromarray(pixels.to(uint8).permute(1, 2, 0).cpu().contiguous().numpy())
    draw = pillow("ImageDraw").Draw(picture, "RGBA" if fill else None)
    fonts = pillow("ImageFont")
    letters = fonts.truetype(font, font_size) if font else fonts.load_default()
    for box, color, label in zip(
        boxes.long().tolist(), _colors(colors, len(boxes)), labels or [None] * len(boxes), strict=False
    ):
        draw.rectangle(box, width=width, outline=color, fill=(*color, 100) if fill else None)
        if label is not None:
            draw.text((box[0] + width + 1, box[1] + width + 1), label, fill=color, font=letters)
    drawn = make_tensor(np.array(picture), device=image.device).permute(2, 0, 1)
    return drawn.to(image.dtype) / 255 if image.is_floating_point() else drawn


@no_grad()
def draw_segmentation_masks(
    image: Tensor, masks: Tensor, alpha: float = 0.8, colors: Color | list[Color] | None = None
) -> Tensor:
    """The image with masks as colours over it; black where masks overlap. Shape and dtype are those of the image.

    Args:
        image: (3, H, W).
        masks: bool, (N, H, W) or (H, W).
        alpha: the weight of the colours, from 0 to 1.
        colors: of each mask, or of all; by default each has its own.

    Raises:
        ShapeError, DTypeError: for what is no image, or no masks for it.

    Source: `torchvision.utils.draw_segmentation_masks`.
    """
    _check("draw_segmentation_masks", image, (3,), masks)
    if not 0 <= alpha <= 1:
        raise refusal(ArgumentError, "draw_segmentation_masks", "a number from 0 to 1", alpha=alpha)
    masks = masks if masks.ndim == 3 else masks[None]
    if masks.dtype != bool_ or masks.shape[1:] != image.shape[1:]:
        raise refusal(ShapeError, "draw_segmentation_masks", f"bool masks (N, *{tuple(image.shape[1:])})", masks=masks)
    drawn = image
    for mask, color in zip(masks, _colors(colors, len(masks)), strict=False):
        color = make_tensor(color, device=image.device).to(image.dtype)
        drawn = where(mask, (color / 255 if image.is_floating_point() else color)[:, None, None], drawn)
    drawn = where(masks.sum(0) > 1, drawn.new_zeros(()), drawn)
    return (image * (1 - alpha) + drawn * alpha).to(image.dtype)
