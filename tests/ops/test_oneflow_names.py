"""What OneFlow names and PyTorch does not, or computes otherwise, against formulas in NumPy."""

import math

import numpy as np
import pytest
from checks import assert_close

import miniflow as flow
from miniflow.errors import ArgumentError, AutogradError, IndexRangeError

F = flow.nn.functional


def test_as_strided_refuses():
    x = flow.arange(12).reshape(3, 4)
    with pytest.raises(IndexRangeError, match="as_strided: got element 12; expected at most 11"):
        flow.as_strided(x, (2, 2), (8, 3), 1)
    with pytest.raises(ArgumentError, match="not contiguous"):
        x.t().as_strided((2,), (1,))


def test_dims_change_in_place():
    x = flow.arange(6).float().reshape(2, 3).clone()
    part = x.t_().unsqueeze_(0).transpose_(1, 2).swapaxes_(0, 1).swapdims_(0, 1).squeeze_()
    assert part is x and x.shape == (2, 3) and x.is_contiguous()
    row = x[1].unsqueeze_(1)
    row.mul_(flow.tensor([[1.0], [2.0], [3.0]], requires_grad=True))
    assert x.tolist() == [[0, 1, 2], [3, 8, 15]] and x.requires_grad
    with pytest.raises(AutogradError, match=r"squeeze_: got a tensor that requires grad; use x = x.squeeze\(...\)"):
        x.squeeze_()


def test_graph_with_dims_changed_in_place():
    class Graph(flow.nn.Graph):
        def build(self, x):
            y = x * 2
            return y.unsqueeze_(0).transpose_(0, 1) + 1

    x = flow.arange(6).float().reshape(2, 3)
    assert_close(Graph()(x), (2 * x.numpy() + 1)[:, None])


def test_gumbel_softmax():
    flow.manual_seed(0)
    logits = flow.tensor(np.log([0.5, 0.3, 0.2]), requires_grad=True)
    draws = F.gumbel_softmax(logits.expand(4000, 3), tau=0.7, hard=True)
    assert ((draws == 0) | (draws == 1)).all() and (draws.sum(1) == 1).all()
    assert_close(draws.detach().mean(0), np.array([0.5, 0.3, 0.2]), atol=0.03)
    flow.manual_seed(1)
    hard = F.gumbel_softmax(logits, hard=True)
    flow.manual_seed(1)
    soft = F.gumbel_softmax(logits)
    weights = flow.tensor([1.0, -2.0, 0.5], dtype=flow.float64)
    (one,), (other,) = (flow.autograd.grad((y * weights).sum(), logits) for y in (hard, soft))
    assert soft.argmax() == hard.argmax() and one.abs().max() > 0.01
    assert_close(one, other.numpy())


def test_ctc_greedy_decoder():
    best = np.array([[1, 1, 0, 1, 2, 2], [0, 3, 3, 0, 0, 1]])  # samples, frames
    values = np.random.default_rng(0).uniform(-3, -1, (6, 2, 4))
    np.put_along_axis(values, best.T[..., None], -np.linspace(0.1, 0.9, 12).reshape(6, 2, 1), 2)
    decoded, score = F.ctc_greedy_decoder(flow.tensor(values), flow.tensor([6, 5]))
    assert decoded.tolist() == [[1, 1, 2, 0, 0, 0], [3, 0, 0, 0, 0, 0]]
    assert_close(score, -np.stack([values[:, 0].max(1).sum(), values[:5, 1].max(1).sum()])[:, None])
    decoded, _ = F.ctc_greedy_decoder(flow.tensor(values), flow.tensor([6, 5]), merge_repeated=False)
    assert decoded.tolist() == [[1, 1, 1, 2, 2, 0], [3, 3, 0, 0, 0, 0]]


def test_combined_margin():
    x = np.random.default_rng(0).uniform(-0.9, 0.9, (4, 3))
    label = np.array([2, 0, 1, 1])
    for m1, m2, m3 in ((1.0, 0.0, 0.4), (1.2, 0.3, 0.1)):
        want = x.copy()
        want[np.arange(4), label] = np.cos(m1 * np.arccos(x[np.arange(4), label]) + m2) - m3
        assert_close(flow.nn.CombinedMarginLoss(m1, m2, m3)(flow.tensor(x), flow.tensor(label)), want)


def test_fused_batch_norm():
    x, addend = np.random.default_rng(0).normal(size=(2, 3, 2, 4, 5)).astype(np.float32)
    plain = flow.nn.BatchNorm2d(2)(flow.tensor(x)).detach().numpy()
    assert_close(flow.nn.FusedBatchNorm2d(2)(flow.tensor(x)).detach(), np.maximum(plain, 0))
    y = flow.nn.FusedBatchNorm2d(2)(flow.tensor(x), flow.tensor(addend))
    assert_close(y.detach(), np.maximum(plain + addend, 0))


def test_cosine_decay():
    optimizer = flow.optim.SGD([flow.zeros(1, requires_grad=True)], lr=2.0)
    schedule = flow.optim.lr_scheduler.CosineDecayLR(optimizer, decay_steps=4, alpha=0.1)
    rates = []
    for _ in range(6):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    want = [2 * (0.9 * (1 + math.cos(math.pi * min(t, 4) / 4)) / 2 + 0.1) for t in range(6)]
    np.testing.assert_allclose(rates, want, rtol=1e-12)
    with pytest.raises(ArgumentError, match="CosineDecayLR: got decay_steps=0"):
        flow.optim.lr_scheduler.CosineDecayLR(optimizer, 0)


def test_initializers_are_methods():
    x = flow.empty(3, 4)
    assert x.xavier_uniform_() is x and x.abs().max() <= math.sqrt(6 / 7)
    assert flow.empty(50).trunc_normal_(std=3.0, a=-1.0, b=1.0).abs().max() <= 1
