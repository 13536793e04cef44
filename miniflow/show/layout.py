"""The layout of a directed acyclic graph: boxes in rows from top to bottom, every arrow pointing down.

The four steps of Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", 1981:
assign rows, break long edges with bend points, order each row so that few edges cross, and give every box its place.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

Key = Hashable
SWEEPS = 24
GAP = 0.25  # between neighbours in a row
ROW = 0.85  # from one row to the next


@dataclass
class Layout:
    """Where things are, in inches, y pointing up and the last row at 0.

    Attributes:
        places: for each node, the centre of its box.
        routes: for each edge, in the order given, the points that it passes, from its source's centre to its target's.
    """

    places: dict[Key, tuple[float, float]]
    routes: list[list[tuple[float, float]]]


def layered(widths: dict[Key, float], edges: Sequence[tuple[Key, Key]]) -> Layout:
    """Place the nodes of a directed acyclic graph.

    Args:
        widths: the width of each node's box, in inches.
        edges: (source, target) pairs; several between one pair are allowed.

    >>> layout = layered({"x": 1.0, "y": 1.0}, [("x", "y")])
    >>> layout.places
    {'x': (0.0, 0.85), 'y': (0.0, 0.0)}
    """
    nodes, widths = list(widths), dict(widths)
    rows = assign_rows(nodes, edges)
    chains = []
    for number, (source, target) in enumerate(edges):
        bends: list[Key] = [("bend", number, row) for row in range(rows[source] - 1, rows[target], -1)]
        widths.update(dict.fromkeys(bends, 0.1))
        rows.update({bend: bend[2] for bend in bends})
        chains.append([source, *bends, target])
    links = [pair for chain in chains for pair in zip(chain, chain[1:], strict=False)]
    x = assign_x(order_rows(rows, links), links, widths)
    points = {key: (x[key], ROW * row) for key, row in rows.items()}
    return Layout({node: points[node] for node in nodes}, [[points[key] for key in chain] for chain in chains])


def assign_rows(nodes: Sequence[Key], edges: Sequence[tuple[Key, Key]]) -> dict[Key, int]:
    """For each node the length of the longest path to a sink: sinks are in row 0."""
    # in the order of the edges, which decides how a row begins
    targets: dict[Key, list[Key]] = {node: [] for node in (*(source for source, _ in edges), *nodes)}
    for source, target in edges:
        targets[source].append(target)
    rows: dict[Key, int] = {}
    for node in TopologicalSorter(targets).static_order():  # targets come first
        rows[node] = max((rows[target] + 1 for target in targets[node]), default=0)
    return rows


def order_rows(rows: dict[Key, int], links: Sequence[tuple[Key, Key]]) -> list[list[Key]]:
    """The keys of each row from left to right: each at the mean position of its neighbours, by sweeps down and up."""
    grid: list[list[Key]] = [[] for _ in range(max(rows.values(), default=-1) + 1)]
    for key, row in rows.items():
        grid[row].append(key)
    above, below = neighbours(links)
    for sweep in range(SWEEPS):
        order, side = (grid[1:], below) if sweep % 2 else (grid[-2::-1], above)
        for row in order:
            position = {key: index / len(line) for line in grid for index, key in enumerate(line)}
            row.sort(key=lambda key: mean([position[n] for n in side.get(key, ())], position[key]))  # noqa: B023
    return grid


def assign_x(grid: list[list[Key]], links: Sequence[tuple[Key, Key]], widths: dict[Key, float]) -> dict[Key, float]:
    """The x of every key: as near to its neighbours' mean as the widths in its row allow."""
    above, below = neighbours(links)
    x = dict.fromkeys(widths, 0.0)
    for sweep in range(SWEEPS):
        for row in grid if sweep % 2 else reversed(grid):
            targets = [mean([x[n] for n in above.get(key, []) + below.get(key, [])], x[key]) for key in row]
            x.update(zip(row, separate(targets, [widths[key] for key in row]), strict=True))
    return x


def separate(targets: list[float], widths: list[float]) -> list[float]:
    """The places closest to `targets`, in least squares, at which boxes in this order do not touch.

    Without the distances this is isotonic regression, solved by pooling adjacent violators (Barlow et al., 1972).
    """
    offsets = [0.0]
    for left, right in zip(widths, widths[1:], strict=False):
        offsets.append(offsets[-1] + (left + right) / 2 + GAP)
    pools: list[tuple[float, int]] = []  # mean, count
    for target, offset in zip(targets, offsets, strict=False):
        value, count = target - offset, 1
        while pools and pools[-1][0] > value:
            other, size = pools.pop()
            value, count = (value * count + other * size) / (count + size), count + size
        pools.append((value, count))
    pooled = [value for value, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(pooled, offsets, strict=False)]


def neighbours(links: Sequence[tuple[Key, Key]]) -> tuple[dict[Key, list[Key]], dict[Key, list[Key]]]:
    """For each key, what points to it, and what it points to."""
    above: dict[Key, list[Key]] = {}
    below: dict[Key, list[Key]] = {}
    for source, target in links:
        above.setdefault(target, []).append(source)
        below.setdefault(source, []).append(target)
    return above, below


def mean(values: list[float], default: float) -> float:
    """The mean, or `default` of no values."""
    return sum(values) / len(values) if values else default
