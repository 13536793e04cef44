"""cat, stack and their reverses."""

import numpy as np
import pytest
from checks import as_array, assert_same, check_op, on_device, share_memory

import miniflow as flow
from miniflow.errors import DimError, DTypeError, ShapeError

RNG = np.random.default_rng(2)
A, B, C = (RNG.normal(size=shape) for shape in ((3, 4), (2, 4), (3, 4)))
MOVING = ("float32", "float64", "float16", "bfloat16", "int64", "uint8")


@pytest.mark.parametrize("dim", [0, -2])
def test_cat(dim):
    check_op(lambda *xs: flow.cat(xs, dim), [A, B, C], lambda *xs: np.concatenate(xs, dim), dtypes=MOVING)


def test_cat_along_the_last_dim():
    check_op(lambda *xs: flow.cat(xs, 1), [A.T, B.T, C.T], lambda *xs: np.concatenate(xs, 1))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_stack(dim):
    check_op(lambda *xs: flow.stack(xs, dim), [A, C], lambda *xs: np.stack(xs, dim), dtypes=MOVING)


def test_joining_the_same_tensor_adds_both_gradients():
    check_op(lambda x: flow.cat([x, x * 2.0]), [A], lambda x: np.concatenate([x, x * 2]))
    check_op(lambda x: flow.stack([x, x]), [A], lambda x: np.stack([x, x]))


@pytest.mark.parametrize("join", [flow.cat, flow.stack])
def test_mixed_dtypes_are_promoted(join):
    y = join([flow.ones(2, dtype=flow.int64), flow.ones(2, dtype=flow.float16), flow.ones(2, dtype=flow.bool)])
    assert y.dtype is flow.float16 and (as_array(y) == 1).all()
    x = on_device(A).requires_grad_()
    join([x, flow.ones(3, 4)]).sum().backward()
    assert_same(x.grad, np.ones_like(A))


def test_tensors_of_shape_0_fit_anywhere():
    assert_same(flow.cat([flow.zeros(0), flow.tensor([[1.0, 2.0]])], 1), np.array([[1.0, 2.0]], np.float32))
    assert flow.cat([flow.zeros(0), flow.zeros(0)]).shape == (0,)
    assert flow.cat([flow.zeros(2, 0), flow.zeros(2, 3)], 1).shape == (2, 3)


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (lambda x: x.split(3), [(0, 3), (3, 6), (6, 7)]),
        (lambda x: x.split(9), [(0, 7)]),
        (lambda x: x.split([2, 0, 5]), [(0, 2), (2, 2), (2, 7)]),
        (lambda x: x.chunk(3), [(0, 3), (3, 6), (6, 7)]),
        (lambda x: x.chunk(4), [(0, 2), (2, 4), (4, 6), (6, 7)]),
        (lambda x: x.chunk(9), [(i, i + 1) for i in range(7)]),
        (lambda x: flow.split(x, 4, dim=-2), [(0, 4), (4, 7)]),
    ],
)
def test_split_and_chunk(function, parts):
    x = RNG.normal(size=(7, 2))
    check_op(function, [x], lambda x: [x[a:b] for a, b in parts])
    t = on_device(x)
    assert all(share_memory(y._array, t._array) for y in function(t) if y.numel())


def test_unbind_and_iteration():
    check_op(lambda x: x.unbind(1), [A], lambda x: [x[:, i] for i in range(4)])
    check_op(lambda x: tuple(x), [A], list)


def test_parts_of_a_split_keep_their_gradients_apart():
    x = on_device(A.copy()).requires_grad_()
    first, _, last = x.split([1, 1, 1])
    (first.sum() * 2.0 + last.sum() * 3.0).backward()
    assert_same(x.grad, np.repeat([2.0, 0.0, 3.0], 4).reshape(3, 4))


def test_parts_of_a_split_share_one_node_and_stay_views():
    x = on_device(A.copy()).requires_grad_()
    y = x * 2.0
    first, second, third = y.split(1)
    assert first.grad_fn is second.grad_fn is third.grad_fn
    second.mul_(5.0)
    assert_same(y, A * [[2.0], [10.0], [2.0]])
    assert_same(third, A[2:] * 2.0)
    (y.sum() + third.sum() * 3.0 + second.sum()).backward()
    assert_same(x.grad, np.repeat([2.0, 20.0, 8.0], 4).reshape(3, 4))


def test_empty_splits():
    assert [y.shape for y in flow.zeros(0, 2).split(3)] == [(0, 2)]
    assert [y.shape for y in flow.zeros(0, 2).chunk(2)] == [(0, 2), (0, 2)]
    assert flow.zeros(0, 2).unbind() == ()


X = flow.zeros(2, 3)
ERRORS = [
    (lambda: flow.cat([]), ShapeError, "cat: got no tensors"),
    (
        lambda: flow.cat([X, flow.zeros(3, 2)]),
        ShapeError,
        r"cat: got shape \(3, 2\) at position 1 and \(2, 3\) at position 0",
    ),
    (lambda: flow.cat([X, flow.zeros(3)]), ShapeError, "cat: got shape .* in every dim but dim 0"),
    (lambda: flow.cat([flow.tensor(1.0)]), ShapeError, "cat: got a 0-dim tensor; .* flow.stack"),
    (lambda: flow.cat([X, 1.0]), DTypeError, "cat: got float at position 1; expected Tensors"),
    (lambda: flow.cat([X], 2), DimError, "cat: got dim=2"),
    (lambda: flow.stack([]), ShapeError, "stack: got no tensors"),
    (lambda: flow.stack([X, flow.zeros(2, 2)]), ShapeError, "stack: got shape .* expected equal shapes"),
    (lambda: flow.stack([X], 3), DimError, "stack: got dim=3"),
    (lambda: X.split(0), ShapeError, "split: got split_size=0"),
    (lambda: X.split([1, 2]), ShapeError, r"split: got sizes \[1, 2\] for dim 0; expected sizes that add up to 2"),
    (lambda: X.split([3, -1]), ShapeError, "add up to 2"),
    (lambda: X.split(1, 2), DimError, "split: got dim=2"),
    (lambda: X.chunk(0), ShapeError, "chunk: got chunks=0"),
    (lambda: flow.tensor(1.0).unbind(), ShapeError, "unbind: got a 0-dim tensor"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message, device_in_use, monkeypatch):
    monkeypatch.setitem(globals(), "X", X.to(device_in_use))
    with pytest.raises(error, match=message):
        call()
