"""Detectors of miniflow.vision beside torchvision's."""

import numpy as np
import pytest
from detectors import ALL_REGIONS, DETECTORS, both, samples, settle, step, with_operators
from models import compare_gradients, compare_values, needed, state_of, torch
from vision import compare_graph_and_onnx, undrawn

import miniflow as flow

models = flow.vision.models
NOTHING = [{"boxes": np.zeros((0, 4), "float32"), "labels": np.zeros(0, "int64")}]
FASTER = "fasterrcnn_mobilenet_v3_large_fpn"
OURS = {
    **{name: DETECTORS[name] for name in DETECTORS if name.startswith(("ssd", "retinanet", "faster"))},
    FASTER: {**ALL_REGIONS, "rpn_score_thresh": 0.0},
}


def pair(name, **options):
    """Our detector and torchvision's, with the same weights."""
    options = {"weights_backbone": None, "num_classes": 3, **options}
    with undrawn():
        other = needed("torchvision").models.get_model(name, **options)
        mine = models.get_model(name, **options)
    settle(other)
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
            _, without_objects = both(library.tensor, model, images, NOTHING)
        found.append([*boxes, losses, without_objects])
    assert len(found[0][0]["boxes"]) >= 10
    compare_all(found[1], found[0])


def cache(function):
    """Returns what it returned first."""
    results = []
    return lambda x: results[0] if results else results.append(function(x)) or results[0]


def tiny(kind, library, **options):
    """A detector with a backbone and other parts of one's own."""
    detection, nn = library.models.detection, flow.nn if library is flow.vision else torch.nn
    backbone = nn.Conv2d(3, 16, 16, 16)
    backbone.out_channels = 16
    anchors = detection.rpn.AnchorGenerator(((16, 40),), ((0.5, 1.0, 2.0),))
    if kind == "retinanet":
        return detection.RetinaNet(backbone, 3, anchor_generator=anchors, score_thresh=0.2, **SIZES, **options)
    return detection.FasterRCNN(
        backbone, rpn_anchor_generator=anchors, box_roi_pool=library.ops.MultiScaleRoIAlign(["0"], 3, 2),
        box_head=detection.faster_rcnn.TwoMLPHead(16 * 9, 20),
        box_predictor=detection.faster_rcnn.FastRCNNPredictor(20, 3), bbox_reg_weights=(5.0, 5.0, 2.0, 2.0),
        rpn_batch_size_per_image=10**6, box_batch_size_per_image=10**6, **SIZES, **options,
    )  # fmt: skip


SIZES = {"min_size": 60, "max_size": 90, "image_mean": (0.3, 0.4, 0.5)}


@pytest.mark.parametrize("kind", ["retinanet", "faster_rcnn"])
def test_other_parts_and_images_of_several_sizes(kind, monkeypatch):
    """In float64, where scores that are nearly equal keep their order."""
    library = with_operators(monkeypatch)
    other = tiny(kind, library)
    settle(other)
    mine = tiny(kind, flow.vision)
    mine.load_state_dict(state_of(other))
    mine, other = mine.double(), other.double()
    images, targets = samples()
    images = [x.astype(float) for x in (*images, np.random.default_rng(3).uniform(size=(3, 35, 110)))]
    targets = [{**target, "boxes": target["boxes"].astype(float)} for target in (*targets, *NOTHING)]
    *want, losses = step(torch.tensor, other, images, targets)
    assert min(len(found["boxes"]) for found in want) > 3
    want.append({name: loss.double() for name, loss in losses.items()})  # torchvision computes one of them in float32
    compare_all(step(flow.tensor, mine, images, targets), want)
    compare_gradients(mine, other)


def test_matches():
    theirs, ours = needed("torchvision.models.detection._utils"), models.detection.anchors
    draw = np.random.default_rng(0)
    corners = draw.uniform(0, 50, (90, 2))
    boxes = np.concatenate([corners, corners + draw.uniform(5, 30, (90, 2))], 1).astype("float32")
    overlap = needed("torchvision").ops.box_iou(torch.tensor(boxes[:9]), torch.tensor(boxes[9:]))
    cases = [
        (theirs.SSDMatcher(0.5), ours.Matcher(0.5, 0.5, one_for_each=True)),
        (theirs.Matcher(0.6, 0.3, True), ours.Matcher(0.6, 0.3, allow_low_quality_matches=True)),
        (theirs.Matcher(0.4, 0.3), ours.Matcher(0.4, 0.3)),
    ]
    results = []
    for other, mine in cases:
        results.append(other(overlap).numpy())
        np.testing.assert_array_equal(mine(flow.tensor(boxes[:9]), flow.tensor(boxes[9:])).numpy(), results[-1])
    assert all((x >= 0).sum() > 2 for x in results) and (results[1] == -2).any() and set(range(9)) <= set(results[0])


