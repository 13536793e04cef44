"""Global tensors as pictures: what each rank holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from miniflow.errors import PlacementError, ShapeError
from miniflow.ops.method import METHODS
from miniflow.parallel import boxing as boxings
from miniflow.parallel.explain import target
from miniflow.parallel.partition import region
from miniflow.parallel.placement import placement
from miniflow.sbp import NdSbp, P, show
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#7fb3d5", "#f5b971", "#8fc98f", "#e08e9c", "#b39ddb", "#d7bd8d", "#84cfc9", "#c3c3c3")
INK, ABSENT = "#222222", "#f4f4f4"
SIZE, GAP, TITLE, HEADING = 1.5, 0.15, 0.25, 0.4  # inches: of a drawn tensor, between them, above them, of a stage


def shards(x: Tensor, *, figure: Figure | None = None) -> Figure:
    """Draw the placement of a global tensor: for each rank the whole tensor, with the part that it holds in its color.

    Ranks that hold the same have the same color; hatched parts are summands of a partial sum.

    Args:
        x: global; the last two dims are drawn, a vector as one row.
        figure: a matplotlib figure to draw into; by default a new one from pyplot.

    Returns:
        the figure; `figure.savefig(path)` writes it to a file.

    Raises:
        PlacementError: for a local tensor.
        ShapeError: for a placement of more than two dimensions.

    >>> import miniflow as flow
    >>> from matplotlib.figure import Figure
    >>> x = flow.ones(4, 4, placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0))
    >>> len(x.show(figure=Figure()).axes)
    1
    """
    if not x.is_global:
        raise PlacementError("show: expected a global tensor; a local one lies on one device")
    return draw([("", x.placement, x.sbp)], tuple(x.shape), figure)


def boxing(src: Tensor, dst: Any, placement: placement | None = None, *, figure: Figure | None = None) -> Figure:
    """Draw each step of the way of a global tensor to another layout; arguments as for `flow.boxing.explain`.

    >>> import miniflow as flow
    >>> from matplotlib.figure import Figure
    >>> x = flow.ones(4, 4, placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0))
    >>> len(flow.show.boxing(x, flow.sbp.broadcast, figure=Figure()).axes)
    2
    """
    where, sbp = target(src, dst, placement)
    stages = [("", src.placement, src.sbp)]
    x = src._array
    for step in boxings.route(x.shape, x.placement, x.sbp, where, sbp, x.itemsize):
        stages.append((f"{step.name}: {step.cost:,} bytes", step.where, step.after))
    return draw(stages, tuple(src.shape), figure)


def draw(stages: list[tuple[str, placement, NdSbp]], shape: tuple[int, ...], figure: Figure | None) -> Figure:
    """One row of pictures for each stage: a title, a placement and the layout on it."""
    from matplotlib import pyplot

    meshes = [np.atleast_2d(where.ranks) for _, where, _ in stages]
    if any(mesh.ndim > 2 for mesh in meshes):
        raise ShapeError("show: expected a placement of one or two dimensions")
    rows, columns = sum(len(mesh) for mesh in meshes), max(mesh.shape[1] for mesh in meshes)
    width, height = columns * (SIZE + GAP) + GAP, rows * (SIZE + TITLE) + len(stages) * HEADING + GAP
    figure = pyplot.figure() if figure is None else figure
    figure.set_size_inches(width, height)
    top = height
    for mesh, (title, where, sbp) in zip(meshes, stages, strict=True):
        heading = f"{title} gives {show(sbp)}" if title else show(sbp)
        figure.text(GAP / width, (top - 0.3) / height, heading, size=11, color=INK, weight="bold")
        top -= HEADING
        colors: dict[Any, str] = {}
        for row in mesh.tolist():
            top -= SIZE + TITLE
            for i, rank in enumerate(row):
                rect = (GAP + i * (SIZE + GAP)) / width, top / height, SIZE / width, SIZE / height
                bounds = region(shape, where, sbp, rank)
                summand = tuple([k for entry, k in zip(sbp, where.coordinates[rank], strict=True) if entry is P])
                color = colors.setdefault((bounds, summand), PALETTE[len(colors) % len(PALETTE)])
                draw_part(figure.add_axes(rect), rank, shape, bounds, color, bool(summand))
    return figure


def draw_part(axis: Any, rank: int, shape: tuple[int, ...], bounds: tuple, color: str, partial: bool) -> None:
    """The whole in pale, and the part of a rank in color."""
    from matplotlib.patches import Rectangle

    height, width = (1, 1, *shape)[-2:]
    (top, bottom), (left, right) = ((0, 1), (0, 1), *bounds)[-2:]
    look = {"facecolor": color, "edgecolor": INK, "linewidth": 0.8, "hatch": "//" if partial else None}
    axis.add_patch(Rectangle((0, 0), width, height, facecolor=ABSENT, edgecolor=INK, linewidth=0.8))
    axis.add_patch(Rectangle((left, top), right - left, bottom - top, **look))
    held = ", ".join(f"{start}:{stop}" for start, stop in bounds)
    axis.set_title(f"rank {rank}  [{held}]", size=8, color=INK, pad=3)
    axis.set_xlim(-0.02 * width, 1.02 * width)
    axis.set_ylim(1.02 * height, -0.02 * height)
    axis.set_axis_off()


METHODS["show"] = shards
