"""Layers, boxes and pictures on every device, at random, in graphs, and what they refuse."""

import numpy as np
import pytest
from checks import assert_close, on_device

import miniflow as flow
from miniflow.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from miniflow.vision import layers, ops, utils

ON_EVERY_DEVICE = True
PHOTO = flow.zeros(3, 8, 8)
CORNERS = flow.tensor([[1.0, 1.0, 4.0, 5.0]])


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: ops.box_convert(CORNERS, "xyxy", "yxyx"), ArgumentError, "box_convert: got 'xyxy' to 'yxyx'"),
        (lambda: ops.sigmoid_focal_loss(CORNERS, CORNERS, reduction="avg"), ArgumentError, "got reduction='avg'"),
        (lambda: ops.box_area(flow.zeros(2, 5)), ShapeError, r"boxes: got boxes \(2, 5\); expected \(..., 4\)"),
        (lambda: ops.box_iou([[0, 0, 1, 1]], CORNERS), ArgumentTypeError, "expected a tensor .*: use flow.tensor"),
        (lambda: ops.FeaturePyramidNetwork([3, 3], 2)({"0": PHOTO[None]}), ArgumentError, "maps .'0'.; expected 2 of"),
        (lambda: ops.MultiScaleRoIAlign(["1"], 2, 2)({"0": PHOTO}, [], []), ArgumentError, "'0'.; expected some of"),
        (lambda: utils.make_grid(PHOTO[None], nrow=0), ArgumentError, "make_grid: got images .*, nrow=0"),
        (lambda: utils.make_grid(PHOTO[None, None]), ArgumentError, r"make_grid: got images \(1, 1, 3, 8, 8\)"),
        (lambda: utils.make_grid(PHOTO[:0]), ArgumentError, r"make_grid: got images \(1, 0, 8, 8\)"),
        (lambda: utils.make_grid(PHOTO, value_range=(1, 0)), ArgumentError, "make_grid: .*range .1, 0.; .*low <= high"),
        (lambda: utils.draw_bounding_boxes(PHOTO, [[0, 0, 1, 1]]), ArgumentTypeError, "draw_.*expected tensors"),
        (lambda: utils.draw_bounding_boxes(PHOTO, CORNERS[0]), ShapeError, r"expected \(N, 4\)"),
        (lambda: utils.draw_segmentation_masks(PHOTO, PHOTO > 0, alpha=3), ArgumentError, "alpha=3; .*from 0 to 1"),
        (lambda: ops.stochastic_depth(CORNERS, 1.5, "row"), ArgumentError, "got p=1.5, mode='row'; expected 0 <= p"),
        (lambda: ops.stochastic_depth(CORNERS, 0.5, "rows"), ArgumentError, 'mode=.rows.; .* "batch" or "row"'),
        (lambda: ops.drop_block2d(CORNERS, 0.5, 3), ShapeError, r"drop_block2d: got input .* expected \(N, C, H, W\)"),
        (lambda: ops.drop_block2d(PHOTO[None], 0.5, 4), ArgumentError, "got p=0.5, block_size=4; .* an odd size"),
        (lambda: layers.PatchEmbed(16, 4)(PHOTO[None]), ShapeError, r"PatchEmbed: got x .*\(N, 3, \*\(16, 16\)"),
        (lambda: layers.variance_scaling_(PHOTO, mode="fan"), ArgumentError, "got mode='fan', .* one of .*fan_avg"),
        (lambda: utils.draw_bounding_boxes(PHOTO[None], CORNERS), ShapeError, r"one image \(C, H, W\) of 1 or 3"),
        (lambda: utils.draw_bounding_boxes(PHOTO.long(), CORNERS), DTypeError, "expected uint8 from 0 to 255"),
        (lambda: utils.draw_bounding_boxes(PHOTO, -CORNERS), ArgumentError, "got x1 > x2 or y1 > y2; expected corners"),
        (lambda: utils.draw_bounding_boxes(PHOTO, CORNERS, ["a", "b"]), ArgumentError, "got 2 labels; .* 1 boxes"),
        (lambda: utils.draw_segmentation_masks(PHOTO, PHOTO), ShapeError, r"expected bool masks \(N, \*\(8, 8\)\)"),
        (lambda: utils.draw_segmentation_masks(PHOTO, PHOTO > 0, colors=[(0, 0, 1)]), ArgumentError, "colors: got 1; "),
    ],
    ids=range(25),
)  # fmt: skip
@pytest.mark.cpu_only("errors do not depend on the device")
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_boxes_of_classes_and_their_features():
    """Two classes; boxes of 2 pixels in an image whose pixels are their columns."""
    boxes = on_device(np.array([[0, 0, 2, 2], [0, 0, 2, 2], [4, 0, 6, 2]], np.float32))
    kept = ops.batched_nms(boxes, on_device(np.array([0.2, 0.9, 0.5], np.float32)), on_device(np.array([0, 1, 0])), 0.5)
    assert kept.tolist() == [1, 2, 0] and kept.device == boxes.device
    columns = np.broadcast_to(np.arange(8, dtype=np.float32), (1, 1, 8, 8)).copy()
    maps = {"fine": on_device(columns), "coarse": on_device(columns[:, :, ::2, ::2].copy())}
    pool = ops.MultiScaleRoIAlign(["fine", "coarse"], 1, 2, canonical_scale=4, canonical_level=1)
    found = pool(maps, [on_device(np.array([[0, 0, 6, 6], [1, 1, 3, 3]], np.float32))], [(8, 8)])
    assert found.device == boxes.device
    assert_close(found.flatten(), np.array([3.0, 2.0], np.float32))  # the means of 0, 2, ... to 6, and of 1 to 3


