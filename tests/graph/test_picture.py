"""`graph.show()`: every instruction has its box in the column of its phase and the frame of its module."""

import matplotlib
import numpy as np
import pytest
from compare import count_comparison
from folders import Train, batch, network
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import miniflow as flow
from miniflow import nn
from miniflow.errors import GraphError
from miniflow.graph import bands as arrangement
from miniflow.graph import picture
from miniflow.graph.ir import BACKWARD, FORWARD, INPUT, UPDATE


@pytest.fixture(scope="module")
def graph():
    model = network()
    graph = Train(model, flow.optim.SGD(model.parameters(), 0.1))
    graph.config.disable_pass("multi_tensor_update")
    graph(*batch())
    return graph


def drawn(figure):
    axes = figure.axes[0]
    patches = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    frames = [patch for patch in patches if matplotlib.colors.to_hex(patch.get_facecolor()) in picture.FRAMES]
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    return axes, [patch for patch in patches if patch not in frames], frames, arrows


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def placed(program):
    """Boxes and bands with their places."""
    boxes = arrangement.boxes_of(program)
    bands = arrangement.bands_of(boxes)
    frames = arrangement.frames_of(bands)
    columns = arrangement.place(bands)
    return boxes, bands, frames, columns


def test_every_instruction_has_a_box(graph):
    axes, boxes, frames, arrows = drawn(graph.show(figure=Figure()))
    texts = texts_of(axes)
    assert len(boxes) == len(graph.ir.instructions) + 2  # and both inputs
    for op in {i.op.function_name for i in graph.ir.instructions if "body" not in i.attrs}:
        assert op in texts
    assert {FORWARD, BACKWARD, UPDATE, "model"} <= set(texts) and "f32[5, 4, 8, 8]" in texts
    assert "-> weight" in texts and "-> running_mean" in texts
    assert f"{graph.name}: {len(graph.ir.instructions)} instructions" in texts
    assert len(arrows) > len(graph.ir.instructions) // 2


def test_columns_frames_and_order(graph):
    boxes, bands, frames, columns = placed(graph.recorded)
    left = [columns[phase][0] for phase in (FORWARD, BACKWARD, UPDATE)]
    assert left == sorted(left)
    for box in boxes:
        low, high = columns[FORWARD if box.phase == INPUT else box.phase]
        assert low - 1e-6 <= box.x - box.width / 2 and box.x + box.width / 2 <= high + 1e-6
    where = {(box.lines[0], box.scope): box for box in boxes}
    conv, relu, linear = (where[key] for key in (("conv2d", "model.0"), ("relu", "model.2"), ("linear", "model.6")))
    assert conv.y < relu.y < linear.y  # forward goes down
    assert where["conv2d_weight_grad", "model.0"].y < where["relu_grad", "model.2"].y  # backward goes up
    band = {band.scope: band for band in bands}
    for box in boxes:
        if box.phase == UPDATE:
            assert box.scope in ("model.0", "model.1", "model.6")  # beside the module that has the parameter
        assert any(b.top - 1e-6 <= box.y - box.height / 2 and box.y + box.height / 2 <= b.bottom + 1e-6 for b in bands)
    assert band["model.1"].depth == 2
    assert [frame.label for frame in frames][:2] == ["model", "0"] and len(frames) == 8
    count_comparison()


@pytest.mark.parametrize("which", ["recorded", "ir"])
def test_no_box_overlaps_and_every_text_is_inside(graph, which):
    figure = picture.draw(getattr(graph, which), figure=Figure())
    figure.canvas.draw()
    axes, boxes, frames, _ = drawn(figure)
    extents = [box.get_window_extent() for box in boxes]
    for i, one in enumerate(extents):
        assert not any(one.overlaps(other) for other in extents[:i])
    for box in extents:
        for frame in frames:
            outer = frame.get_window_extent()
            inside = np.all(outer.min <= box.min + 1) and np.all(box.max <= outer.max + 1)
            assert inside or not outer.overlaps(box)
    for text in axes.texts:
        inner = text.get_window_extent()
        assert figure.bbox.x0 <= inner.x0 and inner.x1 <= figure.bbox.x1
        if any(box.contains(*inner.get_points().mean(0)) for box in extents):
            assert any(np.all(box.min <= inner.min + 1) and np.all(inner.max <= box.max + 1) for box in extents)
    count_comparison()


def test_fused_instructions_are_dark():
    class Predict(nn.Graph):
        def build(self, x):
            return (x * 2 + 1).exp().sum()

    graph = Predict()
    graph(flow.ones(1000, 100))
    axes, boxes, _, _ = drawn(graph.show(figure=Figure()))
    dark = [box for box in boxes if matplotlib.colors.to_hex(box.get_facecolor()) in picture.FUSED.values()]
    assert len(dark) == 1 and "mul + add + exp" in texts_of(axes) and "dark: fused by a pass" in texts_of(axes)
    axes, boxes, _, _ = drawn(graph.show(recorded=True, figure=Figure()))
    assert not [box for box in boxes if matplotlib.colors.to_hex(box.get_facecolor()) in picture.FUSED.values()]
    assert "exp" in texts_of(axes)


def test_one_update_of_all_parameters_has_a_band_of_its_own():
    model = network()
    graph = Train(model, flow.optim.SGD(model.parameters(), 0.1))
    graph(*batch())
    boxes, bands, frames, _ = placed(graph.ir)
    assert bands[-1].scope == "optimizer.0" and frames[-1].label == "optimizer.0"
    (update,) = (box for box in boxes if box.phase == UPDATE)
    assert update.lines[0].endswith("sgd_update") and update.lines[2] == "-> 6 states"


def test_modules_that_are_entered_again_and_nested_ones():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
            self.last = nn.Linear(3, 3)

        def forward(self, x):
            return self.last(self.block(self.block(x)))

    class Predict(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = Twice()

        def build(self, x):
            return self.net(x).exp()

    graph = Predict()
    graph(flow.ones(2, 3))
    boxes, bands, frames, _ = placed(graph.recorded)
    assert [band.scope for band in bands] == ["", "net.block.0", "net.block.1", "net.last", ""]
    assert [(f.label, f.first, f.last) for f in frames] == [
        ("net", 1, 3), ("block", 1, 2), ("0", 1, 1), ("1", 2, 2), ("last", 3, 3)
    ]  # fmt: skip
    assert len(bands[1].columns[FORWARD]) == 2
    texts = texts_of(graph.show(figure=Figure()).axes[0])
    assert "red edge: returned by the graph" in texts and BACKWARD not in texts and UPDATE not in texts


def test_errors_and_default_figure(graph):
    with pytest.raises(GraphError, match="compiled first"):
        Train(network(), flow.optim.SGD(network().parameters(), 0.1)).show()
    with pytest.raises(GraphError, match=r"has \d+ instructions, more than 10, too many to read.*max_boxes"):
        graph.show(max_boxes=10, figure=Figure())
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure = graph.show()
    assert plt.fignum_exists(figure.number)
    plt.close(figure)


def test_a_program_without_instructions():
    class Same(nn.Graph):
        def build(self, x):
            return x

    graph = Same()
    graph(flow.ones(2))
    axes, boxes, frames, arrows = drawn(graph.show(figure=Figure()))
    assert len(boxes) == 1 and not frames and not arrows
