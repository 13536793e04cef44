"""Losses against NumPy in float64."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from miniflow.ops.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
)

REDUCTIONS = ("mean", "sum", "none")
reductions = pytest.mark.parametrize("reduction", REDUCTIONS)
draw = np.random.default_rng(0)


def reduce(loss, reduction, total=None):
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / (loss.size if total is None else total)


def log_softmax(x, dim):
    shifted = x - x.max(dim, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))


def reference_nll(x, target, weight=None, ignore=-100, reduction="mean", smoothing=0.0):
    """Element by element, for (N, C, ...) log-probabilities."""
    classes = x.shape[1]
    weight = np.ones(classes) if weight is None else weight
    loss, total = np.zeros(target.shape), 0.0
    for place in np.ndindex(target.shape):
        t = target[place]
        if t != ignore:
            row = x[(place[0], slice(None), *place[1:])]
            loss[place] = -(1 - smoothing) * weight[t] * row[t] - smoothing / classes * (weight * row).sum()
            total += weight[t]
    return reduce(loss, reduction, total)


def reference_cross_entropy(x, target, weight=None, ignore=-100, reduction="mean", smoothing=0.0):
    return reference_nll(log_softmax(x, 1), target, weight, ignore, reduction, smoothing)


WEIGHT = np.array([0.5, 2.0, 1.5, 0.25, 1.0])
CASES = {
    "plain": {},
    "weight": {"weight": WEIGHT},
    "ignore": {"ignore": 2},
    "smoothing": {"smoothing": 0.3},
    "all": {"weight": WEIGHT, "ignore": 2, "smoothing": 0.1},
}


def options(case, names):
    values = {{"ignore": "ignore_index", "smoothing": "label_smoothing"}.get(k, k): v for k, v in CASES[case].items()}
    return {k: v for k, v in values.items() if k in names}


@reductions
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3), (2, 5, 2, 2)], ids=str)
def test_cross_entropy(shape, case, reduction):
    target = draw.integers(0, 5, shape[:1] + shape[2:])
    target.flat[:3] = (2, 0, 4)  # one that "ignore" ignores, and others
    keywords = options(case, ("ignore_index", "label_smoothing"))

    def function(x, target, weight=None):
        return cross_entropy(x, target, weight, reduction=reduction, **keywords)

    def reference(x, target, weight=None):
        return reference_cross_entropy(x, target, **{**CASES[case], "weight": weight}, reduction=reduction)

    inputs = [draw.normal(size=shape), target] + ([WEIGHT] if "weight" in CASES[case] else [])
    small = len(shape) == 2
    checks.check_op(
        function,
        inputs,
        reference,
        dtypes=("float16", "bfloat16", "float32", "float64") if small else ("float32",),
        grad=[0],
        gradient="sparse",
        third=small and case == "all",
        layouts=("strided", "expanded") if small else (),
    )


@reductions
@pytest.mark.parametrize("case", ["plain", "weight", "ignore"])
@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3)], ids=str)
def test_nll_loss(shape, case, reduction):
    target = draw.integers(0, 5, shape[:1] + shape[2:])
    target.flat[:2] = (2, 0)

    def function(x, target, weight=None):
        return nll_loss(x, target, weight, reduction=reduction, **options(case, ("ignore_index",)))

    def reference(x, target, weight=None):
        return reference_nll(x, target, **{**CASES[case], "weight": weight}, reduction=reduction)

    inputs = [draw.normal(size=shape), target] + ([WEIGHT] if case == "weight" else [])
    dtypes = ("float16", "bfloat16", "float32", "float64")
    checks.check_op(function, inputs, reference, dtypes=dtypes, grad=[0], gradient="sparse", layouts=("strided",))


def test_nll_loss_reads_only_the_target_class():
    x = flow.tensor([[-np.inf, -1.0], [-2.0, np.nan]], requires_grad=True)
    loss = nll_loss(x, flow.tensor([1, 0]))
    checks.assert_close(loss, np.array(1.5, np.float32))
    loss.backward()
    checks.assert_close(x.grad, np.array([[0, -0.5], [-0.5, 0]], np.float32))


@pytest.mark.parametrize("function", [cross_entropy, nll_loss])
def test_one_row_without_a_batch_dim(function):
    x = draw.normal(size=5)
    batched = function(flow.tensor(x[None]), flow.tensor([3]))
    for reduction in REDUCTIONS:
        checks.assert_same(function(flow.tensor(x), flow.tensor(3), reduction=reduction), batched)


@pytest.mark.parametrize("function", [cross_entropy, nll_loss])
@pytest.mark.parametrize("create_graph", [False, True])
def test_nothing_but_ignored_targets(function, create_graph):
    x = flow.tensor(draw.normal(size=(2, 3)), requires_grad=True)
    loss = function(x, flow.tensor([-100, -100]))
    checks.assert_same(loss, np.array(np.nan))
    loss.backward(create_graph=create_graph)
    checks.assert_same(x.grad, np.zeros((2, 3)))


@pytest.mark.parametrize("function", [cross_entropy, nll_loss])
def test_zero_size(function):
    x, target = flow.tensor(np.empty((0, 3))), flow.tensor(np.empty(0, np.int64))
    checks.assert_same(function(x, target), np.array(np.nan))
    checks.assert_same(function(x, target, reduction="sum"), np.array(0.0))
    checks.assert_same(function(x, target, reduction="none"), np.empty(0))


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("rows", [3, 600])
def test_cross_entropy_of_large_logits_and_parallel_rows(rows, kind):
    x = (1e4 + 5 * draw.normal(size=(rows, 500))).astype(kind)
    target = draw.integers(0, 500, rows)
    logits = flow.tensor(x, requires_grad=True)
    loss = cross_entropy(logits, flow.tensor(target), reduction="sum")
    wide = x.astype(np.float64)
    checks.assert_close(loss, np.asarray(reference_cross_entropy(wide, target, reduction="sum"), kind))
    loss.backward()
    expected = np.exp(log_softmax(wide, 1))
    expected[np.arange(rows), target] -= 1
    checks.assert_close(logits.grad, expected.astype(kind), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_cross_entropy_with_infinite_logits(kind):
    """A class masked by -inf costs nothing unless it is the target; a NaN stays in its row."""
    x = flow.tensor(np.array([[0, -np.inf, 0], [np.nan, 0, 0], [0, -np.inf, 0]], kind), requires_grad=True)
    loss = cross_entropy(x, flow.tensor([0, 0, 1]), reduction="none")
    checks.assert_close(loss, np.array([np.log(2), np.nan, np.inf], kind))
    loss[:1].sum().backward()
    checks.assert_close(x.grad[0], np.array([-0.5, 0, 0.5], kind))


@reductions
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("shape", [(4, 5), (2, 5, 3), (5,)], ids=str)
def test_cross_entropy_with_class_probabilities(shape, smoothing, reduction):
    class_dim = 1 if len(shape) > 1 else 0
    weight = WEIGHT.reshape(-1, *(1,) * (len(shape) - class_dim - 1))

    def function(x, q):
        w = flow.tensor(WEIGHT, dtype=x.dtype)
        return cross_entropy(x, q, w, reduction=reduction, label_smoothing=smoothing)

    def reference(x, q):
        q = q * (1 - smoothing) + smoothing / 5
        loss = -(q * weight * log_softmax(x, class_dim)).sum(class_dim)
        return reduce(loss, reduction)

    q = draw.uniform(0.1, 1, shape)
    checks.check_op(function, [draw.normal(size=shape), q / q.sum(class_dim, keepdims=True)], reference, layouts=())


@reductions
def test_mse_loss(reduction):
    inputs = [draw.normal(size=(3, 4)) for _ in range(2)]
    checks.check_op(
        lambda x, y: mse_loss(x, y, reduction=reduction), inputs, lambda x, y: reduce((x - y) ** 2, reduction)
    )


@reductions
def test_l1_loss(reduction):
    inputs = [draw.normal(size=(3, 4)), draw.normal(size=(3, 4)) + 1]
    checks.check_op(
        lambda x, y: l1_loss(x, y, reduction=reduction), inputs, lambda x, y: reduce(np.abs(x - y), reduction)
    )


@pytest.mark.parametrize("function", [mse_loss, l1_loss])
def test_broadcasting_losses_warn(function):
    with pytest.warns(
        UserWarning, match=r"loss: got input \(2, 3\) and target \(3,\), .* reshape one of them"
    ) as found:
        loss = function(flow.zeros(2, 3), flow.ones(3))
    assert [warning.filename for warning in found] == [__file__]
    checks.assert_same(loss, np.array(1, np.float32))


@reductions
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy(reduction, weighted):
    weight = draw.uniform(0.5, 2, (1, 4)) if weighted else None

    def function(x, t):
        w = None if weight is None else flow.tensor(weight, dtype=x.dtype)
        return binary_cross_entropy(x, t, w, reduction=reduction)

    def reference(x, t):
        return reduce(-(t * np.log(x) + (1 - t) * np.log(1 - x)) * (1 if weight is None else weight), reduction)

    inputs = [draw.uniform(0.1, 0.9, (3, 4)), draw.uniform(0.1, 0.9, (3, 4))]
    checks.check_op(function, inputs, reference, third=weighted)


def test_binary_cross_entropy_at_0_and_1():
    x = flow.tensor([0.0, 1.0, 1.0, 0.0], requires_grad=True)
    loss = binary_cross_entropy(x, flow.tensor([0.0, 1.0, 0.0, 1.0]), reduction="none")
    checks.assert_same(loss, np.array([0, 0, 100, 100], np.float32))
    loss.sum().backward()
    checks.assert_close(x.grad, np.array([0, 0, 1e12, -1e12], np.float32))


@reductions
@pytest.mark.parametrize("positive", [None, "class", "full"])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy_with_logits(reduction, positive, weighted):
    weight = draw.uniform(0.5, 2, (3, 1)) if weighted else None
    p = {"class": draw.uniform(0.5, 3, 4), "full": draw.uniform(0.5, 3, (3, 4))}.get(positive)

    def function(x, t):
        w, q = (None if v is None else flow.tensor(v, dtype=x.dtype) for v in (weight, p))
        return binary_cross_entropy_with_logits(x, t, w, reduction=reduction, pos_weight=q)

    def reference(x, t):
        s = 1 / (1 + np.exp(-x))
        loss = -(t * (1 if p is None else p) * np.log(s) + (1 - t) * np.log(1 - s))
        return reduce(loss * (1 if weight is None else weight), reduction)

    inputs = [draw.normal(size=(3, 4)), draw.uniform(0.1, 0.9, (3, 4))]
    checks.check_op(function, inputs, reference, third=weighted, layouts=("strided", "expanded"))


def test_binary_cross_entropy_with_logits_is_stable():
    x = flow.tensor([-500.0, 500.0, -500.0, 500.0, 20.0], dtype=flow.float64)
    t = flow.tensor([0.0, 1.0, 1.0, 0.0, 1.0], dtype=flow.float64)
    loss = binary_cross_entropy_with_logits(x, t, reduction="none")
    checks.assert_close(loss, np.array([0, 0, 500, 500, np.log1p(np.exp(-20.0))]), rtol=1e-12, atol=1e-20)


@pytest.mark.parametrize("name, function", [("cross_entropy", cross_entropy), ("nll_loss", nll_loss)])
def test_class_errors(name, function):
    x = flow.zeros(2, 3)
    outside = {
        "cross_entropy": "cross_entropy: got class {} as target {}; expected 0 to 2 for 3 classes, .* check",
        "nll_loss": "index {} is out of range for dim 1 of size 3",
    }[name]
    with pytest.raises(IndexRangeError, match=outside.format(3, 1)):
        function(x, flow.tensor([0, 3]))
    with pytest.raises(IndexRangeError, match=outside.format(-1, 0)):
        function(x, flow.tensor([-1, 0]))
    with pytest.raises(
        ShapeError, match=rf"{name}: got input \(2, 3\) and target \(3,\); expected \(N, C\) and \(N,\)"
    ):
        function(x, flow.tensor([0, 1, 2]))
    with pytest.raises(ShapeError, match=rf"{name}: got a weight of shape \(2,\); expected \(3,\)"):
        function(x, flow.tensor([0, 1]), flow.ones(2))
    with pytest.raises(DTypeError, match=rf"{name}: got int64; expected a floating dtype: use x.float"):
        function(flow.tensor([[1, 2, 3]]), flow.tensor([0]))
    with pytest.raises(DTypeError, match=rf"{name}: got class indices of bool; expected an integer dtype"):
        function(x, flow.tensor([True, False]))
    with pytest.raises(ArgumentError, match=rf"{name}: got reduction='avg'; expected 'mean', 'sum' or 'none'"):
        function(x, flow.tensor([0, 1]), reduction="avg")


def test_other_errors():
    x = flow.zeros(2, 3)
    with pytest.raises(
        ShapeError, match=r"cross_entropy: got class probabilities \(3, 2\) for input \(2, 3\); expected the same"
    ):
        cross_entropy(x, flow.zeros(3, 2))
    with pytest.raises(DTypeError, match=r"got .*float32 labels \(2,\) .* class indices .*: use labels.long\(\)"):
        cross_entropy(x, flow.zeros(2))
    with pytest.raises(ShapeError, match=r"target \(2, 3\); expected class indices.*: use labels.argmax\(1\), or"):
        cross_entropy(x, flow.zeros(2, 3).long())
    with pytest.raises(DTypeError, match="cross_entropy: got input of miniflow.int64; expected logits first"):
        cross_entropy(flow.tensor([0, 1]), x)
    with pytest.raises(ShapeError, match=r"cross_entropy: got a weight of shape \(2,\); expected \(3,\)"):
        cross_entropy(x, x, flow.ones(2))
    with pytest.raises(DTypeError, match=r"nll_loss: got class indices of float32; expected an integer dtype"):
        nll_loss(x, flow.zeros(2))
    with pytest.raises(ArgumentError, match="cross_entropy: got label_smoothing=1.5; expected a number from 0 to 1"):
        cross_entropy(x, flow.tensor([0, 1]), label_smoothing=1.5)
    for function in (mse_loss, l1_loss):
        with pytest.raises(DTypeError, match="loss: got int64; expected a floating dtype"):
            function(flow.tensor([1]), flow.tensor([1]))
        with pytest.raises(ArgumentError, match="loss: got reduction=None"):
            function(x, x, reduction=None)


@pytest.mark.parametrize("function", [binary_cross_entropy, binary_cross_entropy_with_logits])
def test_binary_errors(function):
    x = flow.zeros(2, 3)
    with pytest.raises(
        ShapeError, match=rf"{function.__name__}: got input \(2, 3\) and target \(3,\); expected the same shape"
    ):
        function(x, flow.zeros(3))
    with pytest.raises(
        DTypeError, match=rf"{function.__name__}: got input of float32 and target of int64; expected the same"
    ):
        function(x, flow.zeros(2, 3, dtype=flow.int64))
    with pytest.raises(ShapeError, match=rf"{function.__name__}: weight: got shapes \(2,\) and \(2, 3\); expected"):
        function(x, x, flow.ones(2))


@pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan")])
def test_binary_cross_entropy_outside_of_probabilities(bad):
    with pytest.raises(
        ArgumentError, match="binary_cross_entropy: got .* in the input; expected probabilities .*_with_logits"
    ):
        binary_cross_entropy(flow.tensor([0.5, bad]), flow.tensor([0.0, 1.0]))


@pytest.mark.parametrize(
    "name, shapes, options, error, message",
    [
        ("smooth_l1_loss", [(3,), (3,)], {"beta": -1}, ArgumentError, "beta=-1"),
        ("huber_loss", [(3,), (3,)], {"delta": 0}, ArgumentError, "delta=0"),
        ("kl_div", [(3,), (3,)], {"reduction": "average"}, ArgumentError, "kl_div: got reduction='average'"),
        ("gaussian_nll_loss", [(2, 3), (2, 3), (3, 2)], {}, ShapeError, "gaussian_nll_loss: shapes .2, 3. and .3, 2."),
        ("gaussian_nll_loss", [(3,), (3,), (2, 3)], {}, ShapeError, "got var .2, 3."),
        ("gaussian_nll_loss", [(2, 3), (2, 3)], {"var": -1.0}, ArgumentError, "a variance of -1"),
        ("margin_ranking_loss", [(3,), (3,), (3, 1)], {}, ShapeError, "target .3, 1."),
        ("cosine_embedding_loss", [(3, 2), (3, 2), (3, 2)], {}, ShapeError, "expected .N, D., .N, D. and .N,."),
        ("triplet_margin_loss", [(3, 2), (3, 2), (2,)], {}, ShapeError, "expected the same shape"),
        ("triplet_margin_loss", [(3, 2)] * 3, {"margin": 0}, ArgumentError, "margin=0"),
        ("multi_margin_loss", [(3, 2), (3,)], {"p": 3}, ArgumentError, "p=3"),
        ("multi_margin_loss", [(3, 2), (3,)], {}, DTypeError, "class indices of miniflow.float32|of float32"),
    ],
)
def test_what_other_losses_refuse(name, shapes, options, error, message):
    with pytest.raises(error, match=message):
        getattr(flow.nn.functional, name)(*(flow.ones(*shape) for shape in shapes), **options)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"targets": flow.ones(2, 2)}, DTypeError, "targets of .*float32"),
        ({"targets": flow.tensor([[1, 1]])}, ShapeError, "for 2 samples"),
        ({"blank": 4}, ArgumentError, "blank=4"),
        ({"input_lengths": (4, 3)}, ArgumentError, r"input_lengths \[4, 3\]"),
        ({"target_lengths": (2,)}, ShapeError, "1 target_lengths; expected 2"),
        ({"log_probs": flow.zeros(4)}, ShapeError, "got log_probs .4,."),
    ],
)
def test_what_ctc_loss_refuses(change, error, message):
    given = {"log_probs": flow.zeros(3, 2, 4), "targets": flow.ones(2, 2).long(), "input_lengths": (3, 3)}
    with pytest.raises(error, match=message):
        flow.nn.functional.ctc_loss(**{**given, "target_lengths": (1, 1), **change})


def test_kl_div_loss_averages_over_the_batch():
    x, t = flow.tensor([[-1.0, -2.0], [-3.0, -4.0]]), flow.tensor([[0.5, 0.0], [0.25, 0.25]])
    want = (0.5 * (np.log(0.5) + 1) + 0.25 * (np.log(0.25) + 3) + 0.25 * (np.log(0.25) + 4)) / 2
    checks.assert_close(flow.nn.KLDivLoss(reduction="batchmean")(x, t), np.float32(want), rtol=1e-6)