@pytest.mark.parametrize("scaled", [True, False])
def test_paths_are_dropped_by_sample_and_repeat_by_seed(scaled):
    ones, layer = flow.ones(400, 2, 3), layers.DropPath(0.25, scaled)
    flow.manual_seed(0)
    first = layer(ones).numpy()
    flow.manual_seed(0)
    assert_close(layer(ones), first)
    assert_close(first, np.broadcast_to(first[:, :1, :1], first.shape))
    values, counts = np.unique(first, return_counts=True)
    assert_close(values, np.array([0, 4 / 3 if scaled else 1], np.float32))
    assert 0.68 < counts[1] / first.size < 0.82  # three standard deviations


@pytest.mark.slow
def test_a_graph_drops_other_paths_each_time():
    class Step(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layers.DropPath(0.5)

        def build(self, x):
            return self.layer(x)

    step, x = Step(), flow.ones(64, 2)
    first, second = step(x).numpy(), step(x).numpy()
    assert set(first.flat) == set(second.flat) == {0, 2} and (first != second).any()


LAYERS = {
    "SE": lambda: layers.SE(16), "ECA": lambda: layers.ECA(16), "CBAM": lambda: layers.CBAM(16),
    "BAM": lambda: layers.BAM(16, reduction=4), "GCT": lambda: layers.GCT(16), "CoordAtt": lambda: layers.CoordAtt(16),
    "GlobalContext": lambda: layers.GlobalContext(16, fuse_add=True), "NonLocal": lambda: layers.NonLocal(16),
    "Conv2dSame": lambda: layers.Conv2dSame(16, 4, 3, 2), "FrozenBatchNorm2d": lambda: layers.FrozenBatchNorm2d(16),
    "LayerNorm2d": lambda: layers.LayerNorm2d(16), "GluMlp": lambda: layers.GluMlp(16, 32, use_conv=True),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.cpu_only("onnxruntime computes on the CPU")
@pytest.mark.parametrize("name", LAYERS)
def test_layers_in_a_graph_and_in_onnxruntime(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")
    flow.manual_seed(0)
    layer, x = LAYERS[name]().eval(), flow.randn(2, 16, 6, 5)
    for parameter in layer.parameters():  # some begin as the identity
        flow.nn.init.normal_(parameter)
    want = layer(x).detach()

    class Forward(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def build(self, x):
            return self.layer(x)

    assert_close(Forward()(x), want.numpy(), rtol=1e-4, atol=1e-4)
    flow.onnx.export(layer, x, str(tmp_path / "layer.onnx"))
    session = runtime.InferenceSession(str(tmp_path / "layer.onnx"))
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert_close(found, want.numpy(), rtol=1e-4, atol=1e-4)
