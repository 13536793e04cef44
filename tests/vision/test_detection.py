"""Parts of detectors that draw at random, and what detectors refuse."""

import re

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.vision.models import detection
from miniflow.vision.models.detection.detector import GeneralizedRCNNTransform
from miniflow.vision.models.detection.rpn import sample


@pytest.mark.parametrize("count, fraction, numbers", [(8, 0.5, (4, 4)), (8, 0.75, (6, 2)), (40, 0.5, (7, 20))])
def test_anchors_are_drawn_by_the_generator(count, fraction, numbers):
    matches = flow.tensor([0, 2, -1, -2, 1] * 2 + [0] + [-1] * 18 + [-2] * 3)
    drawn = []
    for seed in (3, 3, 4):
        flow.manual_seed(seed)
        drawn.append([mask.numpy() for mask in sample(matches, count, fraction)])
        positive, negative = drawn[-1]
        assert (positive.sum(), negative.sum()) == numbers
        assert (matches.numpy()[positive] >= 0).all() and (matches.numpy()[negative] == -1).all()
    np.testing.assert_array_equal(*drawn[:2])
    assert count == 40 or not np.array_equal(drawn[0], drawn[2])


def test_a_size_of_several_is_drawn_in_training():
    transform = GeneralizedRCNNTransform(min_size=(8, 12, 16), max_size=30, size_divisible=1)
    flow.manual_seed(0)
    image, target = flow.rand(3, 4, 5), {"boxes": flow.tensor([[1.0, 2.0, 3.0, 4.0]])}
    sizes = set()
    for _ in range(20):
        images, (resized,) = transform([image], [target])
        (size,) = images.image_sizes
        assert images.tensors.shape == (1, 3, *size)
        scale = np.array([size[1] / 5, size[0] / 4] * 2)
        np.testing.assert_allclose(resized["boxes"].numpy(), [scale * [1, 2, 3, 4]], rtol=1e-6)
        sizes.add(size)
    assert sizes == {(8, 10), (12, 15), (16, 20)}
    assert transform.eval()([flow.rand(3, 4, 10)])[0].image_sizes == [(12, 30)]


IMAGE, BOX, LABEL = flow.zeros(3, 32, 32), flow.tensor([[4.0, 4.0, 8.0, 8.0]]), flow.tensor([1])


@pytest.mark.parametrize("images, targets, error, message", [
    ([IMAGE], None, ArgumentError, "got no targets, expected one for each image; to detect, call eval() first"),
    ([IMAGE[0]], [{"boxes": BOX}], ShapeError, "Detector: got image (32, 32); expected images (3, H, W)"),
    ([flow.zeros(3, 8, 8, dtype=flow.uint8)], [{"boxes": BOX}], DTypeError,
     "Detector: got an image of miniflow.uint8, expected floating ones from 0 to 1: divide by 255"),
    ([], [], ArgumentError, "Detector: got 0 images and 0 targets, expected at least one image, and a target for each"),
    ([IMAGE], [{"boxes": BOX}] * 2, ArgumentError, "Detector: got 1 images and 2 targets, expected at least one image"),
    ([IMAGE[:1]], [{"boxes": BOX}], ShapeError, "Detector: got image (1, 32, 32); expected images (3, H, W)"),
    ([IMAGE], [{"boxes": BOX}], ArgumentError, "Detector: got ['boxes'] in targets[0], expected boxes and labels"),
    ([IMAGE], [{"boxes": BOX, "labels": BOX[:, 0]}], ArgumentError,
     "Detector: got labels (1,) of miniflow.float32 in targets[0], expected int64 ones, one for each of 1 boxes"),
    ([IMAGE], [{"boxes": BOX, "labels": flow.tensor([1, 2])}], ArgumentError, "got labels (2,) of miniflow.int64"),
    ([IMAGE], [{"boxes": BOX, "labels": -LABEL}], ArgumentError, "got the label -1 in targets[0], expected labels"),
    ([IMAGE], [{"boxes": BOX.long(), "labels": LABEL}], DTypeError, "got boxes of miniflow.int64 in targets[0]"),
    ([IMAGE], [{"boxes": BOX * np.nan, "labels": LABEL}], ArgumentError, "got box [nan, nan, nan, nan] in targets[0]"),
    ([IMAGE], [{"boxes": BOX[0], "labels": flow.tensor([1] * 4)}], ShapeError,
     "Detector: got boxes (4,); expected boxes (K, 4)"),
    ([IMAGE], [{"boxes": flow.cat([BOX, BOX.flip(1)]), "labels": flow.tensor([1, 1])}], ArgumentError,
     "Detector: got box [8.0, 8.0, 4.0, 4.0] in targets[0], expected x1 < x2 and y1 < y2"),
])  # fmt: skip
def test_refusals(images, targets, error, message):
    with pytest.raises(error, match=re.escape(message)):
        detection.detector.Detector(flow.nn.Identity())(images, targets)


def test_a_backbone_has_so_many_stages():
    with pytest.raises(ArgumentError, match="got 3 trainable backbone layers, expected 0 to 2"):
        detection.backbones.freeze([[flow.nn.Linear(1, 1)]] * 2, 3)
    with pytest.raises(ArgumentError, match="Sequential has no 2, 7; expected some of"):
        flow.vision.models.features.IntermediateLayerGetter(flow.nn.Sequential(flow.nn.ReLU()), {"2": "a", "7": "b"})
