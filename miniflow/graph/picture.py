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
from miniflow.show import drawing
from miniflow.show.drawing import INK, PALE, Point, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN = 0.3
HEAD = 0.75  # height of the title and the names of the columns
FILL = {INPUT: "#d9ead3", FORWARD: "#dce9f5", BACKWARD: "#fbe3d0", UPDATE: "#e5dcf1"}
FUSED = {FORWARD: "#7fb2de", BACKWARD: "#f0a76b", UPDATE: "#b198d8"}
EDGE = {INPUT: "#6aa84f", FORWARD: "#3d79b0", BACKWARD: "#c46a1f", UPDATE: "#7a57b0"}
FRAMES = ("#f7f7f7", "#ffffff")
FRAME, RESULT = "#bbbbbb", "#cc0000"


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
    axes = canvas(figure, program, bands, columns)
    for frame in frames:
        draw_frame(axes, frame, bands, columns)
    draw_arrows(axes, boxes, columns[UPDATE][0] - 0.35)
    for box in boxes:
        draw_box(axes, box)
    return axes.figure


# drawing


def canvas(figure: Figure | None, program: Program, bands: list[Band], columns: dict[str, Point]) -> Any:
    """Axes over the whole figure, which is made as large as the picture, with inches as the unit; a title and heads."""
    deepest = max((band.depth for band in bands), default=0)
    left, right = sides(columns, deepest, MARGIN)
    lines = [f"{program.name}: {len(program.instructions)} instructions", *legend(bands)]
    spare = max(0.0, CHARACTER * max(map(len, lines)) + 2 * MARGIN - (right - left)) / 2
    left, right = left - spare, right + spare
    bottom = (bands[-1].bottom if bands else 0.0) + deepest * INSET + MARGIN + LINE * len(lines)
    axes = drawing.canvas(figure, left, right, bottom, -HEAD)
    write(axes, left + MARGIN, -HEAD + 0.22, lines[0], weight="bold", size=1.15 * POINTS, ha="left")
    for phase in PHASES:
        if any(band.columns[phase] for band in bands):
            x = sum(columns[phase]) / 2
            write(axes, x, -HEAD + 0.52, phase, color=EDGE[phase], weight="bold", size=1.1 * POINTS)
    for number, line in enumerate(lines[1:]):
        y = bottom - LINE * (len(lines) - 1 - number) - 0.1
        write(axes, left + MARGIN, y, line, color=PALE, ha="left", size=POINTS)
    return axes


def sides(columns: dict[str, Point], frames: int, margin: float = 0.0) -> Point:
    """Left and right of what lies around the columns: so many frames, and a margin."""
    around = frames * INSET + margin
    return min(x for x, _ in columns.values()) - around, max(x for _, x in columns.values()) + around


def legend(bands: list[Band]) -> Iterator[str]:
    """The lines at the foot."""
    boxes = [box for band in bands for column in band.columns.values() for box in column]
    if any(box.phase == BACKWARD for box in boxes):
        yield "dashed: kept for backward"
    if any(box.fused for box in boxes):
        yield "dark: fused by a pass"
    if any(box.result for box in boxes):
        yield "red edge: returned by the graph"


def draw_frame(axes: Any, frame: Frame, bands: list[Band], columns: dict[str, Point]) -> None:
    """The box of a module with its name."""
    first, last = bands[frame.first], bands[frame.last]
    top = first.top - (first.depth - frame.depth) * (LABEL + INSET)  # below the frames that begin at the same band
    bottom = last.bottom + (last.depth - frame.depth) * INSET
    left, right = sides(columns, max(band.depth for band in bands) - frame.depth)
    fill = FRAMES[frame.depth % 2]
    drawing.box(axes, (left, top), right - left, bottom - top, fill, edgecolor=FRAME)
    write(axes, left + 0.08, top + LABEL / 2 + 0.03, frame.label, weight="bold", ha="left", size=POINTS)


