"""Losses against torch."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.ops import losses

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


@reductions
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize(
    "targets, frames, lengths, blank",
    [
        ([[1, 2, 2, 1], [3, 1, -5, 99], [4, 4, 4, 4]], (9, 7, 8), (4, 2, 3), 0),
        ([[1, 2, 2, 1], [3, 1, 0, 0], [4, 4, 4, 4]], (9, 7, 4), (4, 2, 3), 0),  # too few frames for the last
        ([0, 2, 0, 3, 1, 1, 2], (9, 7, 8), (2, 0, 5), 4),
        ([[], [], []], (9, 1, 8), (0, 0, 0), 0),
    ],
    ids=["padded", "too long", "in a row", "empty"],
)
def test_ctc_loss(targets, frames, lengths, blank, zero_infinity, reduction):
    """torch's gradient is that of the logits, so both go through log_softmax."""
    logits, targets = draw.normal(size=(9, 3, 5)), np.array(targets, np.int64)
    options = {"blank": blank, "reduction": reduction, "zero_infinity": zero_infinity}
    ours, theirs = flow.tensor(logits, requires_grad=True), torch.tensor(logits, requires_grad=True)
    got = flow.nn.functional.ctc_loss(ours.log_softmax(-1), flow.tensor(targets), frames, lengths, **options)
    want = F.ctc_loss(theirs.log_softmax(-1), torch.tensor(targets), frames, lengths, **options)
    checks.assert_close(got, want)
    if torch.isfinite(want).all():
        cotangent = draw.normal(size=tuple(want.shape))
        got.backward(flow.tensor(cotangent))
        want.backward(torch.tensor(cotangent))
        checks.assert_close(ours.grad, theirs.grad)


def test_ctc_loss_of_one_sample():
    logits, targets = draw.normal(size=(7, 5)), np.array([1, 2, 2])
    got = flow.nn.CTCLoss()(flow.tensor(logits).log_softmax(-1), flow.tensor(targets), (7,), (3,))
    want = torch.nn.CTCLoss()(torch.tensor(logits).log_softmax(-1), torch.tensor(targets), (7,), (3,))
    checks.assert_close(got, want)


SIGNS = np.sign(draw.normal(size=(4, 3)))


@reductions
@pytest.mark.parametrize(
    "name, inputs, grad, options",
    [
        ("smooth_l1_loss", [(4, 3), (4, 3)], [0, 1], {"beta": 0.0}),
        ("huber_loss", [(4, 3), (4, 3)], [0, 1], {"delta": 0.4}),
        ("hinge_embedding_loss", [(4, 3), SIGNS], [0], {}),
        ("margin_ranking_loss", [(4, 3), (4, 3), SIGNS], [0, 1], {"margin": 0.5}),
        ("cosine_embedding_loss", [(4, 3), (4, 3), SIGNS[:, 0]], [0, 1], {}),
        ("cosine_embedding_loss", [(3,), (3,), np.array(SIGNS[0, 0])], [0, 1], {}),
        ("triplet_margin_loss", [(4, 3), (4, 3), (4, 3)], [0, 1, 2], {"p": 1, "swap": True}),
        ("soft_margin_loss", [(4, 3), SIGNS], [0], {}),
        ("multi_margin_loss", [(4, 3), np.array([0, 2, 1, 1])], [0], {"p": 2}),
        ("multi_margin_loss", [(3,), np.array(2)], [0], {}),
        ("gaussian_nll_loss", [(4, 3), (4, 3), np.full((4, 1), 1e-9)], [0, 1, 2], {"eps": 0.1}),
        ("gaussian_nll_loss", [(4, 3), (4, 3), np.array([[0.5, 2.0, 1.0]])], [0, 1, 2], {}),
        ("kl_div", [(5,), np.array([0.5, 0.0, -1.0, np.nan, 2.0])], [0], {}),
    ],
)
def test_other_losses(name, inputs, grad, options, reduction):
    inputs = [draw.normal(size=x) if isinstance(x, tuple) else x for x in inputs]
    checks.check_against_torch(
        lambda *a: getattr(flow.nn.functional, name)(*a, **options, reduction=reduction),
        lambda *a: getattr(F, name)(*a, **options, reduction=reduction),
        inputs,
        grad=grad,
        dtype="float64",
    )


def test_multi_margin_loss_with_weights():
    inputs = [draw.normal(size=(4, 3)), np.array([0, 2, 1, 1]), draw.uniform(0.5, 2, 3)]
    checks.check_against_torch(
        lambda x, t, w: flow.nn.functional.multi_margin_loss(x, t, weight=w),
        lambda x, t, w: F.multi_margin_loss(x, t, weight=w),
        inputs,
        grad=[0],
    )
