"""A program as a picture: a band for each module, in it forward, backward and update side by side (see `bands`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from miniflow.errors import GraphError
from miniflow.graph.bands import (
    CHARACTER,
    INSET,
    LABEL,
    LINE,
    PHASES,
    POINTS,
    Band,
    Box,
    Frame,
    bands_of,
    boxes_of,
    frames_of,
    place,
)
from miniflow.graph.ir import BACKWARD, FORWARD, INPUT, UPDATE, Program

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT = "DejaVu Sans Mono"  # comes with matplotlib; monospaced, so that the width of a text is known
MARGIN = 0.3
FILL = {INPUT: "#d9ead3", FORWARD: "#dce9f5", BACKWARD: "#fbe3d0", UPDATE: "#e5dcf1"}
FUSED = {FORWARD: "#7fb2de", BACKWARD: "#f0a76b", UPDATE: "#b198d8"}
EDGE = {INPUT: "#6aa84f", FORWARD: "#3d79b0", BACKWARD: "#c46a1f", UPDATE: "#7a57b0"}
FRAMES = ("#f7f7f7", "#ffffff")
INK, PALE, FRAME, RESULT = "#222222", "#777777", "#bbbbbb", "#cc0000"


def draw(program: Program, *, max_boxes: int = 400, figure: Figure | None = None) -> Figure:
    """Draw a program.

    Modules are frames with their names. In them forward is blue and goes down, backward is orange and goes up beside
    it, updates of parameters are violet; instructions that passes fused of several are dark. Boxes show what is
    computed and the shapes of the results, after arrows the states that are written. Lines from forward to backward
    are values that are kept for the gradient. Parameters and constants have no boxes of their own.

    Args:
        program: for example `graph.program`.
        max_boxes: refuse to draw more than these.
        figure: a matplotlib figure to draw into; by default a new one from pyplot, which notebooks show by themselves.

    Returns:
        the figure, which is made as large as the picture.

    Raises:
        GraphError: for a program of more instructions.
    """
    if len(program.instructions) > max_boxes:
        raise GraphError(
            f"graph.show: the program has {len(program.instructions)} instructions, more than {max_boxes}, too many to "
            "read; draw the graph of a part of the model, or pass a larger max_boxes"
        )
    boxes = boxes_of(program)
    bands = bands_of(boxes)
    frames = frames_of(bands)
    columns = place(bands)
    if figure is None:
        import matplotlib.pyplot

        figure = matplotlib.pyplot.figure()
    axes = canvas(figure, program, bands, columns)
    for frame in frames:
        draw_frame(axes, frame, bands, columns)
    draw_arrows(axes, boxes, columns[UPDATE][0] - 0.35)
    for box in boxes:
        draw_box(axes, box)
    return figure


# drawing


def canvas(figure: Figure, program: Program, bands: list[Band], columns: dict[str, tuple[float, float]]) -> Any:
    """Axes over the whole figure, which is made as large as the picture, with inches as the unit; a title and heads."""
    deepest = max((band.depth for band in bands), default=0)
    head = 0.75
    left = min(x for x, _ in columns.values()) - deepest * INSET - MARGIN
    right = max(x for _, x in columns.values()) + deepest * INSET + MARGIN
    lines = [f"{program.name}: {len(program.instructions)} instructions", *legend(bands)]
    spare = max(0.0, CHARACTER * max(map(len, lines)) + 2 * MARGIN - (right - left)) / 2
    left, right = left - spare, right + spare
    bottom = (bands[-1].bottom if bands else 0.0) + deepest * INSET + MARGIN + LINE * len(lines)
    figure.set_size_inches(right - left, bottom + head)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(bottom, -head))
    axes.set_axis_off()
    write(axes, left + MARGIN, -head + 0.22, lines[0], weight="bold", size=1.15 * POINTS, ha="left")
    for phase in PHASES:
        if any(band.columns[phase] for band in bands):
            x = sum(columns[phase]) / 2
            write(axes, x, -head + 0.52, phase, color=EDGE[phase], weight="bold", size=1.1 * POINTS)
    for number, line in enumerate(lines[1:]):
        write(axes, left + MARGIN, bottom - LINE * (len(lines) - 1 - number) - 0.1, line, color=PALE, ha="left")
    return axes


def legend(bands: list[Band]) -> Iterator[str]:
    """The lines at the foot."""
    boxes = [box for band in bands for column in band.columns.values() for box in column]
    if any(box.phase == BACKWARD for box in boxes):
        yield "dashed: kept for backward"
    if any(box.fused for box in boxes):
        yield "dark: fused by a pass"
    if any(box.result for box in boxes):
        yield "red edge: returned by the graph"


def write(axes: Any, x: float, y: float, line: str, **style: Any) -> None:
    """A line of text."""
    style = {"size": POINTS, "family": FONT, "color": INK, "ha": "center", "va": "center", **style}
    axes.text(x, y, line, **style)


def draw_frame(axes: Any, frame: Frame, bands: list[Band], columns: dict[str, tuple[float, float]]) -> None:
    """The box of a module with its name."""
    from matplotlib.patches import FancyBboxPatch

    first, last = bands[frame.first], bands[frame.last]
    inside_above = first.depth - frame.depth  # frames that begin at the same band, this one included
    inside_below = last.depth - frame.depth
    above = sum(1 for _ in range(inside_above)) * (LABEL + INSET)
    top = first.top - above
    bottom = last.bottom + inside_below * INSET
    deepest = max(band.depth for band in bands)
    left = min(x for x, _ in columns.values()) - (deepest - frame.depth) * INSET
    right = max(x for _, x in columns.values()) + (deepest - frame.depth) * INSET
    style = "round,pad=0,rounding_size=0.06"
    axes.add_patch(
        FancyBboxPatch((left, top), right - left, bottom - top, boxstyle=style, facecolor=FRAMES[frame.depth % 2],
                       edgecolor=FRAME, linewidth=0.8)
    )  # fmt: skip
    write(axes, left + 0.08, top + LABEL / 2 + 0.03, frame.label, weight="bold", ha="left")


def draw_box(axes: Any, box: Box) -> None:
    """A rounded box with its lines."""
    from matplotlib.patches import FancyBboxPatch

    fill = FUSED[box.phase] if box.fused else FILL[box.phase]
    style = "round,pad=0,rounding_size=0.05"
    corner = box.x - box.width / 2, box.y - box.height / 2
    edge, width = (RESULT, 1.6) if box.result else (EDGE[box.phase], 0.8)
    axes.add_patch(
        FancyBboxPatch(
            corner, box.width, box.height, boxstyle=style, facecolor=fill, edgecolor=edge, linewidth=width, zorder=2
        )
    )
    for number, line in enumerate(box.lines):
        y = box.y + LINE * (number - (len(box.lines) - 1) / 2)
        write(axes, box.x, y, line, color=INK if number == 0 or box.fused else "#555555",
              size=POINTS if number == 0 else 0.9 * POINTS)  # fmt: skip


def draw_arrows(axes: Any, boxes: list[Box], bus: float) -> None:
    """An arrow for each value, from where it is computed to where it is read; gradients meet at x = `bus`."""
    maker = {slot: box for box in boxes for slot in box.writes}
    done = set()
    for box in boxes:
        for slot in box.reads:
            source = maker.get(slot)
            if source is not None and (source, box) not in done:
                done.add((source, box))
                draw_arrow(axes, source, box, boxes, bus)


def draw_arrow(axes: Any, source: Box, target: Box, boxes: list[Box], bus: float) -> None:
    """A smooth curve within a column or from one to the next."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    kept = target.phase == BACKWARD and source.phase in (FORWARD, INPUT)
    if kept or target.phase == UPDATE != source.phase:
        side = 1 if target.x >= source.x else -1
        start = source.x + side * source.width / 2, source.y
        end = target.x - side * target.width / 2, target.y
        points, codes = sideways(start, end) if kept else by_bus(start, end, bus)
    else:
        points, codes = along_column(source, target, boxes)
    style = {"linestyle": (0, (3, 2)), "linewidth": 0.6, "alpha": 0.8} if kept else {"linewidth": 0.9}
    color = EDGE[BACKWARD] if target.phase == UPDATE else EDGE[target.phase]
    axes.add_patch(
        FancyArrowPatch(path=Path(points, codes), arrowstyle="-|>", mutation_scale=6, color=color, zorder=1.5, **style)
    )


