"""Losses against torch."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.ops import loss as losses

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
F = torch.nn.functional
draw = np.random.default_rng(1)
reductions = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])


def against_torch(name, inputs, grad, kind="float32", **options):
    checks.check_against_torch(
        lambda *a: getattr(losses, name)(*a, **options),
        lambda *a: getattr(F, name)(*a, **options),
        inputs,
        grad=grad,
        dtype=kind,
    )


@reductions
@pytest.mark.parametrize("shape", [(5,), (6, 5), (2, 5, 3), (2, 5, 3, 2)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", [{}, {"ignore_index": 1}, {"label_smoothing": 0.2}], ids=str)
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_class_indices(name, options, weighted, shape, reduction):
    if name == "nll_loss" and "label_smoothing" in options:
        options = {"ignore_index": 4}
    target = draw.integers(0, 5, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if target.ndim:
        target.flat[:2] = (1, 3)
    else:
        target = np.array(3)
    inputs = [draw.normal(size=shape), target] + ([draw.uniform(0.5, 2, 5)] if weighted else [])
    against_torch(name, inputs, [0], reduction=reduction, **options)


@reductions
@pytest.mark.parametrize("shape", [(5,), (6, 5), (2, 5, 3)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_class_probabilities(smoothing, weighted, shape, reduction):
    inputs = [draw.normal(size=shape), draw.uniform(0, 1, shape)] + ([draw.uniform(0.5, 2, 5)] if weighted else [])
    against_torch("cross_entropy", inputs, [0, 1], "float64", reduction=reduction, label_smoothing=smoothing)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("target", [[-100, -100], [2, 0]])
def test_special_values(name, target):
    x = np.array([[0, -np.inf, 1], [0, 2, 3]], np.float32)
    tensor, peer = flow.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    ours, theirs = getattr(losses, name)(tensor, flow.tensor(target)), getattr(F, name)(peer, torch.tensor(target))
    checks.assert_close(ours, theirs)
    ours.backward()
    theirs.backward()
    checks.assert_close(tensor.grad, peer.grad)


@reductions
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss"])
def test_errors_of_regression(name, reduction):
    against_torch(name, [draw.normal(size=(3, 4)), draw.normal(size=(3, 4))], [0, 1], reduction=reduction)


@reductions
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy(weighted, reduction):
    probabilities = draw.uniform(0, 1, (3, 4))
    probabilities.flat[:4] = (0, 1, 0, 1)
    target = draw.uniform(0, 1, (3, 4))
    target.flat[:4] = (0, 1, 1, 0)
    inputs = [probabilities, target] + ([draw.uniform(0.5, 2, (3, 4))] if weighted else [])
    against_torch("binary_cross_entropy", inputs, [0], reduction=reduction)
    inputs[0] = draw.uniform(0.01, 0.99, (3, 4))
    against_torch("binary_cross_entropy", inputs, [0, 1], reduction=reduction)


@reductions
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("positive", [None, (4,), (3, 4)], ids=str)
def test_binary_cross_entropy_with_logits(positive, weighted, reduction):
    weight = draw.uniform(0.5, 2, (3, 4)) if weighted else None
    p = None if positive is None else draw.uniform(0.5, 3, positive)

    def ours(x, t):
        w, q = (None if v is None else flow.tensor(v) for v in (weight, p))
        return losses.binary_cross_entropy_with_logits(x, t, w, reduction=reduction, pos_weight=q)

    def theirs(x, t):
        w, q = (None if v is None else torch.tensor(v) for v in (weight, p))
        return F.binary_cross_entropy_with_logits(x, t, w, reduction=reduction, pos_weight=q)

    inputs = [20 * draw.normal(size=(3, 4)), draw.uniform(0, 1, (3, 4))]
    checks.check_against_torch(ours, theirs, inputs, grad=[0, 1], dtype="float64")
