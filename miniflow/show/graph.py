"""The tape as a picture: a box for every recorded op and for every leaf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from miniflow.dispatch.tape import Leaf, Node, ancestors
from miniflow.errors import AutogradError
from miniflow.show import drawing
from miniflow.show.drawing import PALE, write
from miniflow.show.layout import Layout, layered
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 9
CHARACTER = 0.602 * POINTS / 72  # width in inches
HEIGHT = 0.42  # of a box
PADDING = 0.2  # left and right of the text; an op's number stands in it
MARGIN = 0.25
FOOT = 0.45  # room for the line below the picture
LEAF, OP, OUTPUT = "#d9ead3", "#f3f3f3", "#fce5cd"
TURN = "#b45f06"


def tape(
    tensor: Tensor, names: Mapping[str, Tensor] | None = None, *, max_nodes: int = 150, figure: Figure | None = None
) -> Figure:
    """Draw what the tape holds of a tensor: how it was computed from the leaves that require grad.

    Boxes are recorded ops with the shapes of their results; green boxes are leaves. Arrows point the way the values
    went; gradients flow against them. The number at an op is its position in the order of backward. Inputs that need no
    gradient, such as a batch of data, are not on the tape and so have no box.

    Args:
        tensor: the result, for example a loss; it must require grad.
        names: names for leaves, for example `dict(model.named_parameters())`.
        max_nodes: refuse to draw more boxes than this.
        figure: a matplotlib figure to draw into; by default a new one from pyplot, which notebooks show by themselves.

    Returns:
        the figure; `figure.savefig(path)` writes it to a file.

    Raises:
        AutogradError: if the tensor is not on the tape, or the graph has more than `max_nodes` boxes.

    >>> import miniflow as flow
    >>> from matplotlib.figure import Figure
    >>> w = flow.ones(3, requires_grad=True)
    >>> len(tape((w * w).sum(), {"w": w}, figure=Figure()).axes)
    1
    """
    if not tensor.requires_grad:
        raise AutogradError(
            "show.tape: the tensor does not require grad, so the tape holds nothing of it; compute it from a tensor "
            "with requires_grad=True, outside no_grad"
        )
    root = tensor._fresh_edge()[0]
    nodes, edges = reachable(root, max_nodes)
    labels = label(nodes, names or {})
    widths = {node: CHARACTER * max(map(len, labels[node])) + 2 * PADDING for node in nodes}
    layout = layered(widths, edges)
    axes = canvas(figure, layout, widths)
    draw_arrows(axes, layout, edges, widths)
    turn = 0
    for node in nodes:
        turn += isinstance(node, Node)
        fill = LEAF if isinstance(node, Leaf) else OUTPUT if node is root else OP
        draw_box(axes, layout.places[node], widths[node], labels[node], fill, turn)
    return axes.figure


def reachable(root: Node | Leaf, max_nodes: int) -> tuple[list, list[tuple]]:
    """The nodes from which `root` was made, newest first as backward visits them, and the edges (maker, user)."""
    nodes = ancestors([root])
    if len(nodes) > max_nodes:
        raise AutogradError(
            f"show.tape: the graph has more than {max_nodes} boxes, too many to read; draw a smaller part of the "
            "network, or pass a larger max_nodes"
        )
    return nodes, [(edge[0], node) for node in nodes for edge in node.edges if edge is not None]


def label(nodes: list, names: Mapping[str, Tensor]) -> dict[Any, tuple[str, str]]:
    """Two lines for each box: a name, and the shapes of the results."""
    known = {id(tensor): name for name, tensor in names.items()}
    labels = {}
    for node in nodes:
        title = known.get(id(node.tensor()), "leaf") if isinstance(node, Leaf) else node.op.function_name
        labels[node] = title, " ".join(str(tuple(shape)) for shape in node.shapes)
    return labels


def canvas(figure: Figure | None, layout: Layout, widths: dict) -> Any:
    """Axes over the whole figure, which is made as large as the picture, with inches as the unit."""
    sides = [x + side * widths[node] for node, (x, _) in layout.places.items() for side in (-0.5, 0.5)]
    sides += [x for route in layout.routes for x, _ in route]
    left, right = min(sides), max(sides)
    foot = "values flow down, gradients flow up; numbers: the order of backward"
    spare = max(0.0, CHARACTER * 0.85 * len(foot) - (right - left)) / 2
    left, right = left - spare - MARGIN, right + spare + MARGIN
    top, bottom = max(y for _, y in layout.places.values()) + HEIGHT / 2 + MARGIN, -HEIGHT / 2 - FOOT
    axes = drawing.canvas(figure, left, right, bottom, top)
    write(axes, (left + right) / 2, bottom + 0.12, foot, size=0.85 * POINTS, color=PALE, va="baseline")
    return axes


def draw_box(axes: Any, xy: tuple[float, float], width: float, lines: tuple[str, str], fill: str, turn: int) -> None:
    """A rounded box with a name and the shapes, and for an op its position in the order of backward."""
    x, y = xy
    corner = (x - width / 2, y - HEIGHT / 2)
    drawing.box(axes, corner, width, HEIGHT, fill)
    write(axes, x, y + 0.09, lines[0], size=POINTS)
    write(axes, x, y - 0.09, lines[1], size=0.85 * POINTS, color=PALE)
    if fill != LEAF:
        write(axes, corner[0] + 0.04, y + 0.13, str(turn), size=0.65 * POINTS, color=TURN, ha="left")


def draw_arrows(axes: Any, layout: Layout, edges: list[tuple], widths: dict) -> None:
    """Every edge as a smooth curve; the arrows into one box end next to each other, in the order they come from."""
    for number, port in ports(layout, edges, widths).items():
        route = layout.routes[number]
        (x0, y0), *bends, (_, y1) = route
        points = [(x0, y0 - HEIGHT / 2), *bends, (port, y1 + HEIGHT / 2)]
        pairs = zip(points, points[1:], strict=False)
        pieces = [[(xa, (ya + yb) / 2), (xb, (ya + yb) / 2), (xb, yb)] for (xa, ya), (xb, yb) in pairs]
        drawing.arrow(axes, points[0], pieces, mutation_scale=7, color=PALE, linewidth=0.8)


def ports(layout: Layout, edges: list[tuple], widths: dict) -> dict[int, float]:
    """For each edge the x at which it enters its target."""
    entering: dict[Any, list[int]] = {}
    for number, (_, target) in enumerate(edges):
        entering.setdefault(target, []).append(number)
    result = {}
    for target, numbers in entering.items():
        numbers.sort(key=lambda number: layout.routes[number][-2])
        step = 0.6 * widths[target] / len(numbers)
        for index, number in enumerate(numbers):
            result[number] = layout.places[target][0] + step * (index - (len(numbers) - 1) / 2)
    return result