def sideways(start: tuple[float, float], end: tuple[float, float]) -> tuple[list, list[int]]:
    """One curve from column to column."""
    from matplotlib.path import Path

    bend = (start[0] + end[0]) / 2
    return [start, (bend, start[1]), (bend, end[1]), end], [Path.MOVETO, *[Path.CURVE4] * 3]


def by_bus(start: tuple[float, float], end: tuple[float, float], bus: float) -> tuple[list, list[int]]:
    """To the right, along the line on which gradients meet, and to the right again."""
    from matplotlib.path import Path

    turn = min(0.12, abs(end[1] - start[1]) / 2)
    down = turn if end[1] >= start[1] else -turn
    points = [start, (bus - turn, start[1]), (bus, start[1]), (bus, start[1] + down)]
    points += [(bus, end[1] - down), (bus, end[1]), (bus + turn, end[1]), end]
    codes = [Path.MOVETO, Path.LINETO, Path.CURVE3, Path.CURVE3, Path.LINETO, Path.CURVE3, Path.CURVE3, Path.LINETO]
    return points, codes


def along_column(source: Box, target: Box, boxes: list[Box]) -> tuple[list[tuple[float, float]], list[int]]:
    """The way from one box of a column to another: straight, or around the boxes between them."""
    from matplotlib.path import Path

    down = 1 if target.y >= source.y else -1
    start = source.x, source.y + down * source.height / 2
    end = target.x, target.y - down * target.height / 2
    low, high = sorted((start[1], end[1]))
    between = [
        box for box in boxes
        if box is not source and box is not target and low < box.y < high
        and abs(box.x - (source.x + target.x) / 2) < (box.width + abs(source.x - target.x)) / 2
    ]  # fmt: skip
    codes = [Path.MOVETO, *[Path.CURVE4] * 3]
    if not between:
        middle = (start[1] + end[1]) / 2
        return [start, (start[0], middle), (end[0], middle), end], codes
    edge = max(box.x + box.width / 2 for box in [source, target, *between])
    lane = edge + 0.1 + 0.05 * (round(source.y * 10) % 5)  # neighbours seldom fall together
    turn = min(0.35, (high - low) / 3)
    points = [start, (start[0], start[1] + down * turn * 0.6), (lane, start[1]), (lane, start[1] + down * turn)]
    points += [(lane, end[1] - down * turn), (lane, end[1]), (end[0], end[1] - down * turn * 0.6), end]
    return points, [*codes, Path.LINETO, *[Path.CURVE4] * 3]