def draw_box(axes: Any, box: Box) -> None:
    """A rounded box with its lines."""
    fill = FUSED[box.phase] if box.fused else FILL[box.phase]
    corner = box.x - box.width / 2, box.y - box.height / 2
    edge = {"edgecolor": RESULT, "linewidth": 1.6} if box.result else {"edgecolor": EDGE[box.phase]}
    drawing.box(axes, corner, box.width, box.height, fill, 0.05, zorder=2, **edge)
    for number, line in enumerate(box.lines):
        y = box.y + LINE * (number - (len(box.lines) - 1) / 2)
        color, size = INK if number == 0 or box.fused else "#555555", POINTS if number == 0 else 0.9 * POINTS
        write(axes, box.x, y, line, color=color, size=size)


def draw_arrows(axes: Any, boxes: list[Box], bus: float) -> None:
    """An arrow for each value, from where it is computed to where it is read; gradients meet at x = `bus`."""
    maker = {slot: box for box in boxes for slot in box.writes}
    pairs = [(maker[slot], box) for box in boxes for slot in box.reads if slot in maker]
    for source, target in dict.fromkeys(pairs):
        draw_arrow(axes, source, target, boxes, bus)


def draw_arrow(axes: Any, source: Box, target: Box, boxes: list[Box], bus: float) -> None:
    """A smooth curve within a column or from one to the next."""
    is_saved = target.phase == BACKWARD and source.phase in (FORWARD, INPUT)
    if is_saved or target.phase == UPDATE != source.phase:
        side = 1 if target.x >= source.x else -1
        start = source.x + side * source.width / 2, source.y
        end = target.x - side * target.width / 2, target.y
        pieces = sideways(start, end) if is_saved else by_bus(start, end, bus)
    else:
        down = 1 if target.y >= source.y else -1
        start = source.x, source.y + down * source.height / 2
        pieces = along_column(start, (target.x, target.y - down * target.height / 2), source, target, boxes)
    style = {"linestyle": (0, (3, 2)), "linewidth": 0.6, "alpha": 0.8} if is_saved else {"linewidth": 0.9}
    color = EDGE[BACKWARD] if target.phase == UPDATE else EDGE[target.phase]
    drawing.arrow(axes, start, pieces, mutation_scale=6, color=color, zorder=1.5, **style)


def sideways(start: Point, end: Point) -> list[list[Point]]:
    """One curve from column to column."""
    bend = (start[0] + end[0]) / 2
    return [[(bend, start[1]), (bend, end[1]), end]]


def by_bus(start: Point, end: Point, bus: float) -> list[list[Point]]:
    """To the right, along the line on which gradients meet, and to the right again."""
    turn = min(0.12, abs(end[1] - start[1]) / 2)
    down = turn if end[1] >= start[1] else -turn
    onto = [(bus - turn, start[1])], [(bus, start[1]), (bus, start[1] + down)]
    return [*onto, [(bus, end[1] - down)], [(bus, end[1]), (bus + turn, end[1])], [end]]


def along_column(start: Point, end: Point, source: Box, target: Box, boxes: list[Box]) -> list[list[Point]]:
    """The way from one box of a column to another: straight, or around the boxes between them."""
    low, high = sorted((start[1], end[1]))
    between = [
        box for box in boxes
        if box is not source and box is not target and low < box.y < high
        and abs(box.x - (source.x + target.x) / 2) < (box.width + abs(source.x - target.x)) / 2
    ]  # fmt: skip
    if not between:
        middle = (start[1] + end[1]) / 2
        return [[(start[0], middle), (end[0], middle), end]]
    edge = max(box.x + box.width / 2 for box in [source, target, *between])
    lane = edge + 0.1 + 0.05 * (round(source.y * 10) % 5)  # neighbours seldom fall together
    turn = min(0.35, (high - low) / 3) * (1 if target.y >= source.y else -1)
    out = [(start[0], start[1] + turn * 0.6), (lane, start[1]), (lane, start[1] + turn)]
    back = [(lane, end[1]), (end[0], end[1] - turn * 0.6), end]
    return [out, [(lane, end[1] - turn)], back]