def test_a_pyramid_of_a_resnet_whose_first_stages_are_constant():
    make = needed("torchvision.models.detection.backbone_utils").resnet_fpn_backbone
    other = make(backbone_name="resnet18", weights=None, trainable_layers=2, returned_layers=[2, 4]).eval()
    settle(other)
    mine = models.detection.resnet_fpn_backbone("resnet18", trainable_layers=2, returned_layers=[2, 4]).eval()
    mine.load_state_dict(state_of(other))
    images = np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype("float32")
    compare_all([mine(flow.tensor(images))], [other(torch.tensor(images))])
    learning = [{name: p.requires_grad for name, p in model.named_parameters()} for model in (mine, other)]
    assert learning[0] == learning[1] and len(set(learning[0].values())) == 2


def test_first_stages_of_a_trained_vgg_are_constant():
    extractor = needed("torchvision.models.detection.ssd")._vgg_extractor
    with undrawn():
        other = extractor(needed("torchvision").models.vgg16(), False, 2)
        mine = models.create_model("ssd300_vgg16", trained=True, trainable_backbone_layers=2).backbone
    learning = [{name: p.requires_grad for name, p in model.named_parameters()} for model in (mine, other)]
    assert learning[0] == learning[1] and len(set(learning[0].values())) == 2


def test_trained_weights_are_loaded_into_constant_normalizations(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIFLOW_CACHE", str(tmp_path))
    utils = needed("torchvision.models.detection.backbone_utils")
    backbone = utils.mobilenet_backbone(backbone_name="mobilenet_v3_large", weights=None, fpn=True, trainable_layers=3)
    detection = needed("torchvision.models.detection")
    anchors = detection.rpn.AnchorGenerator(((32, 64, 128, 256, 512),) * 3, ((0.5, 1.0, 2.0),) * 3)
    other = detection.FasterRCNN(backbone, 91, rpn_anchor_generator=anchors)
    name = "fasterrcnn_mobilenet_v3_large_320_fpn"
    (tmp_path / "models").mkdir()
    flow.save(state_of(other), tmp_path / "models" / f"{name}.safetensors")
    mine = models.create_model(name, pretrained=True)
    assert {key: value.tolist() for key, value in mine.state_dict().items() if "head" in key and "bias" in key} == {
        key: value.tolist() for key, value in other.state_dict().items() if "head" in key and "bias" in key
    }
    learning = [{name: p.requires_grad for name, p in model.named_parameters()} for model in (mine, other)]
    assert learning[0] == learning[1] and len(set(learning[0].values())) == 2
    with pytest.warns(UserWarning, match="needs trained weights: all layers are trained"):
        mine = models.create_model(name, trainable_backbone_layers=3)
    assert all(p.requires_grad for p in mine.parameters())


class Heads(flow.nn.Module):
    """What nn.Graph takes of a detector."""

    def __init__(self, detector):
        super().__init__()
        self.backbone, self.head = detector.backbone, detector.rpn.head if hasattr(detector, "rpn") else detector.head

    def forward(self, images):
        return tuple(x for found in self.head(list(self.backbone(images).values())) for x in listed(found))


def listed(x):
    """A tensor in a list, too."""
    return [x] if isinstance(x, flow.Tensor) else x


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", FASTER])
def test_graph_and_onnx_of_the_heads(name, tmp_path):
    with undrawn():
        heads = Heads(models.create_model(name, num_classes=3))
    compare_graph_and_onnx(heads, 64, tmp_path)


def test_the_whole_is_not_exported(tmp_path):
    model = tiny("retinanet", flow.vision).eval()
    with pytest.raises(flow.errors.GraphTraceError, match="the shape of the result depends on values"):
        flow.onnx.export(model, ([flow.zeros(3, 64, 64)],), tmp_path / "model.onnx")
