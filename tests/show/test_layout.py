"""The placement of boxes: arrows point down, neighbours do not touch, long edges go around boxes."""

import numpy as np
import pytest

from miniflow.show.layout import GAP, ROW, assign_rows, layered, separate


def random_graph(seed):
    random = np.random.default_rng(seed)
    nodes = [f"n{i}" for i in range(random.integers(2, 30))]
    edges = []
    for target in range(1, len(nodes)):
        for source in random.integers(0, target, random.integers(1, 4)):
            edges.append((nodes[source], nodes[target]))
    return {node: float(random.uniform(0.3, 2.0)) for node in nodes}, edges


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(20))
def test_edges_point_down_and_boxes_keep_their_distance(seed):
    widths, edges = random_graph(seed)
    layout = layered(widths, edges)
    assert set(layout.places) == set(widths)
    rows = {}
    for node, (x, y) in layout.places.items():
        rows.setdefault(y, []).append((x, widths[node], ("node", node)))
    for (source, target), route in zip(edges, layout.routes, strict=True):
        assert route[0] == layout.places[source] and route[-1] == layout.places[target]
        steps = np.diff([y for _, y in route])
        np.testing.assert_allclose(steps, -ROW)  # one row at a time, never through a row without a place in it
        for bend in route[1:-1]:
            rows.setdefault(bend[1], []).append((bend[0], 0.1, ("bend", source, target)))
    for row in rows.values():
        row.sort()
        for (x0, w0, _), (x1, w1, _) in zip(row, row[1:], strict=False):
            assert x1 - x0 >= (w0 + w1) / 2 + GAP - 1e-9


def test_row_is_the_longest_path_to_the_result():
    rows = assign_rows(["x", "a", "b", "y"], [("x", "a"), ("a", "b"), ("b", "y"), ("x", "y")])
    assert rows == {"x": 3, "a": 2, "b": 1, "y": 0}


def test_separate_is_the_least_squares_solution():
    widths, wanted = [1.0, 1.0, 1.0], [0.0, 0.0, 10.0]
    np.testing.assert_allclose(separate(wanted, widths), [-0.625, 0.625, 10.0])  # the first two share the displacement
    random = np.random.default_rng(1)
    wanted, widths = list(random.standard_normal(9)), list(random.uniform(0.1, 1, 9))
    best = np.array(separate(wanted, widths))
    offsets = np.concatenate([[0], np.cumsum((np.array(widths[1:]) + widths[:-1]) / 2 + GAP)])
    cost = np.sum((best - wanted) ** 2)
    for _ in range(2000):  # no feasible point nearby is better
        other = np.maximum.accumulate(best - offsets + 0.05 * random.standard_normal(9)) + offsets
        assert np.sum((other - wanted) ** 2) >= cost - 1e-12


def test_one_box():
    assert layered({"only": 1.0}, []).places == {"only": (0.0, 0.0)}
