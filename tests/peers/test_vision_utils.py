"""Grids, files, boxes and masks of miniflow.vision.utils are those of torchvision.utils, byte by byte."""

import io

import numpy as np
import pytest
from checks import assert_close, assert_same
from models import needed, torch

import miniflow as flow
from miniflow.vision import utils

DRAW = np.random.default_rng(0)
IMAGES = DRAW.uniform(-0.2, 1.2, (7, 3, 9, 6)).astype(np.float32)
PHOTO = DRAW.integers(0, 256, (3, 48, 64)).astype(np.uint8)
BOXES = np.array([[2, 3, 40, 30], [5.7, 8.2, 20, 44], [30, 1, 63, 20]], np.float32)
MASKS = DRAW.random((3, 48, 64)) < 0.4


@pytest.fixture
def peer():
    needed("torchvision")
    import torchvision.utils

    return torchvision.utils


@pytest.mark.parametrize(
    "images, options",
    [
        (IMAGES, {}),
        (IMAGES, {"nrow": 3, "padding": 1, "pad_value": 0.5}),
        (IMAGES[:, :1], {"nrow": 20, "normalize": True}),
        (IMAGES, {"normalize": True, "value_range": (0.0, 0.5), "padding": 0}),
        (IMAGES, {"normalize": True, "scale_each": True}),
        (IMAGES[0], {}),
        (IMAGES[0, :1], {}),
        (IMAGES[0, 0], {}),
        ((IMAGES * 255).astype(np.uint8), {"pad_value": 7}),
    ],
)
def test_grid(images, options, peer):
    want = peer.make_grid(torch.tensor(images), **options).numpy()
    assert_close(utils.make_grid(flow.tensor(images), **options), want)
    if images.ndim == 4:
        assert_close(utils.make_grid([flow.tensor(x) for x in images], **options), want)
    if images.dtype == np.float32:
        files = io.BytesIO(), io.BytesIO()
        utils.save_image(flow.tensor(images), files[0], format="PNG", **options)
        peer.save_image(torch.tensor(images), files[1], format="PNG", **options)
        assert files[0].getvalue() == files[1].getvalue()


@pytest.mark.parametrize("kind", ["uint8", "float32", "grey"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"labels": ["cat", None, "7"], "width": 3, "colors": ["red", (1, 200, 3), "#FF00FF"]},
        {"fill": True, "colors": "blue"},
    ],
)
def test_boxes(kind, options, peer):
    image = PHOTO[:1] if kind == "grey" else PHOTO if kind == "uint8" else (PHOTO / 255).astype(np.float32)
    want = peer.draw_bounding_boxes(torch.tensor(image), torch.tensor(BOXES), **options).numpy()
    assert_close(utils.draw_bounding_boxes(flow.tensor(image), flow.tensor(BOXES), **options), want)


@pytest.mark.parametrize("kind", ["uint8", "float32"])
@pytest.mark.parametrize("options", [{}, {"alpha": 0.3, "colors": ["red", "lime", (0, 1, 200)]}, {"colors": "red"}])
def test_masks(kind, options, peer):
    image = PHOTO if kind == "uint8" else (PHOTO / 255).astype(np.float32)
    want = peer.draw_segmentation_masks(torch.tensor(image), torch.tensor(MASKS), **options).numpy()
    got = utils.draw_segmentation_masks(flow.tensor(image), flow.tensor(MASKS), **options)
    (assert_same if kind == "uint8" else assert_close)(got, want)
    want = peer.draw_segmentation_masks(torch.tensor(image), torch.tensor(MASKS[0])).numpy()
    assert_close(utils.draw_segmentation_masks(flow.tensor(image), flow.tensor(MASKS[0])), want)
