"""Images and volumes read at given places, and the places of an affine map."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite
from miniflow.errors import ArgumentError, ShapeError
from miniflow.ops.arithmetic import floor, round
from miniflow.ops.indexing import where
from miniflow.ops.joining import stack
from miniflow.ops.vision import cubic_weights
from miniflow.tensor import Tensor, constant_like

PADDING_MODES = ("zeros", "border", "reflection")


@composite
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """The input read at the places of a grid, with a gradient for both.

    Args:
        input: [N, C, H, W] or [N, C, D, H, W], floating.
        grid: [N, H', W', 2] of (x, y), or [N, D', H', W', 3] of (x, y, z); -1 and 1 are the ends of the input.
        mode: "bilinear", which for volumes is trilinear, "nearest", or for images "bicubic".
        padding_mode: what lies outside: "zeros", "border" (the outermost element) or "reflection".
        align_corners: whether the ends are the middles of the outermost elements; by default they are their borders.

    Returns:
        [N, C, H', W'] or [N, C, D', H', W'].

    Raises:
        ArgumentError: for another mode.
        ShapeError: for shapes that do not fit.

    >>> import miniflow as flow
    >>> grid = flow.tensor([[[[-0.5, 0.0], [0.0, 0.0]]]])
    >>> flow.nn.functional.grid_sample(flow.tensor([[[[1.0, 3.0]]]]), grid).tolist()
    [[[[1.0, 2.0]]]]

    Source: `torch.nn.functional.grid_sample`; Jaderberg et al., "Spatial Transformer Networks", 2015.
    """
    sizes = input.shape[2:]
    dims = len(sizes)
    if dims not in (2, 3) or grid.ndim != dims + 2 or grid.shape[-1] != dims or grid.shape[0] != input.shape[0]:
        expected = "[N, C, H, W] and [N, H', W', 2], or [N, C, D, H, W] and [N, D', H', W', 3]"
        got = f"an input of {tuple(input.shape)} and a grid of {tuple(grid.shape)}"
        raise ShapeError(f"grid_sample: got {got}; expected {expected}")
    if mode not in ("bilinear", "nearest", "bicubic")[: 5 - dims] or padding_mode not in PADDING_MODES:
        raise ArgumentError(
            f"grid_sample: got mode={mode!r} and padding_mode={padding_mode!r} for {dims} dims; expected 'bilinear', "
            "'nearest' or for images 'bicubic', and 'zeros', 'border' or 'reflection'"
        )
    points, shape = grid.flatten(1, -2), grid.shape[1:-1]
    index = weight = None  # (N, elements that are read for a place, places)
    for d, size in enumerate(sizes):
        taps, weights = _neighbours(points[..., dims - 1 - d], size, mode, padding_mode, bool(align_corners))
        if d:
            taps = (index[:, :, None] * size + taps[:, None]).flatten(1, 2)
            weights = (weight[:, :, None] * weights[:, None]).flatten(1, 2)
        index, weight = taps, weights
    # rows of C neighbours are read, (N * D * H * W, C), since single elements lie far apart
    batch, channels = input.shape[:2]
    starts = constant_like(index, np.arange(batch)[:, None, None] * prod(sizes))
    picked = input.movedim(1, -1).flatten(0, -2).index_select(0, (index + starts).flatten())
    total = (picked.reshape((*weight.shape, channels)) * weight[..., None]).sum(1)
    return total.reshape((batch, *shape, channels)).movedim(-1, 1)


def _neighbours(
    positions: Tensor, size: int, mode: str, padding_mode: str, align_corners: bool
) -> tuple[Tensor, Tensor]:
    """Along one dim: which elements are read for a place (N, P), and their weights: (N, elements, P)."""
    positions = (positions + 1) * ((size - 1) / 2) if align_corners else (positions + 1) * (size / 2) - 0.5
    if mode != "bicubic":
        positions = _inside(positions, size, padding_mode, align_corners)
    first = (round if mode == "nearest" else floor)(positions.detach())
    part = positions - first
    weights = {0: part * 0 + 1} if mode == "nearest" else {0: 1 - part, 1: part}
    if mode == "bicubic":
        weights = cubic_weights(part)
    offsets = constant_like(positions, np.array([*weights], positions._array.dtype)[:, None])
    taps, weights = first[:, None] + offsets, stack([*weights.values()], 1)
    if mode == "bicubic":
        taps = _inside(taps, size, padding_mode, align_corners)
    if padding_mode == "zeros":
        weights = where((taps >= 0) & (taps < size), weights, 0.0)
    return taps.clamp(0, size - 1).long(), weights


def _inside(positions: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Where places outside are read."""
    if padding_mode == "zeros":
        return positions
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        positions = low + span - abs(((positions - low) % (2 * span)) - span) if span else positions * 0
    return positions.clamp(0, size - 1)


@takes_tensors
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """For `grid_sample`: the places theta (x, y, 1) of the elements (x, y) of an output.

    Args:
        theta: [N, 2, 3], or for volumes [N, 3, 4].
        size: of the output, (N, C, H, W) or (N, C, D, H, W).
        align_corners: as in `grid_sample`.

    Returns:
        [N, H, W, 2] or [N, D, H, W, 3].

    Raises:
        ShapeError: for shapes that do not fit.

    >>> import miniflow as flow
    >>> flow.nn.functional.affine_grid(flow.eye(2, 3)[None], (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]

    Source: `torch.nn.functional.affine_grid`.
    """
    dims = len(size) - 2
    if dims not in (2, 3) or tuple(theta.shape) != (size[0], dims, dims + 1):
        expected = "[N, 2, 3] for (N, C, H, W), or [N, 3, 4] for (N, C, D, H, W)"
        raise ShapeError(f"affine_grid: got theta of {tuple(theta.shape)} for size {tuple(size)}; expected {expected}")
    ends = [(n - 1) / n if not align_corners else float(n > 1) for n in size[2:]]
    axes = np.meshgrid(*[np.linspace(-end, end, n) for end, n in zip(ends, size[2:], strict=True)], indexing="ij")
    points = np.stack([*axes[::-1], np.ones(size[2:])], -1).reshape(-1, dims + 1).astype(theta._array.dtype)
    return (constant_like(theta, points) @ theta.mT).reshape((size[0], *size[2:], dims))
