"""Embedding against torch."""

import checks
import numpy as np
import pytest

import miniflow as flow
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


@pytest.mark.parametrize("padding", [None, 2])
def test_gradients_scaled_by_frequency(padding):
    checks.check_against_torch(
        lambda i, w: embedding(i, w, padding, scale_grad_by_freq=True),
        lambda i, w: torch.nn.functional.embedding(i, w, padding, scale_grad_by_freq=True),
        [draw.integers(0, 6, (3, 8)), draw.normal(size=(6, 5))],
        dtype="float64",
    )


def test_values_do_not_change_where_gradients_are_scaled_by_frequency():
    special = [[np.inf, -0.0], [1, 2]]
    for values, indices, kind in ((special, [0, 1, 0], "float32"), ([[1.0, 3.0]], [0] * 70_000, "float16")):
        found = []
        for framework, function in ((flow, embedding), (torch, torch.nn.functional.embedding)):
            weight = framework.tensor(values, dtype=getattr(framework, kind), requires_grad=True)
            y = function(framework.tensor(indices), weight, scale_grad_by_freq=True)
            y.backward(framework.ones_like(y))
            found.append(y.detach().cpu().numpy())
            if framework is flow:  # n times 1 / n; torch adds them up in float16
                np.testing.assert_allclose(weight.grad.float().cpu().numpy(), 1, rtol=5e-3)
        np.testing.assert_array_equal(*found)
        np.testing.assert_array_equal(*map(np.signbit, found))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 1, -2])
@pytest.mark.parametrize("offsets", [None, [0, 2, 2, 6], [0, 3, 3, 11]], ids=str)
def test_bags(mode, padding, offsets):
    """Empty bags and ties too; gradients scaled by frequency are held against their formula."""
    table = draw.integers(-2, 3, (5, 3)).astype(float) if mode == "max" else draw.normal(size=(5, 3))
    indices = draw.integers(0, 5, (4, 3) if offsets is None else 11)
    options = {"mode": mode, "padding_idx": padding, "include_last_offset": bool(offsets) and offsets[-1] == 11}
    given = [] if offsets is None else [np.array(offsets)]
    for weighted in [False, True] if mode == "sum" else [False]:
        weights = [draw.normal(size=indices.shape)] if weighted else []

        def bags(function, tensor, with_weights=weighted):
            def run(i, w, *others):
                starts = tensor(given[0]) if given else None
                return function(i, w, starts, **options, per_sample_weights=others[0] if with_weights else None)

            return run

        checks.check_against_torch(
            bags(flow.nn.functional.embedding_bag, flow.tensor),
            bags(torch.nn.functional.embedding_bag, torch.tensor),
            [indices, table, *weights],
            dtype="float64",
        )
    if mode == "max":
        return
    grads = []
    for scaled in (False, True):
        w = flow.tensor(table, requires_grad=True)
        starts = flow.tensor(given[0]) if given else None
        y = flow.nn.functional.embedding_bag(flow.tensor(indices), w, starts, **options, scale_grad_by_freq=scaled)
        y.square().sum().backward()
        grads.append(w.grad.numpy())
    counts = np.maximum(1, np.bincount(indices.reshape(-1), minlength=5))[:, None]
    np.testing.assert_allclose(grads[1], grads[0] / counts, rtol=1e-12, atol=1e-15)
