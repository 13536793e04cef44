"""Clipping of gradients."""

import math

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow.errors import ArgumentError, AutogradError
from miniflow.nn.utils import clip_grad_norm_, clip_grad_value_


def parameters(seed=0, dtype=flow.float64):
    draw = np.random.default_rng(seed)
    params = []
    for shape in ((3, 4), (5,), (), (0, 2)):
        p = flow.zeros(shape, dtype=dtype, requires_grad=True)
        p.grad = flow.tensor(draw.normal(size=shape) * 3, dtype=dtype)
        params.append(p)
    return [*params, flow.zeros(2, requires_grad=True)]  # the last has no gradient


@pytest.mark.parametrize("norm_type", [1, 2.0, 3.5, math.inf])
@pytest.mark.parametrize("max_norm", [0.7, 1e6])
def test_norm(norm_type, max_norm):
    params = parameters()
    before = [p.grad.cpu().numpy().copy() for p in params[:-1]]
    everything = np.concatenate([g.ravel() for g in before])
    expected = np.linalg.norm(everything, norm_type)
    total = clip_grad_norm_(params, max_norm, norm_type)
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
    clip_grad_value_(iter(params), 0.5)
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
