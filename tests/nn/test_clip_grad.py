"""Clipping of gradients."""

import math

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow.errors import ArgumentError, AutogradError, DTypeError, GraphTraceError, ShapeError
from miniflow.nn.utils import clip_grad_norm_, clip_grad_value_


def parameters(seed=0, dtype=flow.float64):
    draw = np.random.default_rng(seed)
    params = []
    for shape in ((3, 4), (5,), (), (0, 2)):
        p = flow.zeros(shape, dtype=dtype, requires_grad=True)
        p.grad = flow.tensor(draw.normal(size=shape) * 3, dtype=dtype)
        params.append(p)
    return [*params, flow.zeros(2, requires_grad=True)]  # the last has no gradient


@pytest.mark.parametrize("norm_type", [1, 2.0, 3.5, math.inf, "inf"])
@pytest.mark.parametrize("max_norm", [0.7, 1e6])
def test_norm(norm_type, max_norm):
    params = parameters()
    before = [p.grad.cpu().numpy().copy() for p in params[:-1]]
    everything = np.concatenate([g.ravel() for g in before])
    expected = np.linalg.norm(everything, float(norm_type))
    total = clip_grad_norm_(params, max_norm, norm_type, foreach=True)
    assert_close(total, np.asarray(expected), rtol=1e-12)
    factor = min(1.0, max_norm / (expected + 1e-6))
    for p, old in zip(params[:-1], before, strict=True):
        assert_close(p.grad, old * factor, rtol=1e-12)
    assert params[-1].grad is None


def test_norm_of_half_precision_does_not_overflow():
    p = flow.zeros(4, dtype=flow.float16, requires_grad=True)
    p.grad = flow.full((4,), 60000.0, dtype=flow.float16)
    clip_grad_norm_(p, 2.0)
    assert_close(p.grad, np.ones(4, np.float16), rtol=2e-3)


def test_what_is_no_gradient_and_no_norm_is_refused():
    utils, (p, *_) = flow.nn.utils, parameters()
    for call, error, words in (
        (lambda: utils.get_total_norm([p.grad, None]), TypeError, "get_total_norm: got a NoneType among the tensors"),
        (lambda: utils.get_total_norm([flow.tensor([3])]), DTypeError, "get_total_norm: .*int64"),
        (lambda: utils.clip_grads_with_norm_([p], 1.0, 5.0), TypeError, "got total_norm of type float; expected a t"),
        (lambda: utils.clip_grad_norm_([p, 3], 1.0), TypeError, "clip_grad_norm_: got a int among the parameters"),
        (lambda: utils.clip_grad_norm_(5, 1.0), TypeError, "clip_grad_norm_: got parameters of type int; expected t"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_norm_of_nothing_and_of_zeros():
    assert clip_grad_norm_([flow.zeros(1, requires_grad=True)], 1.0).item() == 0.0
    p = flow.zeros(2, requires_grad=True)
    p.grad = flow.zeros(2)
    assert clip_grad_norm_([p], 1.0, 3).item() == 0.0
    assert p.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_norm_that_is_not_finite(bad):
    p, q = flow.zeros(2, requires_grad=True), flow.zeros(1, requires_grad=True)
    p.grad, q.grad = flow.tensor([bad, 1.0]), flow.tensor([2.0])
    with pytest.raises(AutogradError, match=f"norm of the gradients is {bad}"):
        clip_grad_norm_([p, q], 1.0, error_if_nonfinite=True)
    assert q.grad.tolist() == [2.0]
    total = clip_grad_norm_([p, q], 1.0)
    assert_same(total, np.float32(bad))
    assert_same(q.grad, np.array([math.nan if math.isnan(bad) else 0.0], np.float32))


def test_value():
    params = parameters(1)
    before = [p.grad.cpu().numpy().copy() for p in params[:-1]]
    clip_grad_value_(iter(params), 0.5, foreach=False)
    for p, old in zip(params[:-1], before, strict=True):
        assert_same(p.grad, np.clip(old, -0.5, 0.5))


def test_refusals():
    p = flow.zeros(1, requires_grad=True)
    with pytest.raises(ArgumentError, match="max_norm=-1"):
        clip_grad_norm_([p], -1)
    with pytest.raises(ArgumentError, match="norm_type=0"):
        clip_grad_norm_([p], 1, 0)
    with pytest.raises(ArgumentError, match="clip_value=-1"):
        clip_grad_value_([p], -1)
    with pytest.raises(TypeError, match=r"model.parameters\(\)"):
        clip_grad_value_([("name", p)], 1)
    p = flow.zeros(3, requires_grad=True)
    p.grad = flow.ones(1).expand(3)
    for clip in (clip_grad_norm_, clip_grad_value_):
        with pytest.raises(ShapeError, match=f"{clip.__name__[:-1]}: the tensor is an expanded or read-only view"):
            clip([p], 1)


def test_a_gradient_that_is_clipped_counts_as_written():
    p = flow.zeros(2, requires_grad=True)
    p.grad = flow.tensor([3.0, 4.0])
    for clip in (clip_grad_norm_, clip_grad_value_):
        before = p.grad.version
        clip(p, 0.5)
        assert p.grad.version == before + 1


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_threads_changes_no_bit(count, monkeypatch):
    from miniflow.backends.cpu import threads

    monkeypatch.setattr(threads.numba, "get_num_threads", lambda: count)
    draw = np.random.default_rng(0)
    p = flow.zeros(300_001, requires_grad=True)
    p.grad = flow.tensor(draw.normal(size=300_001), dtype=flow.float32)
    gradient = p.grad.cpu().numpy().copy()
    total = clip_grad_norm_(p, 2.0)
    assert total.item() == pytest.approx(float(np.linalg.norm(gradient.astype(np.float64))), rel=1e-7)
    factor = np.float32(2.0 / (total.item() + 1e-6))
    assert_same(p.grad, gradient * factor)


class Clipping(flow.nn.Graph):
    """Clips in `build`, after backward, as an eager loop does."""

    def __init__(self, model, optimizer, clip):
        super().__init__()
        self.model, self.clip = model, clip
        self.add_optimizer(optimizer)

    def build(self, x):
        loss = (self.model(x) ** 2).sum()
        loss.backward()
        return loss, self.clip(self.model.parameters())


@pytest.mark.parametrize("norm_type", [1, 2.0, 3.5, math.inf, "inf"])
def test_a_graph_clips_to_the_same_bits(norm_type):
    def made():
        flow.manual_seed(0)
        model = flow.nn.Linear(5, 3)
        return model, flow.optim.SGD(model.parameters(), lr=0.1)

    def clip(parameters):
        return clip_grad_norm_(parameters, 0.5, norm_type)

    (model, optimizer), twin = made(), made()
    graph = Clipping(*twin, clip)
    graph.config.disable_pass("fused_update")
    x = flow.randn(4, 5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        norm = clip(model.parameters())
        optimizer.step()
        for got, want in zip(graph(x), (loss, norm), strict=True):
            assert_same(got, want.detach().cpu().numpy())
    for p, q in zip(twin[0].parameters(), model.parameters(), strict=True):
        assert_same(p.detach(), q.detach().cpu().numpy())


def test_a_graph_cannot_look_at_the_norm():
    model = flow.nn.Linear(2, 1)
    optimizer = flow.optim.SGD(model.parameters())
    graph = Clipping(model, optimizer, lambda p: clip_grad_norm_(p, 1.0, error_if_nonfinite=True))
    with pytest.raises(GraphTraceError, match="error_if_nonfinite=True has to look at the norm"):
        graph(flow.ones(1, 2))
