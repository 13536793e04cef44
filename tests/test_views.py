"""Views share memory and write through, whatever way they were taken, also views of views."""

import numpy as np
import pytest
from checks import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import miniflow as flow
from miniflow.errors import ShapeError

TAKE = {
    "slice": (lambda x: x[1:, ::2], lambda a: a[1:, ::2]),
    "negative": (lambda x: x[:, -2:], lambda a: a[:, -2:]),
    "int": (lambda x: x[1], lambda a: a[1]),
    "none": (lambda x: x[:, None], lambda a: a[:, None]),
    "ellipsis": (lambda x: x[..., 0], lambda a: a[..., 0]),
    "transpose": (lambda x: x.transpose(0, 2), lambda a: a.swapaxes(0, 2)),
    "permute": (lambda x: x.permute(1, 2, 0), lambda a: a.transpose(1, 2, 0)),
    "reshape": (lambda x: x.reshape(4, -1), lambda a: a.reshape(4, -1)),
    "view": (lambda x: x.view(2, 12), lambda a: a.reshape(2, 12)),
    "flatten": (lambda x: x.flatten(1), lambda a: a.reshape(2, 12)),
    "narrow": (lambda x: x.narrow(2, 1, 2), lambda a: a[:, :, 1:3]),
    "select": (lambda x: x.select(1, 2), lambda a: a[:, 2]),
    "expand": (lambda x: x.expand(1, 1, 2, 3, 4), lambda a: a[None, None]),
    "expand of one element": (lambda x: x[1, 2, 3].expand(1, 1), lambda a: a[None, None, 1, 2, 3]),
    "unsqueeze": (lambda x: x.unsqueeze(-1), lambda a: a[..., None]),
    "squeeze": (lambda x: x[:1].squeeze(0), lambda a: a[0]),
    "unfold": (lambda x: x.unfold(2, 2, 2), lambda a: a.reshape(2, 3, 2, 2)),
    "diagonal": (lambda x: x.diagonal(0, 0, 1), lambda a: np.diagonal(a, 0, 0, 1)),
    "split": (lambda x: x.split(2, 2)[1], lambda a: a[:, :, 2:]),
    "chunk": (lambda x: x.chunk(2, 0)[1], lambda a: a[1:]),
    "unbind": (lambda x: x.unbind(1)[1], lambda a: a[:, 1]),
    "T": (lambda x: x[0].T, lambda a: a[0].T),
    "mT": (lambda x: x.mT, lambda a: a.swapaxes(1, 2)),
    "movedim": (lambda x: x.movedim(0, 2), lambda a: np.moveaxis(a, 0, 2)),
    "unflatten": (lambda x: x.unflatten(2, (2, 2)), lambda a: a.reshape(2, 3, 2, 2)),
    "detach": (lambda x: x.detach(), lambda a: a),
}


@pytest.mark.parametrize("name", TAKE)
def test_a_view_shares_memory_both_ways(name):
    take, reference = TAKE[name]
    array = np.arange(24.0).reshape(2, 3, 4)
    x = flow.tensor(array)
    y = take(x)
    assert_same(y, reference(array))
    assert np.shares_memory(y.numpy(), x.numpy())
    x.mul_(2)
    assert_same(y, reference(array * 2), what="the view after a write to its base")
    before = x.numpy().copy()
    y.add_(100)
    assert_same(y, reference(array * 2) + 100)
    changed = x.numpy() != before
    assert changed.sum() == y.numel(), "a write through the view changes as many elements of the base as it has"
    assert_same(x.numpy()[changed], before[changed] + 100)
    assert x.version == y.version == 2


@pytest.mark.parametrize("name", [name for name in TAKE if name != "detach"])
def test_a_gradient_flows_through_a_write_to_a_view(name):
    """z = x * 1; view(z) *= w: the elements in the view get w, the others 1."""
    take, _ = TAKE[name]
    leaf = flow.tensor(np.arange(1.0, 25.0).reshape(2, 3, 4), requires_grad=True)
    x = leaf * 1
    y = take(x)
    weight = flow.full(y.shape, 3.0, dtype=flow.float64, requires_grad=True)
    y.mul_(weight)
    cotangent = np.random.default_rng(0).uniform(1, 2, (2, 3, 4))
    x.backward(flow.tensor(cotangent))
    place = np.ones((2, 3, 4))
    mask = flow.from_numpy(place)
    take(mask).fill_(3)
    assert_same(leaf.grad, cotangent * place)
    assert_same(weight.grad, take(flow.from_numpy(cotangent * leaf.detach().numpy())).numpy().copy())


def test_a_view_taken_before_a_write_gets_its_history():
    leaf = flow.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = leaf * 1
    head, tail = x[:2], x[1:]
    head.mul_(10)
    tail.sum().backward()
    assert_same(leaf.grad, np.array([0, 10, 1], np.float32))


