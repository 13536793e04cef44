"""Batch and layer normalization against torch."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.ops.norm import batch_norm, layer_norm

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
