"""Images, sequences and volumes in other sizes, and channels as pixels and back.

A dim after the other: the new positions along it are weighted sums of the old ones, which is a product with a matrix
that has two or four weights in each row; for the nearest neighbour it is a choice of indices.

Source: `torch.nn.functional.interpolate`; Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite
from miniflow.errors import ArgumentError, ShapeError, refusal
from miniflow.ops.pooling import adaptive_avg_pool
from miniflow.ops.promotion import require_floating
from miniflow.tensor import Tensor, constant_like

MODES = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}  # mode -> the dims of its input
CUBIC, CUBIC_ANTIALIAS = -0.75, -0.5


@takes_tensors
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """The input in another size.

    Args:
        input: [N, C, L], [N, C, H, W] or [N, C, D, H, W], floating.
        size: of the spatial dims.
        scale_factor: instead of `size`, how many times the old size, rounded down.
        mode: "nearest", "nearest-exact", "area", or by the number of dims "linear", "bilinear", "bicubic", "trilinear".
        align_corners: the first and the last positions stay where they are; by default pixels are areas, whose borders
            do.
        recompute_scale_factor: take the scale from the sizes, in place of `scale_factor`.
        antialias: for "bilinear" and "bicubic", let smaller images hold all of the larger one.

    Raises:
        DTypeError: for integers, unless elements are only chosen ("nearest").
        ArgumentError: for another mode, an option that the mode does not have, or not one of size and scale_factor.
        ShapeError: for a number of dims that the mode does not have, or an old or new size below 1.

    >>> import miniflow as flow
    >>> flow.nn.functional.interpolate(flow.tensor([[[1.0, 3.0]]]), size=4, mode="linear").tolist()
    [[[1.0, 1.5, 2.5, 3.0]]]

    Source: `torch.nn.functional.interpolate`.
    """
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(f"interpolate: got antialias=True for mode={mode!r}; expected 'bilinear' or 'bicubic'")
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: expected size or scale_factor, and only one of them")
    if mode not in (*MODES, "nearest", "nearest-exact", "area"):
        raise refusal(ArgumentError, "interpolate", f"nearest, nearest-exact, area, {', '.join(MODES)}", mode=mode)
    if not 3 <= input.ndim <= 5 or MODES.get(mode, input.ndim) != input.ndim:
        raise ShapeError(f"interpolate: got shape {tuple(input.shape)}; expected {MODES.get(mode, '3 to 5')} dims")
    if align_corners is not None and mode not in MODES:
        raise ArgumentError(f"interpolate: got align_corners={align_corners} for mode={mode!r}; expected None")
    if not mode.startswith("nearest"):
        require_floating("interpolate", input._array)
    old, count = input.shape[2:], input.ndim - 2
    if size is None:
        factors = [scale_factor] * count if isinstance(scale_factor, int | float) else list(scale_factor)
        new = [math.floor(n * f) for n, f in zip(old, factors, strict=True)]
    else:
        new, factors = [size] * count if hasattr(size, "__index__") else list(size), [None] * count
    if mode == "area":
        return adaptive_avg_pool(count, input, new)
    if min(*old, *new) < 1:
        raise refusal(ShapeError, "interpolate", "old and new sizes of at least 1", input=input, size=tuple(new))
    factors = [None if recompute_scale_factor else factor for factor in factors]
    if antialias:
        return _resized(input, new, factors, mode, bool(align_corners), True)
    return resize(input, new, factors, mode, bool(align_corners))


@composite
def resize(
    input: Tensor, new: Sequence[int], factors: Sequence[float | None], mode: str, align_corners: bool
) -> Tensor:
    """`interpolate` with all arguments given: the new sizes, and the scale factors that decide over positions."""
    return _resized(input, new, factors, mode, align_corners, False)


def _resized(input, new, factors, mode, align_corners, antialias) -> Tensor:
    for dim, (n, m, factor) in enumerate(zip(input.shape[2:], new, factors, strict=True), 2):
        scale = n / m if factor is None else 1 / factor
        if mode.startswith("nearest"):
            positions = np.floor((np.arange(m) + (0.5 if mode == "nearest-exact" else 0)) * scale)
            input = input.index_select(dim, constant_like(input, np.minimum(positions, n - 1).astype(int)))
        else:
            weights = _weights(n, m, scale, mode == "bicubic", align_corners, antialias)
            input = along_dim(input, dim, constant_like(input, weights.astype(input._array.dtype)))
    return input


def _weights(n: int, m: int, scale: float, cubic: bool, align_corners: bool, antialias: bool) -> np.ndarray:
    """(m, n): how much of each old position is in a new one."""
    if align_corners:
        scale = (n - 1) / (m - 1) if m > 1 else 0.0
    positions = np.arange(m) * scale if align_corners and not antialias else (np.arange(m) + 0.5) * scale - 0.5
    if not antialias:
        return resampling(n, positions, *((cubic_kernel, 2) if cubic else (linear_kernel, 1)))
    kernel = functools.partial(cubic_kernel, a=CUBIC_ANTIALIAS) if cubic else linear_kernel
    return resampling(n, positions, kernel, 2 if cubic else 1, max(scale, 1), False)


def resampling(
    n: int,
    positions: np.ndarray,
    kernel: Callable[[np.ndarray], np.ndarray],
    reach: int,
    stretch: float = 1.0,
    edge: bool = True,
) -> np.ndarray:
    """(m, n): how much of each of n elements is in the values at m places between them.

    Args:
        n: how many elements there are; the first is at place 0, the second at 1.
        positions: (m,)
        kernel: from a distance to a weight.
        reach: the distance from which on it is 0.
        stretch: how many times wider the kernel is.
        edge: beyond the ends are copies of the outermost elements; else only elements inside count.
    """
    width = math.ceil(reach * stretch)
    taps = np.floor(positions).astype(int)[:, None] + np.arange(1 - width, width + 1)
    values = kernel(np.abs(positions[:, None] - taps) / stretch)
    if not edge:
        values = np.where((taps >= 0) & (taps < n), values, 0)
    weights = np.zeros((len(positions), n))
    np.add.at(weights, (np.arange(len(positions))[:, None], taps.clip(0, n - 1)), values / values.sum(1, keepdims=True))
    return weights


def linear_kernel(x: np.ndarray) -> np.ndarray:
    """The weight at a distance in linear interpolation."""
    return np.maximum(1 - x, 0)


def cubic_kernel(x: np.ndarray, a: float = CUBIC) -> np.ndarray:
    """The weight at a distance in cubic interpolation."""
    return np.where(x <= 1, _near(x, a), np.where(x < 2, _far(x, a), 0))


def cubic_weights(t: np.ndarray | Tensor) -> dict[int, np.ndarray | Tensor]:
    """The weights of the elements -1, 0, 1 and 2 for a place t between the elements 0 and 1."""
    return {-1: _far(t + 1), 0: _near(t), 1: _near(1 - t), 2: _far(2 - t)}


def _near(x: np.ndarray | Tensor, a: float = CUBIC) -> np.ndarray | Tensor:
    """The weight of an element at a distance of at most 1."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _far(x: np.ndarray | Tensor, a: float = CUBIC) -> np.ndarray | Tensor:
    """The weight of an element at a distance between 1 and 2."""
    return a * (((x - 5) * x + 8) * x - 4)


