"""Hooks on tensors, and gradients kept by retain_grad."""

import re

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import AutogradError


def scalar(value: float = 3.0) -> flow.Tensor:
    """A 0-dim leaf in float64."""
    return flow.tensor(value, dtype=flow.float64, requires_grad=True)


def leaf(*shape: int, seed: int = 0) -> flow.Tensor:
    """A random leaf in float64."""
    return flow.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


def test_tensor_hooks_see_and_replace_gradients():
    x = scalar(2.0)
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    handle = y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 5).backward(retain_graph=True)
    assert seen == [5.0, 50.0] and x.grad.item() == 150.0
    handle.remove()
    handle.remove()
    (y * 5).backward()
    assert seen == [5.0, 50.0, 5.0, 5.0] and x.grad.item() == 165.0


def test_hooks_on_leaves():
    x = scalar(2.0)
    x.register_hook(lambda g: g * 2)
    (x * 3).backward()
    assert x.grad.item() == 6.0
    assert flow.autograd.grad(x * 3, x)[0].item() == 6.0


def test_a_hook_runs_once_with_the_complete_gradient():
    x = scalar(2.0)
    y = x * 1
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 2 + y * 3 + y.exp()).backward()
    assert seen == [5.0 + np.exp(2.0)]


def test_a_hook_must_keep_the_shape_and_the_dtype():
    for replace, got in (
        (lambda g: g[:2], "(2,) and miniflow.float64"),
        (lambda g: g.float(), "(3,) and miniflow.float32"),
    ):
        x = leaf(3)
        x.register_hook(replace)
        message = f"hook: got a replacement of shape {got} for a gradient of shape (3,) and miniflow.float64"
        with pytest.raises(AutogradError, match=re.escape(message)):
            x.sum().backward()
    with pytest.raises(AutogradError, match="register_hook: the tensor does not require grad"):
        flow.ones(2).register_hook(print)


def test_retain_grad():
    x = scalar(2.0)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad and not x.retains_grad
    (y * y).backward(retain_graph=True)
    assert y.grad.item() == 12.0
    (y * y).backward()
    assert y.grad.item() == 24.0 and x.grad.item() == 72.0
    z = x * 2
    z.backward()
    assert z.grad is None
    with pytest.raises(AutogradError, match="retain_grad: the tensor does not require grad"):
        flow.ones(2).retain_grad()
