"""Images, sequences and volumes in other sizes.

A dim after the other: the new positions along it are weighted sums of the old ones, which is a product with a matrix
that has two or four weights in each row; for the nearest neighbour it is a choice of indices.

Source: `torch.nn.functional.interpolate`; Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from miniflow.errors import ArgumentError, ShapeError
from miniflow.operands import takes_tensors
from miniflow.ops.gather import index_select
from miniflow.ops.matmul import matmul
from miniflow.ops.pool import adaptive_avg_pool2d
from miniflow.ops.pool_1d_3d import adaptive_avg_pool1d, adaptive_avg_pool3d
from miniflow.ops.shape import flatten, reshape
from miniflow.tensor import Tensor, constant_like

MODES = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}  # mode -> the dims of its input
CUBIC = -0.75


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
        antialias: not there.

    Raises:
        ArgumentError: for another mode, an option that the mode does not have, or not one of size and scale_factor.
        ShapeError: for a number of dims that the mode does not have.

    >>> import miniflow as flow
    >>> flow.nn.functional.interpolate(flow.tensor([[[1.0, 3.0]]]), size=4, mode="linear").tolist()
    [[[1.0, 1.5, 2.5, 3.0]]]

    Source: `torch.nn.functional.interpolate`.
    """
    if antialias:
        raise ArgumentError("interpolate: got antialias=True; expected False: reduce images by mode='area'")
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: expected size or scale_factor, and only one of them")
    if mode not in (*MODES, "nearest", "nearest-exact", "area"):
        raise ArgumentError(
            f"interpolate: got mode={mode!r}; expected nearest, nearest-exact, area, {', '.join(MODES)}"
        )
    if not 3 <= input.ndim <= 5 or MODES.get(mode, input.ndim) != input.ndim:
        raise ShapeError(f"interpolate: got shape {tuple(input.shape)}; expected {MODES.get(mode, '3 to 5')} dims")
    if align_corners is not None and mode not in MODES:
        raise ArgumentError(f"interpolate: got align_corners={align_corners} for mode={mode!r}; expected None")
    old, count = input.shape[2:], input.ndim - 2
    if size is None:
        factors = [scale_factor] * count if isinstance(scale_factor, int | float) else list(scale_factor)
        new = [math.floor(n * f) for n, f in zip(old, factors, strict=True)]
    else:
        new, factors = [size] * count if isinstance(size, int) else list(size), [None] * count
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[count - 1](input, new)
    for dim, (n, m, factor) in enumerate(zip(old, new, factors, strict=True), 2):
        scale = n / m if factor is None or recompute_scale_factor else 1 / factor
        if mode.startswith("nearest"):
            places = np.floor((np.arange(m) + (0.5 if mode == "nearest-exact" else 0)) * scale)
            input = index_select(input, dim, constant_like(input, np.minimum(places, n - 1).astype(int)))
        else:
            weights = _weights(n, m, scale, mode == "bicubic", bool(align_corners))
            input = _along(input, dim, constant_like(input, weights.astype(input._array.dtype)))
    return input


def _weights(n: int, m: int, scale: float, cubic: bool, align_corners: bool) -> np.ndarray:
    """(m, n): how much of each old position is in a new one."""
    new = np.arange(m)
    old = new * ((n - 1) / max(m - 1, 1)) if align_corners else (new + 0.5) * scale - 0.5
    old = old if cubic else np.maximum(old, 0)
    first = np.floor(old).astype(int)
    t = old - first
    parts = cubic_weights(t) if cubic else {0: 1 - t, 1: t}
    weights = np.zeros((m, n))
    for k, part in parts.items():
        np.add.at(weights, (new, np.clip(first + k, 0, n - 1)), part)
    return weights


def cubic_weights(t: np.ndarray | Tensor) -> dict[int, np.ndarray | Tensor]:
    """The weights of the elements -1, 0, 1 and 2 for a place t between the elements 0 and 1."""

    def near(x: np.ndarray | Tensor) -> np.ndarray | Tensor:
        return ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1

    def far(x: np.ndarray | Tensor) -> np.ndarray | Tensor:
        return CUBIC * (((x - 5) * x + 8) * x - 4)

    return {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}


def _along(x: Tensor, dim: int, weights: Tensor) -> Tensor:
    """The product with a matrix along one dim."""
    if dim == x.ndim - 1:
        return matmul(x, weights.t())
    shape = (*x.shape[:dim], weights.shape[0], *x.shape[dim + 1 :])
    return reshape(matmul(weights, flatten(x, dim + 1)), shape)


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its older name. `torch.nn.functional.upsample`."""
    return interpolate(input, size, scale_factor, mode, align_corners)
