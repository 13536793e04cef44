"""Convolution and its gradients: implicit matrix products, or loops for groups of few channels.

The gradient in the image is itself a convolution, of the cotangents with the weight, channels transposed. For a
stride s, tap a of window i sees row h = i s - p + a d. Rows with the same r = h mod s are seen by the same taps
a = a_0, a_0 + s / gcd(s, d) ..., those for which s divides r + p - a d; row h = u s + r by tap a of window
i = u + (r + p - a d) / s. So each class of rows and columns is a convolution with stride 1 and part of the weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import gcd, prod
from typing import NamedTuple

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.cuda.matmul import no_bias
from miniflow.backends.registry import kernel
from miniflow.backends.windows import Pair
from miniflow.kernels import conv as implicit
from miniflow.kernels import conv_depthwise as depthwise
from miniflow.kernels.matmul import THREADS

DIRECT_UP_TO = 8  # input and output channels of a group
BLOCKS = 264  # so many keep a large GPU busy: two on each of its 132 multiprocessors


class Geometry(NamedTuple):
    """Tap a of window i sees position i * step + first + a * spread; pairs, for rows and columns."""

    step: Pair
    first: Pair
    spread: Pair


def _forward(stride: Pair, padding: tuple[Pair, Pair], dilation: Pair) -> Geometry:
    return Geometry(stride, (-padding[0][0], -padding[1][0]), dilation)


@kernel("cuda")
def conv2d(y, x, weight, bias, *, stride, padding, dilation, groups):
    geometry = _forward(stride, padding, dilation)
    _convolve(_grouped(x, groups), _by_group(weight, groups), bias, _grouped(y, groups), geometry)


@kernel("cuda")
def conv2d_data_grad(dx, dy, weight, *, size, stride, padding, dilation, groups):
    source, target = _grouped(dy, groups), _grouped(dx, groups)
    transposed = _by_group(weight, groups).view(lambda a: a.swapaxes(1, 2))
    along = zip(weight.shape[2:], stride, [p[0] for p in padding], dilation, strict=True)
    for rows, columns in product(*[_classes(*dim) for dim in along]):
        geometry = Geometry((1, 1), (rows.first, columns.first), (rows.spread, columns.spread))
        part = _cut(target, slice(rows.residue, None, stride[0]), slice(columns.residue, None, stride[1]))
        _convolve(source, _cut(transposed, rows.taps, columns.taps), None, part, geometry)


def _cut(x: DeviceArray, rows: slice, columns: slice) -> DeviceArray:
    return x.view(lambda a: a[..., rows, columns])


class _Class(NamedTuple):
    """The rows (or columns) h with h mod stride == residue, and how they see the windows; see the head of this file."""

    residue: int
    taps: slice
    first: int
    spread: int


def _classes(kernel: int, stride: int, padding: int, dilation: int) -> Iterator[_Class]:
    step = stride // gcd(stride, dilation)
    for residue in range(stride):
        taps = [a for a in range(min(step, kernel)) if (residue + padding - a * dilation) % stride == 0]
        if taps:
            first = (residue + padding - taps[0] * dilation) // stride
            yield _Class(residue, slice(taps[0], None, step), first, -dilation * step // stride)
        else:
            yield _Class(residue, slice(0, 0), 0, 0)


@kernel("cuda")
def conv2d_weight_grad(dweight, dy, x, *, size, stride, padding, dilation, groups):
    geometry = _forward(stride, padding, dilation)
    dy, x, target = _grouped(dy, groups), _grouped(x, groups), _by_group(dweight, groups)
    if _few_channels(target):
        grid = target.shape[0] * target.shape[1] * target.shape[2], *size
        launch(depthwise.direct_weight_gradient, grid, depthwise.THREADS, dy, x, target, *geometry)
        return
    outputs, inner = target.shape[1], prod(target.shape[2:])
    columns, rows = -(-inner // implicit.SIDE), -(-outputs // implicit.SIDE)
    pixels = dy.shape[0] * dy.shape[3] * dy.shape[4]
    count = _pixels_of_a_part(pixels, columns * rows * groups)
    splits = max(1, -(-pixels // count))
    parts = empty((splits, groups, outputs, inner), dy.dtype, dy.device_index) if splits > 1 else dweight
    planes, width = dy.reshape(*dy.shape[:3], dy.shape[3] * dy.shape[4]), dy.shape[4]
    arguments = planes, x, parts.reshape(splits, groups, outputs, inner), count, width, tuple(size), *geometry
    launch(implicit.weight_gradient, (columns, rows, groups * splits), THREADS, *arguments)
    if splits > 1:
        each(implicit.add_parts, dweight.size, parts.reshape(splits, dweight.size), dweight.reshape(dweight.size))


def _pixels_of_a_part(pixels: int, blocks: int) -> int:
    """The number of pixels that a block of the weight gradient sums, given the number of blocks for each part.

    Parts are not shorter than pays for adding them up.
    """
    splits = max(1, min(BLOCKS // max(blocks, 1), pixels // (8 * implicit.DEPTH)))
    return -(-pixels // (splits * implicit.DEPTH)) * implicit.DEPTH or implicit.DEPTH


def _convolve(
    x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None, y: DeviceArray, geometry: Geometry
) -> None:
    """y (N, G, O, OH, OW) from x (N, G, C, H, W) and weight (G, O, C, KH, KW)."""
    weight = contiguous(weight)
    images, groups, outputs, *counts = y.shape
    bias = no_bias(x) if bias is None else contiguous(bias)
    pixels = counts[0] * counts[1]
    if not _few_channels(weight):
        grid = -(-images * pixels // implicit.SIDE), -(-outputs // implicit.SIDE), groups
        matrix = weight.reshape(groups, outputs, prod(weight.shape[2:]))
        launch(implicit.convolve, grid, THREADS, x, matrix, bias, y, weight.shape[3:], *geometry)
        return
    grid = -(-pixels // depthwise.THREADS), groups * outputs, images
    launch(depthwise.direct, grid, depthwise.THREADS, x, weight, bias, y, *geometry, cut=(x, y))


def _few_channels(weight: DeviceArray) -> bool:
    """Whether the groups of a weight (G, O, C, KH, KW) are so narrow that tiles would be nearly empty."""
    groups, outputs, inputs = weight.shape[:3]
    return groups > 1 and outputs <= DIRECT_UP_TO and inputs <= DIRECT_UP_TO


def _grouped(x: DeviceArray, groups: int) -> DeviceArray:
    """(N, C, H, W) -> (N, G, C / G, H, W), contiguous"""
    return contiguous(x).reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])


def _by_group(weight: DeviceArray, groups: int) -> DeviceArray:
    """(O, C, KH, KW) -> (G, O / G, C, KH, KW), contiguous"""
    return contiguous(weight).reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
