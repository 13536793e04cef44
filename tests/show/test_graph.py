"""`flow.show.tape`: every op and leaf has its box, nothing overlaps, and what cannot be drawn is refused."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import miniflow as flow
from miniflow.errors import AutogradError


def two_layers():
    random = np.random.default_rng(0)
    w1, w2 = (flow.tensor(random.standard_normal(shape)).requires_grad_() for shape in ((3, 4), (4, 2)))
    x = flow.tensor(random.standard_normal((5, 3)))
    hidden = (x @ w1).exp()
    return (hidden @ w2 * hidden.sum()).sum(), {"w1": w1, "w2": w2}


def drawn(figure):
    axes = figure.axes[0]
    boxes = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    return axes, boxes, arrows, [text.get_text() for text in axes.texts]


def test_boxes_arrows_and_texts():
    loss, names = two_layers()
    axes, boxes, arrows, texts = drawn(flow.show.tape(loss, names, figure=Figure()))
    assert len(boxes) == 8  # two leaves; matmul, exp, matmul, sum, mul, sum
    assert len(arrows) == 8
    assert texts.count("w1") == texts.count("w2") == 1
    assert texts.count("sum") == 2 and texts.count("exp") == 1 and texts.count("mul") == 1
    assert texts.count("(5, 4)") == 2 and texts.count("(3, 4)") == 1
    assert sorted(text for text in texts if text.isdigit()) == ["1", "2", "3", "4", "5", "6"]


def test_no_box_overlaps_and_every_text_is_inside_its_box():
    loss, names = two_layers()
    figure = flow.show.tape(loss, names, figure=Figure())
    figure.canvas.draw()
    axes, boxes, _, _ = drawn(figure)
    extents = [box.get_window_extent() for box in boxes]
    for i, one in enumerate(extents):
        assert not any(one.overlaps(other) for other in extents[:i])
    *texts, foot = sorted(axes.texts, key=lambda text: -text.get_window_extent().y0)
    for text in texts:
        inner = text.get_window_extent()
        assert any(np.all(box.min <= inner.min) and np.all(inner.max <= box.max) for box in extents)
    assert not any(foot.get_window_extent().overlaps(box) for box in extents)
    assert figure.bbox.x0 <= foot.get_window_extent().x0 and foot.get_window_extent().x1 <= figure.bbox.x1


def test_numbers_are_the_order_of_the_backward_walk():
    loss, names = two_layers()
    axes, _, _, _ = drawn(flow.show.tape(loss, names, figure=Figure()))
    turns = {int(text.get_text()): text.get_position()[1] for text in axes.texts if text.get_text().isdigit()}
    assert turns[1] == min(turns.values())  # the result, in the lowest row, comes first
    assert turns[6] == max(turns.values())


def test_leaf_alone_and_unnamed():
    x = flow.ones(2, 3, requires_grad=True)
    _, boxes, arrows, texts = drawn(flow.show.tape(x, figure=Figure()))
    assert len(boxes) == 1 and not arrows and "leaf" in texts and "(2, 3)" in texts


def test_default_is_a_pyplot_figure(monkeypatch):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure = flow.show.tape(flow.ones(2, requires_grad=True) * 2)
    assert plt.fignum_exists(figure.number)
    plt.close(figure)


def test_without_history_it_says_what_to_do():
    with pytest.raises(AutogradError, match="show.tape: the tensor does not require grad.*requires_grad=True"):
        flow.show.tape(flow.ones(2))


def test_too_many_boxes():
    x = flow.ones(2, requires_grad=True)
    y = x
    for _ in range(20):
        y = y * 2
    with pytest.raises(AutogradError, match="more than 20 boxes.*max_nodes"):
        flow.show.tape(y, max_nodes=20, figure=Figure())
    assert len(drawn(flow.show.tape(y, max_nodes=21, figure=Figure()))[1]) == 21
