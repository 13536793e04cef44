"""Gradients arriving at leaves: added up, in memory of their own, in the dtype of the leaf."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow.autograd import engine
from miniflow.errors import ShapeError


def leaf(*shape: int, seed: int = 0) -> flow.Tensor:
    """A random leaf in float64."""
    return flow.tensor(np.random.default_rng(seed).normal(size=shape), requires_grad=True)


def test_leaves_accumulate():
    x = leaf(3)
    for count in (1, 2, 3):
        (x * 2).sum().backward()
        assert_same(x.grad, np.full(3, 2.0 * count))
    before = x.grad
    (x * 2).sum().backward()
    assert x.grad is before, "later gradients are added in place, as in PyTorch"


SHARING = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "views": lambda a, b: a.t() + b.view(3, 3),
    "sum": lambda a, b: a.sum() + b.sum(),
    "expand": lambda a, b: a[:1].expand(3, 3) + b,
    "same": lambda a, b: a + a + b,
    "reshape": lambda a, b: a.reshape(9) + b.reshape(9),
    "cat": lambda a, b: flow.cat([a, b]),
    "stack": lambda a, b: flow.stack([a, b]),
    "where": lambda a, b: flow.where(flow.ones(3, 3) > 0, a, b),
}


@pytest.mark.parametrize("name", SHARING)
def test_every_gradient_has_memory_of_its_own(name):
    a, b = leaf(3, 3), leaf(3, 3, seed=1)
    y = SHARING[name](a, b)
    cotangent = flow.tensor(np.random.default_rng(2).normal(size=y.shape))
    kept = cotangent.cpu().numpy().copy()
    y.backward(cotangent, retain_graph=True)
    arrays = [
        a.grad.cpu().numpy(),
        b.grad.cpu().numpy(),
        cotangent.cpu().numpy(),
        a.detach().cpu().numpy(),
        b.detach().cpu().numpy(),
    ]
    for i, first in enumerate(arrays):
        assert not any(np.shares_memory(first, second) for second in arrays[:i])
    assert a.grad is not b.grad and a.grad.is_contiguous() and b.grad.is_contiguous()
    first = a.grad.cpu().numpy().copy()
    a.grad.zero_()
    b.grad.fill_(7)
    y.backward(cotangent)
    assert_same(a.grad, first)
    assert_same(cotangent, kept)


def read_only(g: flow.Tensor) -> flow.Tensor:
    """A gradient whose memory is read-only, on the CPU."""
    values = g.cpu().numpy().copy()
    values.flags.writeable = False
    return flow.from_numpy(values).to(g.device)


@pytest.mark.parametrize("hook", [None, read_only])
def test_the_gradient_of_a_leaf_of_one_element_can_be_changed(hook):
    x = flow.tensor([[2.0]], requires_grad=True)
    if hook is not None:
        x.register_hook(hook)
    (x.reshape(1).mean() * 2).backward()  # its gradient is a broadcast view from end to end
    x.grad.mul_(3)
    assert_same(x.grad, np.array([[6.0]], np.float32))


@pytest.mark.cpu_only("it looks at NumPy's arrays")
def test_the_gradient_of_a_reshaped_leaf_is_not_copied():
    x, kept = leaf(3, 3), []
    y = -x.reshape(9)
    y.backward(flow.ones_like(y))
    assert x.grad._array.base is not None, "it is a view of what the gradient of neg made"
    z = x.reshape(9)
    z.register_hook(kept.append)
    x.grad = None
    (-z).backward(flow.ones_like(y))
    assert not np.shares_memory(x.grad.numpy(), kept[0].numpy()), "which here another reader has"


def test_what_runs_after_accumulation_changes_no_other_gradient():
    a, b = leaf(3), leaf(3, seed=1)
    for x in (a, b):
        x.register_post_accumulate_grad_hook(lambda x: x.grad.mul_(10))
    ((a + b) * 5).sum().backward()  # the cotangent of both is one tensor
    assert_same(a.grad, np.full(3, 50.0))
    assert_same(b.grad, np.full(3, 50.0))


class Same(flow.autograd.Function):
    """The identity, whose backward returns a tensor that it keeps."""

    kept: list[flow.Tensor] = []

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        Same.kept.append(dy * 2)
        return Same.kept[-1]


def test_a_gradient_that_a_function_keeps_is_not_changed():
    x = leaf(3)
    Same.apply(x).sum().backward()
    x.grad.zero_()
    assert_same(Same.kept.pop(), np.full(3, 2.0))


def test_the_gradient_of_a_leaf_itself():
    x = leaf(2, 2)
    given = flow.ones(2, 2, dtype=flow.float64)
    x.backward(given)
    x.grad.add_(1)
    assert_same(given, np.ones((2, 2)))
    assert_same(x.grad, np.full((2, 2), 2.0))


def test_a_retained_gradient_is_a_copy():
    x, given = leaf(3), flow.ones(3, dtype=flow.float64)
    y = x * 1
    z = y + x
    y.retain_grad()
    z.retain_grad()
    z.backward(given)
    z.grad.zero_()
    assert_same(given, np.ones(3))
    assert_same(y.grad, np.ones(3))


def test_a_gradient_kept_elsewhere_is_not_changed_by_accumulation():
    kept = []
    x = leaf(3)
    y = x * 1
    y.register_hook(kept.append)
    x.register_hook(kept.append)
    y.retain_grad()
    y.backward(flow.ones(3, dtype=flow.float64))
    values = [g.cpu().numpy().copy() for g in kept]
    retained = y.grad.cpu().numpy().copy()
    (x * 5).sum().backward()
    x.grad.add_(100)
    for g, value in zip(kept[:2], values, strict=True):
        assert_same(g, value)
    assert_same(y.grad, retained)


def test_a_gradient_with_history_is_taken_without_it():
    x, w = leaf(3), leaf(3, seed=1)
    x.register_hook(flow.enable_grad()(lambda g: w * 2))
    x.sum().backward()
    assert_same(x.grad, 2 * w.detach().cpu().numpy())
    assert not x.grad.requires_grad


def test_nothing_is_added_to_an_expanded_gradient():
    x = leaf(3)
    x.grad = flow.ones(1, dtype=flow.float64).expand(3)
    with pytest.raises(ShapeError, match="backward: the tensor is an expanded or read-only view"):
        (x * 2).sum().backward()


def test_fresh_gradients_are_not_copied(monkeypatch):
    """A weight's gradient, fresh from a matrix product, is taken as it is: no copy is made."""
    copies = []
    original = engine.clone
    monkeypatch.setattr(engine, "clone", lambda x: copies.append(x) or original(x))
    x = flow.ones(8, 5)
    weight = flow.ones(3, 5, requires_grad=True)
    flow.nn.functional.linear(x, weight).relu().sum().backward()
    kernel = flow.ones(4, 2, 3, 3, requires_grad=True)
    flow.nn.functional.conv2d(flow.ones(2, 2, 8, 8), kernel).exp().sum().backward()
    assert weight.grad.shape == (3, 5) and kernel.grad.shape == (4, 2, 3, 3)
    assert copies == []
    a, b = leaf(3), leaf(3)
    (a + b).backward(flow.ones(3, dtype=flow.float64))
    assert len(copies) == 2, "a gradient that somebody else can see is copied"


def test_gradients_have_the_dtype_of_their_leaf():
    x = flow.ones(2, requires_grad=True)
    w = flow.ones(2, dtype=flow.float64, requires_grad=True)
    h = flow.ones(2, dtype=flow.float16, requires_grad=True)
    (x * w * h).sum().backward()
    assert x.grad.dtype is flow.float32 and w.grad.dtype is flow.float64 and h.grad.dtype is flow.float16
    y = flow.ones(2, requires_grad=True)
    (y * 2).backward(flow.ones(2, dtype=flow.float64))
    assert y.grad.dtype is flow.float32
    z = flow.ones(2, requires_grad=True)
    z.backward(flow.ones(2, dtype=flow.float64))
    assert z.grad.dtype is flow.float32