def test_a_plain_tensor_gets_a_history_by_a_write():
    weight = flow.tensor([2.0, 3.0], requires_grad=True)
    x = flow.zeros(2, 2)
    row = x[0]
    assert not x.requires_grad
    row.copy_(weight)
    assert x.requires_grad and row.requires_grad and not x.is_leaf
    (x * flow.tensor([[5.0, 7.0], [11.0, 13.0]])).sum().backward()
    assert_same(weight.grad, np.array([5, 7], np.float32))


def test_views_of_views():
    x = flow.arange(24).reshape(2, 3, 4)
    y = x[1].t()[1:3][:, ::2]
    y.zero_()
    expected = np.arange(24).reshape(2, 3, 4)
    expected[1].T[1:3][:, ::2] = 0
    assert_same(x, expected)


def test_a_long_chain_of_views():
    x = flow.arange(2000).double()
    y = x
    for _ in range(1500):
        y = y[1:]
    x.mul_(2)
    y.zero_()
    assert not y.requires_grad and x[1499:1501].tolist() == [2998.0, 0.0]


def test_expanded_views_cannot_be_written():
    for y in (flow.zeros(1, 3).expand(2, 3), flow.zeros(3).broadcast_to((2, 3)), flow.arange(5).unfold(0, 3, 1)):
        for write in (lambda y: y.add_(1), lambda y: y.fill_(1), lambda y: y.__setitem__(0, 1)):
            with pytest.raises(ShapeError, match=r"expanded or read-only view.*x.clone\(\)"):
                write(y)


def test_an_expanded_view_sees_writes_to_its_base():
    x = flow.zeros(1, 3)
    y = x.expand(2, 3)
    x[0, 1] = 4
    assert_same(y, np.array([[0, 4, 0], [0, 4, 0]], np.float32))


def test_views_of_a_leaf():
    x = flow.ones(2, 2, requires_grad=True)
    with flow.no_grad():
        x[0].zero_()
    assert x.is_leaf and x[0].tolist() == [0.0, 0.0]
    (x[0] * 3).sum().backward()
    assert_same(x.grad, np.array([[3, 3], [0, 0]], np.float32))


def test_copies_do_not_share():
    x = flow.arange(6).reshape(2, 3)
    for y in (x.clone(), x.t().contiguous(), x.t().reshape(6), x[[0, 1]], x[x > -1], x.flip(0), x.repeat(1, 1), x + 0):
        assert not np.shares_memory(x.numpy(), y.numpy())


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(sizes=sizes, steps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100)), max_size=5))
def test_any_chain_of_views_agrees_with_numpy(sizes, steps):
    array = np.arange(float(np.prod(sizes))).reshape(sizes)
    x = flow.tensor(array)
    y, reference = x, array
    for kind, number in steps:
        y, reference = _view_of_both(y, reference, kind, number)
    y.add_(1000)
    reference += 1000
    assert_same(y, reference)
    assert_same(x, array)
    assert y.stride() == tuple(s // 8 for s in reference.strides) or y.numel() <= 1 or 1 in y.shape


def _view_of_both(y, reference, kind, number):
    dim = number % reference.ndim if reference.ndim else 0
    if kind == 0 and reference.ndim > 1:
        return y.transpose(0, dim), reference.swapaxes(0, dim)
    if kind == 1 and reference.ndim:
        start = number % reference.shape[dim]
        part = (slice(None),) * dim + (slice(start, None, 2),)
        return y[part], reference[part]
    if kind == 2 and reference.ndim:
        index = (slice(None),) * dim + (number % reference.shape[dim] - reference.shape[dim],)
        return y[(*index, ...)], reference[(*index, ...)]
    if kind == 3:
        return y.unsqueeze(dim), np.expand_dims(reference, dim)
    if kind == 4 and reference.flags.c_contiguous:
        return y.view(-1), reference.reshape(-1)
    return y, reference


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.roll(0, 2),
        lambda x: x.roll((2, 3), (2, 3)),
        lambda x: x.rot90(4, (2, 3)),
        lambda x: x.repeat_interleave(1, 1),
        lambda x: x[:1, :1, :1, :1].repeat_interleave(2),
        lambda x: flow.nn.functional.pixel_shuffle(x, 1),
        lambda x: flow.nn.functional.pixel_unshuffle(x, 1),
        lambda x: flow.nn.functional.channel_shuffle(x, 1),
        lambda x: flow.linalg.matrix_power(x[..., :2], 1),
    ],
)
def test_results_that_are_no_views_can_be_written(function):
    x = flow.rand(1, 2, 2, 3)
    before = x.clone()
    function(x).zero_()
    assert flow.equal(x, before)