def along_dim(x: Tensor, dim: int, weights: Tensor) -> Tensor:
    """The product with a matrix along one dim."""
    if dim == x.ndim - 1:
        return x @ weights.t()
    shape = (*x.shape[:dim], weights.shape[0], *x.shape[dim + 1 :])
    return (weights @ x.flatten(dim + 1)).reshape(shape)


@takes_tensors
def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    *,
    height_scale: float | None = None,
    width_scale: float | None = None,
    interpolation: str | None = None,
    data_format: str = "channels_first",
) -> Tensor:
    """`interpolate` under its older name. `torch.nn.functional.upsample`.

    Args:
        input, size, scale_factor, mode, align_corners: as there.
        height_scale, width_scale, interpolation: OneFlow's names of the two scale factors of images and of the mode;
            "nearest" takes no notice of `align_corners` there.
        data_format: "channels_first".

    Raises:
        ArgumentError: for arguments of both kinds that contradict each other, and what `interpolate` refuses.

    >>> import miniflow as flow
    >>> x = flow.tensor([[[[1.0, 2.0]]]])
    >>> flow.nn.functional.upsample(x, height_scale=1.0, width_scale=2.0, align_corners=False).tolist()
    [[[[1.0, 1.0, 2.0, 2.0]]]]

    Source: also `oneflow.nn.functional.upsample`.
    """
    if data_format != "channels_first":
        raise refusal(ArgumentError, "upsample", "'channels_first'", data_format=data_format)
    if mode not in ("nearest", interpolation or mode):
        raise refusal(ArgumentError, "upsample", "one of them", mode=mode, interpolation=interpolation)
    scales = {"height_scale": height_scale, "width_scale": width_scale}
    if set(scales.values()) != {None}:
        if None in scales.values() or size is not None or scale_factor is not None:
            expected = "height_scale and width_scale, or size, or scale_factor"
            raise refusal(ArgumentError, "upsample", expected, size=size, scale_factor=scale_factor, **scales)
        interpolation, scale_factor = interpolation or mode, (height_scale, width_scale)
    corners = None if interpolation == "nearest" else align_corners
    return interpolate(input, size, scale_factor, interpolation or mode, corners)


