"""Embedding against torch."""

import checks
import numpy as np
import pytest

from miniflow.ops.embedding import embedding

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
draw = np.random.default_rng(1)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("shape", [(), (7,), (3, 40)], ids=str)
def test_values_and_gradients(shape, padding, kind):
    checks.check_against_torch(
        lambda i, w: embedding(i, w, padding_idx=padding),
        lambda i, w: torch.nn.functional.embedding(i, w, padding_idx=padding),
        [draw.integers(0, 6, shape), draw.normal(size=(6, 5))],
        dtype=kind,
    )
