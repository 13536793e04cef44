"""Boxes and regions: what `tests/samples.py` leaves out."""

import numpy as np
import pytest
from checks import assert_same, on_device

import miniflow as flow
from miniflow.errors import ArgumentError, DTypeError, GraphTraceError, IndexRangeError, ShapeError

ON_EVERY_DEVICE = True
BOXES = flow.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])


def overlap(a, b):
    w, h = (max(0, min(a[d + 2], b[d + 2]) - max(a[d], b[d])) for d in (0, 1))
    return w * h / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h)


@pytest.mark.parametrize("threshold", [0.1, 0.5])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_box_is_kept_unless_it_overlaps_one_that_is(threshold, kind):
    draw = np.random.default_rng(0)
    first, scores = draw.uniform(0, 10, (60, 2)), draw.permutation(60) / 60
    boxes = np.concatenate([first, first + draw.uniform(1, 8, (60, 2))], 1).astype(kind)
    kept = []
    for i in np.argsort(-scores):
        if all(overlap(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    assert 5 < len(kept) < 55
    assert_same(flow.nms(on_device(boxes), on_device(scores.astype(kind)), threshold), np.array(kept))


def test_boxes_without_area_are_kept():
    assert flow.nms(BOXES, flow.tensor([0.5, 0.5, 0.5]), 0.0).tolist() == [0, 1, 2]
    assert flow.nms(flow.zeros(0, 4), flow.zeros(0), 0.5).shape == (0,)


def test_regions_come_back_in_their_order():
    x = flow.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1, 1).expand(3, 1, 2, 2).contiguous()
    rois = flow.tensor([[2.0, 0, 0, 1, 1], [0.0, 0, 0, 1, 1], [2.0, 0, 0, 1, 1], [1.0, 0, 0, 1, 1]])
    assert flow.roi_align(x, rois, 1.0, 1, 1).flatten().tolist() == [3, 1, 3, 2]


def test_an_image_without_regions_has_no_gradient():
    x = flow.ones(2, 1, 3, 3, requires_grad=True)
    flow.roi_align(x, flow.tensor([[1.0, 0, 0, 2, 2]]), 1.0, 2, 2).sum().backward()
    assert x.grad[0].abs().sum().item() == 0 and x.grad[1].sum().item() == pytest.approx(4)


def test_a_region_that_is_not_finite_has_no_points():
    x = flow.ones(1, 1, 3, 3)
    rois = flow.tensor([[0.0, np.nan, 0, 1, 1], [0.0, 0, 0, np.inf, 1], [0.0, 0, 0, 1, 1]])
    assert flow.roi_align(x, rois, 1.0, 1, 1).flatten().tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: flow.nms(BOXES, flow.zeros(2), 0.5), ShapeError, r"nms: got boxes .*3, 4.* expected \(K, 4\)"),
        (lambda: flow.roi_align(flow.zeros(1, 2, 2), flow.ones(3, 4), 1.0, 1, 1), ShapeError,
         r"roi_align: got input .*\(K, 5\)"),
        (lambda: flow.roi_align(flow.zeros(1, 1, 2, 2), flow.ones(1, 5), 1.0, 1, 1), IndexRangeError,
         r"roi_align: got regions of images \[1.\]; expected 0 to 0"),
        (lambda: flow.roi_align(flow.zeros(1, 1, 2, 2), flow.full((1, 5), np.nan), 1.0, 1, 1), IndexRangeError,
         r"roi_align: got regions of images \[nan\]; expected 0 to 0"),
        (lambda: flow.roi_align(flow.zeros(1, 1, 0, 2), flow.zeros(1, 5), 1.0, 1, 1), ShapeError, "with pixels"),
        (lambda: flow.roi_align(flow.zeros(1, 1, 2, 2).long(), flow.zeros(1, 5), 1.0, 1, 1), DTypeError, "floating"),
        (lambda: flow.roi_align(flow.zeros(1, 1, 2, 2), flow.zeros(1, 5), 1.0, -1, 1), ArgumentError, "pooled_h"),
        (lambda: flow.roi_align(flow.zeros(1, 1, 2, 2), flow.zeros(1, 5), "a", 1, 1), ArgumentError, "scale='a'"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_graphs_refuse_them():
    class Kept(flow.nn.Graph):
        def build(self, boxes, scores):
            return flow.nms(boxes, scores, 0.5)

    with pytest.raises(GraphTraceError):
        Kept()(BOXES, flow.tensor([0.1, 0.2, 0.3]))
