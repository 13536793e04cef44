"""Boxes, lines of text and arrows, in inches: what pictures of the tape and of programs are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT = "DejaVu Sans Mono"  # comes with matplotlib; monospaced, so that the width of a text is known
INK, PALE = "#222222", "#777777"
Point = tuple[float, float]


def canvas(figure: Figure | None, left: float, right: float, bottom: float, top: float) -> Any:
    """Axes over a whole figure, by default a new one from pyplot, which is made as large as the picture."""
    if figure is None:
        import matplotlib.pyplot

        figure = matplotlib.pyplot.figure()
    figure.set_size_inches(right - left, abs(top - bottom))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(bottom, top))
    axes.set_axis_off()
    return axes


def write(axes: Any, x: float, y: float, line: str, **style: Any) -> None:
    """A line of text, by default around its place."""
    axes.text(x, y, line, **{"family": FONT, "color": INK, "ha": "center", "va": "center", **style})


def box(axes: Any, corner: Point, width: float, height: float, fill: str, rounding: float = 0.06, **style: Any) -> None:
    """A rounded box."""
    from matplotlib.patches import FancyBboxPatch

    style = {"edgecolor": PALE, "linewidth": 0.8, **style}
    shape = f"round,pad=0,rounding_size={rounding}"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=shape, facecolor=fill, **style))


def arrow(axes: Any, start: Point, pieces: Sequence[Sequence[Point]], **style: Any) -> None:
    """An arrow along lines, and curves with one or two control points: each piece ends with its last point."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    kinds = {1: Path.LINETO, 2: Path.CURVE3, 3: Path.CURVE4}
    codes = [Path.MOVETO, *(kinds[len(piece)] for piece in pieces for _ in piece)]
    path = Path([start, *(point for piece in pieces for point in piece)], codes)
    axes.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", **style))
