"""Batch and layer normalization against torch."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.ops.normalization import batch_norm, layer_norm

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
F = torch.nn.functional
draw = np.random.default_rng(1)


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("shape, dims", [((5, 33), 1), ((2, 3, 8, 5), 2), ((9,), 1)], ids=str)
@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm(shape, dims, affine, kind):
    normalized = shape[-dims:]
    inputs = [1 + 3 * draw.normal(size=shape)]
    inputs += [draw.normal(size=normalized), draw.normal(size=normalized)] if affine else []
    tolerance = {"float32": 5e-5, "float16": 1e-2, "bfloat16": 8e-2}.get(kind)
    checks.check_against_torch(
        lambda x, *p: layer_norm(x, normalized, *p, eps=1e-3),
        lambda x, *p: F.layer_norm(x, normalized, *p, eps=1e-3),
        inputs,
        dtype=kind,
        rtol=tolerance,
        atol=tolerance,
    )


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(8, 3), (4, 3, 5), (2, 3, 6, 7)], ids=str)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm(training, affine, shape, kind):
    statistics = [v.astype(kind) for v in (draw.normal(size=3), draw.uniform(0.5, 2, 3))]
    ours, theirs = [flow.tensor(v) for v in statistics], [torch.tensor(v) for v in statistics]
    inputs = [1 + 3 * draw.normal(size=shape)]
    inputs += [draw.normal(size=3), draw.normal(size=3)] if affine else []
    tolerance = 5e-5 if kind == "float32" else None
    checks.check_against_torch(
        lambda x, *p: batch_norm(x, *ours, *p, training=training, momentum=0.2),
        lambda x, *p: F.batch_norm(x, *theirs, *p, training=training, momentum=0.2),
        inputs,
        dtype=kind,
        rtol=tolerance,
        atol=tolerance,
    )
    for a, b in zip(ours, theirs, strict=True):
        checks.assert_close(a, b)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape", [(2, 6), (3, 6, 4, 5), (11, 6, 3)], ids=str)
def test_group_norm(shape, affine, kind):
    inputs = [1 + 3 * draw.normal(size=shape)]
    inputs += [draw.normal(size=6), draw.normal(size=6)] if affine else []
    tolerance = {"float32": 5e-5, "float16": 1e-2, "bfloat16": 8e-2}[kind]
    checks.check_against_torch(
        lambda x, *p: flow.nn.functional.group_norm(x, 2, *p, eps=1e-3),
        lambda x, *p: F.group_norm(x, 2, *p, eps=1e-3),
        inputs,
        dtype=kind,
        rtol=tolerance,
        atol=tolerance,
    )


@pytest.mark.parametrize("groups, channels", [(2, 4), (4, 4), (1, 2)])
def test_group_norm_of_long_planes(groups, channels):
    inputs = [1 + 3 * draw.normal(size=(2, channels, 4099)), draw.normal(size=channels), draw.normal(size=channels)]
    checks.check_against_torch(
        lambda x, *p: flow.nn.functional.group_norm(x, groups, *p),
        lambda x, *p: F.group_norm(x, groups, *p),
        inputs,
        dtype="float32",
        rtol=2e-4,
        atol=2e-4,
    )


@pytest.mark.parametrize("parameter", ["weight", "bias"])
def test_group_norm_with_one_parameter(parameter):
    checks.check_against_torch(
        lambda x, p: flow.nn.functional.group_norm(x, 2, **{parameter: p}),
        lambda x, p: F.group_norm(x, 2, **{"weight": torch.ones(4, dtype=torch.float64), parameter: p}),
        [draw.normal(size=(3, 4, 5)), draw.normal(size=4)],
        dtype="float64",
    )


@pytest.mark.parametrize("use_input_stats", [False, True])
def test_instance_norm(use_input_stats):
    statistics = [draw.normal(size=3), draw.uniform(0.5, 2, 3)]
    ours, theirs = [flow.tensor(v) for v in statistics], [torch.tensor(v) for v in statistics]
    inputs = [1 + 3 * draw.normal(size=(2, 3, 4, 5)), draw.normal(size=3), draw.normal(size=3)]
    checks.check_against_torch(
        lambda x, *p: flow.nn.functional.instance_norm(x, *ours, *p, use_input_stats=use_input_stats, momentum=0.2),
        lambda x, *p: F.instance_norm(x, *theirs, *p, use_input_stats=use_input_stats, momentum=0.2),
        inputs,
        dtype="float64",
    )
    for a, b in zip(ours, theirs, strict=True):
        checks.assert_close(a, b)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "name, arguments, shape",
    [
        ("BatchNorm3d", (3,), (2, 3, 4, 2, 3)),
        ("InstanceNorm1d", (3,), (3, 5)),
        ("InstanceNorm2d", (3, 1e-3, 0.2, True, True), (2, 3, 4, 5)),
        ("InstanceNorm3d", (3, 1e-3, 0.2, True), (2, 3, 4, 2, 3)),
        ("GroupNorm", (2, 4), (3, 4, 5)),
        ("RMSNorm", (5,), (2, 3, 5)),
        ("RMSNorm", ((3, 5), 0.1, False), (2, 3, 5)),
        ("LocalResponseNorm", (3, 0.1), (2, 5, 4)),
    ],
)
def test_layers(name, arguments, shape, training):
    ours, theirs = getattr(flow.nn, name)(*arguments), getattr(torch.nn, name)(*arguments)
    assert set(ours.state_dict()) == set(theirs.state_dict())
    for layer in (ours, theirs):
        layer.train(training)
    x = draw.normal(size=shape).astype("float32")
    for _ in range(2):
        checks.assert_close(ours(flow.tensor(x)), theirs(torch.tensor(x)), rtol=1e-4, atol=1e-5)
    for key, value in theirs.state_dict().items():
        checks.assert_close(ours.state_dict()[key], value, rtol=1e-5)