@composite
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels become pixels: (*, C r^2, H, W) -> (*, C, H r, W r) with r = upscale_factor.

    Raises:
        ShapeError: if r^2 does not divide the channels.

    Source: Shi et al. 2016, arXiv 1609.05158; `torch.nn.functional.pixel_shuffle`.
    """
    return shuffle_pixels(input, upscale_factor, upscale_factor)


def shuffle_pixels(input: Tensor, r: int, s: int) -> Tensor:
    """`pixel_shuffle` with a factor for the height and one for the width: (*, C r s, H, W) -> (*, C, H r, W s)."""
    shape, k = tuple(input.shape), input.ndim - 3
    if k < 0 or r < 1 or s < 1 or shape[-3] % (r * s):
        factor, expected = r if r == s else (r, s), f"(*, C * {r * s}, H, W)"
        raise ShapeError(f"pixel_shuffle: got input {shape} and upscale_factor={factor}; expected {expected}")
    *outer, channels, height, width = shape
    y = input.reshape((*outer, channels // (r * s), r, s, height, width))
    y = y.permute((*range(k + 1), k + 3, k + 1, k + 4, k + 2)).clone()
    return y.reshape((*outer, channels // (r * s), height * r, width * s))


@takes_tensors
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Pixels become channels, the reverse of `pixel_shuffle`: (*, C, H r, W r) -> (*, C r^2, H, W).

    Raises:
        ShapeError: if r = downscale_factor does not divide the height and the width.

    Source: `torch.nn.functional.pixel_unshuffle`.
    """
    r, shape = downscale_factor, tuple(input.shape)
    if len(shape) < 3 or r < 1 or shape[-2] % r or shape[-1] % r:
        raise refusal(ShapeError, "pixel_unshuffle", f"(*, C, H * {r}, W * {r})", input=input, downscale_factor=r)
    (*outer, channels, height, width), k = shape, len(shape) - 3
    y = input.reshape((*outer, channels, height // r, r, width // r, r))
    y = y.permute((*range(k + 1), k + 2, k + 4, k + 1, k + 3)).clone()
    return y.reshape((*outer, channels * r**2, height // r, width // r))


@takes_tensors
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of several groups take turns: channel g * (C / groups) + i of (N, C, *) becomes i * groups + g.

    Raises:
        ShapeError: if groups do not divide the channels.

    Source: Zhang et al. 2017, arXiv 1707.01083; `torch.nn.functional.channel_shuffle`.
    """
    shape = tuple(input.shape)
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise refusal(ShapeError, "channel_shuffle", "groups that divide (N, C, *)", input=input, groups=groups)
    y = input.reshape((shape[0], groups, shape[1] // groups, *shape[2:]))
    return y.permute((0, 2, 1, *range(3, y.ndim))).clone().reshape(shape)
