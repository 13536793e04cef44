"""Detectors of miniflow.vision beside torchvision's."""

import pytest
from detectors import ALL_REGIONS, DETECTORS, both, samples, settle, step, with_operators
from models import compare_gradients, compare_values, needed, state_of, torch

import miniflow as flow

models = flow.vision.models
FASTER = "fasterrcnn_mobilenet_v3_large_fpn"
OURS = {
    **{name: DETECTORS[name] for name in DETECTORS if name.startswith(("ssd", "retinanet", "faster"))},
    FASTER: {**ALL_REGIONS, "rpn_score_thresh": 0.0},
}


def pair(name, **options):
    """Our detector and torchvision's, with the same weights."""
    options = {"weights_backbone": None, "num_classes": 3, **options}
    other = needed("torchvision").models.get_model(name, **options)
    settle(other)
    mine = models.get_model(name, **options)
    mine.load_state_dict(state_of(other))
    return mine, other


def compare_all(got, want):
    """Dicts of tensors."""
    for x, y in zip(got, want, strict=True):
        assert x.keys() == y.keys()
        for key in y:
            compare_values(x[key], y[key], key)


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", FASTER])
def test_boxes_losses_and_gradients(name, monkeypatch):
    with_operators(monkeypatch)
    images, targets = samples()
    mine, other = pair(name, **OURS[name])
    want = step(torch.tensor, other, images, targets)
    assert len(want[0]["boxes"]) >= 10
    compare_all(step(flow.tensor, mine, images, targets), want)
    compare_gradients(mine, other)


@pytest.mark.parametrize("name", ["ssd300_vgg16", "fasterrcnn_resnet50_fpn"])
def test_boxes_and_losses(name, monkeypatch):
    with_operators(monkeypatch)
    images, targets = (x[:1] for x in samples())
    mine, other = pair(name, **OURS[name])
    found = []
    for model, library in ((other, torch), (mine, flow)):
        model.backbone.forward = cache(model.backbone.forward)  # does the same in training
        with library.no_grad():
            boxes, losses = both(library.tensor, model, images, targets)
        found.append([*boxes, losses])
    assert len(found[0][0]["boxes"]) >= 10
    compare_all(found[1], found[0])


def cache(function):
    """Returns what it returned first."""
    results = []
    return lambda x: results[0] if results else results.append(function(x)) or results[0]
