"""Reading and writing by index, gathering and scattering, masks."""

import numpy as np
import pytest
from checks import assert_same, check_op, on_device, share_memory
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import miniflow as flow
from miniflow.errors import DimError, DTypeError, IndexRangeError, ShapeError

RNG = np.random.default_rng(3)
A = RNG.uniform(0.5, 2.0, (4, 5, 3))
MASK = RNG.random(A.shape) > 0.4
ROWS = np.array([2, 0, -1, 2])
MOVING = ("float32", "float64", "float16", "bfloat16", "int64", "uint8")

BASIC = [
    1,
    -4,
    slice(1, None),
    slice(None, None, 2),
    slice(-3, -1),
    slice(3, 1),
    (slice(None), 2),
    (..., -1),
    (1, ..., slice(None, 2)),
    None,
    (None, 1, None, ..., None),
    (0, 1, 2),
    (),
    ...,
    (np.int64(1), slice(np.int64(1), None)),
]
ADVANCED = [
    ROWS,
    [2, 0, 1],
    [[0, 1], [3, 3]],
    range(3),
    (slice(None), ROWS),
    (..., [0, -1, 0]),
    (ROWS, ROWS),
    (ROWS, [[0], [1]]),
    (ROWS, slice(None), [0, 1, 2, 0]),
    (ROWS, None, [0, 1, 2, 0]),
    (slice(1, 3), [1, 1, 0]),
    (None, ROWS),
    MASK,
    MASK[..., 0],
    (slice(None), MASK[0]),
    (MASK[:, 0, 0], 1),
    (MASK[:, :, 0], [0]),
    True,
    (False, slice(1)),
    (True, ROWS),
    ([0, 3], [1, 1], [2, 2]),
    (slice(None), slice(None, 2), [2, 2]),
]


@pytest.mark.parametrize("index", BASIC, ids=str)
def test_basic_indexing_is_a_view(index):
    check_op(
        lambda x: x[index],
        [A],
        lambda x: np.array(x[index]),
        dtypes=MOVING,
        gradient="sparse" if A[index].size else "zero",
    )
    x = on_device(A)
    assert A[index].size == 0 or share_memory(x[index]._array, x._array)


@pytest.mark.parametrize("index", ADVANCED, ids=lambda i: str(i).replace("\n", "")[:40])
def test_advanced_indexing_is_a_copy(index):
    empty = A[index].size == 0
    check_op(lambda x: x[index], [A], lambda x: x[index], dtypes=MOVING, gradient="zero" if empty else "sparse")
    x = on_device(A)
    assert not share_memory(x[index]._array, x._array)


def test_an_int_beside_an_index_tensor_is_taken_first():
    """PyTorch's rule; NumPy would put the picked elements in front: shape (4, 5)."""
    check_op(lambda x: x[1, :, [0, 1, 2, 0]], [A], lambda x: x[1][:, [0, 1, 2, 0]], gradient="sparse")


def test_tensors_as_indices():
    x = on_device(A)
    assert_same(x[flow.tensor(2)], A[2])
    assert share_memory(x[flow.tensor(2)]._array, x._array)
    assert_same(x[flow.tensor([1, 1])], A[[1, 1]])
    assert_same(x[flow.tensor([1, 1], dtype=flow.int32), flow.tensor([0, 4])], A[[1, 1], [0, 4]])
    assert_same(x[on_device(MASK)], A[MASK])
    assert_same(x[flow.tensor(1) :], A[1:])
    assert_same(x[x > 1.0], A[A > 1.0])


def test_duplicates_accumulate_in_the_gradient():
    x = flow.zeros(3).requires_grad_()
    x[[1, 1, 1, 0]].backward(flow.tensor([1.0, 2.0, 4.0, 8.0]))
    assert_same(x.grad, np.array([8.0, 7.0, 0.0], np.float32))


def test_an_index_changed_after_use_is_noticed():
    x, index = flow.zeros(3).requires_grad_(), flow.tensor([0, 1])
    y = x[index]
    index.add_(1)
    with pytest.raises(flow.errors.AutogradError, match="changed by an in-place"):
        y.sum().backward()


def written(x, index, value):
    x = x.clone()
    x[index] = value
    return x


@pytest.mark.parametrize("index", BASIC + ADVANCED, ids=lambda i: str(i).replace("\n", "")[:40])
def test_set_item(index):
    shape = A[index].shape
    value = np.asarray(RNG.uniform(2.0, 3.0, shape))

    def reference(x, value):
        x = x.copy()
        x[index] = value
        return x

    def function(x, value):
        return written(x, index, value)

    repeats = _repeats(index)
    check_op(
        function,
        [A, value],
        _last_wins(index) if repeats else reference,
        dtypes=("float32", "float64", "float16", "int64"),
        layouts=() if repeats else ("strided",),
        gradient="sparse",
        grad=(1,) if value.size == A.size else (0, 1) if value.size else (0,),
    )


def _repeats(index) -> bool:
    counts = np.zeros(A.shape, int)
    np.add.at(counts, index, 1)
    return counts.max() > 1


def _last_wins(index):
    cells = np.arange(A.size).reshape(A.shape)[index]

    def reference(x, value):
        x = x.copy()
        for cell, v in zip(cells.flat, value.flat, strict=True):
            x.flat[cell] = v
        return x

    return reference


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (1, ()),
        (slice(2), (3,)),
        ((slice(None), [0, 2]), (2, 1)),
        ((..., 0), (1, 1, 4, 5)),
        (MASK, ()),
        (ROWS[:3], (5, 1)),
    ],
    ids=str,
)
def test_set_item_broadcasts_the_value(index, shape):
    value = np.asarray(RNG.uniform(2.0, 3.0, shape))

    def reference(x, value):
        x = x.copy()
        x[index] = value.reshape(value.shape[-x[index].ndim :]) if value.ndim > x[index].ndim else value
        return x

    check_op(lambda x, value: written(x, index, value), [A, value], reference, gradient="sparse")


def test_writing_into_a_tensor():
    x = flow.zeros(2, 3)
    x[0] = 1.0
    x[:, 1] = flow.tensor([5, 6])
    x[x == 0] = -1
    x[[1], [0]] = np.array([2.5])
    assert x.tolist() == [[1.0, 5.0, 1.0], [2.5, 6.0, -1.0]]
    row = x[1]
    row[0] = 9
    assert x[1, 0].item() == 9.0
    n = flow.zeros(2, dtype=flow.int64)
    n[0] = 2.9
    assert n.tolist() == [2, 0]


def test_writing_keeps_gradients_of_both_sides():
    x, v = on_device(np.ones((2, 2))).requires_grad_(), on_device(np.full(2, 3.0)).requires_grad_()
    y = x * 2.0
    y[0] = v
    (y * y).sum().backward()
    assert_same(x.grad, np.array([[0.0, 0.0], [8.0, 8.0]]))
    assert_same(v.grad, np.array([6.0, 6.0]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_indexing_agrees_with_numpy(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4))
    x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(p, slice) and (p.step or 1) < 0 for p in parts):
        with pytest.raises(IndexRangeError, match="step must be greater than zero"):
            on_device(x)[index]
    else:
        assert_same(on_device(x)[index], np.asarray(x[index]))
    picks = data.draw(hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=3)))
    assert_same(on_device(x)[picks], x[picks])


INDEX = RNG.integers(0, 5, (3, 4, 2))
SOURCE = RNG.uniform(2.0, 3.0, (3, 5, 2))


def _loop(place):
    def reference(x, index, src):
        y = x.copy()
        for i in np.ndindex(index.shape):
            place(y, (i[0], index[i], *i[2:]), src[i])
        return y

    return reference


def test_gather():
    check_op(
        lambda x, i: x.gather(1, i),
        [A, INDEX],
        lambda x, i: np.take_along_axis(x[:3, :, :2], i, 1),
        dtypes=MOVING,
        gradient="sparse",
    )
    first = np.array([[3, 0]])
    check_op(lambda x, i: x.gather(0, i), [A[..., 0], first], lambda x, i: x[i, [0, 1]], gradient="sparse")


def test_take_along_dim():
    i = RNG.integers(0, 5, (1, 2, 3))
    check_op(lambda x, i: x.take_along_dim(i, 1), [A, i], lambda x, i: np.take_along_axis(x, i, 1), gradient="sparse")
    check_op(lambda x: x.take_along_dim(flow.tensor([7, 0])), [A], lambda x: x.ravel()[[7, 0]], gradient="sparse")


def test_scatter():
    places = np.argsort(RNG.random((3, 4, 2)), 1)
    args = [A, places, SOURCE]
    check_op(lambda x, i, s: x.scatter(1, i, s), args, _loop(lambda y, at, v: y.__setitem__(at, v)), dtypes=MOVING,
             gradient="sparse")  # fmt: skip
    check_op(lambda x, i: x.scatter(1, i, 7), [A, places], lambda x, i: _loop(lambda y, at, v: y.__setitem__(at, v))(
        x, i, np.full(i.shape, 7)))  # fmt: skip


def test_scatter_to_one_place_twice_keeps_the_last():
    check_op(lambda x, i, s: x.scatter(1, i, s), [A, INDEX, SOURCE], _loop(lambda y, at, v: y.__setitem__(at, v)),
             gradient="sparse", layouts=())  # fmt: skip


def test_scatter_add():
    def add(y, at, v):
        y[at] += v

    check_op(
        lambda x, i, s: x.scatter_add(1, i, s), [A, INDEX, SOURCE], _loop(add), dtypes=("float32", "float64", "int64")
    )


def test_index_select_and_index_add():
    i, source = np.array([2, 0, 2]), RNG.uniform(1.0, 2.0, (4, 3, 3))
    check_op(lambda x, i: x.index_select(1, i), [A, i], lambda x, i: x[:, i], dtypes=MOVING, gradient="sparse")

    def reference(x, i, source):
        y = x.copy()
        np.add.at(y, (slice(None), i), 2 * source)
        return y

    check_op(
        lambda x, i, s: x.index_add(1, i, s, alpha=2), [A, i, source], reference, dtypes=("float32", "float64", "int64")
    )


def test_adding_into_bool_is_or():
    x = flow.tensor([False, True, False])
    assert x.index_add(0, flow.tensor([0, 0]), flow.tensor([True, False])).tolist() == [True, True, False]


def test_masked_fill():
    row = MASK[0, 0]
    check_op(lambda x, m: x.masked_fill(m, -1.5), [A, MASK], lambda x, m: np.where(m, -1.5, x),
             dtypes=("float32", "float64", "float16", "bfloat16"), gradient="sparse")  # fmt: skip
    check_op(lambda x, m: x.masked_fill(m, float("-inf")), [A, row], lambda x, m: np.where(m, -np.inf, x), grad=False)
    check_op(lambda x, m: x.masked_fill(m, 2.0), [A[0, 0], MASK], lambda x, m: np.where(m, 2.0, x))
    check_op(
        lambda x, m, v: x.masked_fill(m, v),
        [A, MASK, np.array(2.5)],
        lambda x, m, v: np.where(m, v, x),
        gradient="sparse",
    )
    assert flow.ones(2, dtype=flow.int64).masked_fill(flow.tensor([True, False]), 0).tolist() == [0, 1]


def test_masked_select():
    check_op(
        lambda x, m: x.masked_select(m), [A, MASK], lambda x, m: x[m], dtypes=MOVING, gradient="sparse", graph=False
    )
    row = np.array([True, False, True])
    check_op(lambda x, m: x.masked_select(m), [A, row], lambda x, m: x[..., m].ravel(), gradient="sparse", graph=False)


def test_nonzero():
    check_op(lambda x: x.nonzero(), [MASK], lambda x: np.argwhere(x), graph=False)
    check_op(lambda x: x.nonzero(as_tuple=True), [MASK], lambda x: np.nonzero(x), graph=False)
    check_op(flow.where, [MASK], lambda x: np.nonzero(x), graph=False)
    assert flow.tensor(3).nonzero().shape == (1, 0) and flow.tensor(0).nonzero().shape == (0, 0)
    assert [i.tolist() for i in flow.tensor(3).nonzero(as_tuple=True)] == [[0]]
    assert flow.argwhere(flow.tensor([0.0, 2.0])).tolist() == [[1]]


def test_zero_size_and_zero_dim():
    empty, none = flow.zeros(0, 3), flow.zeros(0, dtype=flow.int64)
    assert empty[none].shape == (0, 3) and empty[:, [0]].shape == (0, 1) and empty[empty > 0].shape == (0,)
    assert empty.index_select(0, none).shape == (0, 3)
    assert empty.gather(0, flow.zeros(0, 3, dtype=flow.int64)).shape == (0, 3)
    x = flow.tensor(2.0, requires_grad=True)
    zero = flow.zeros(1, dtype=flow.int64)
    assert x[...].shape == () and x[None].shape == (1,) and x[True].shape == (1,) and x[False].shape == (0,)
    assert x.index_select(0, zero).item() == 2.0 and x.gather(0, zero[0]).item() == 2.0
    assert x.scatter_add(0, zero[0], flow.tensor(3.0)).item() == 5.0
    (x[True].sum() + x.gather(0, zero[0])).backward()
    assert x.grad.item() == 2.0


X, INDICES = flow.zeros(2, 3), flow.tensor([[0, 1]])
ERRORS = [
    (
        lambda: X[2],
        IndexRangeError,
        r"getitem: index 2 is out of range for dim 0 of size 2 \(shape \(2, 3\)\); expected from -2 to 1",
    ),
    (lambda: X[0, -4], IndexRangeError, "getitem: index -4 is out of range for dim 1 of size 3"),
    (
        lambda: X[0, 0, 0],
        IndexRangeError,
        r"too many indices: got 3 for a tensor of shape \(2, 3\); expected at most 2",
    ),
    (lambda: flow.tensor(1.0)[0], IndexRangeError, "too many indices: got 1"),
    (lambda: X[..., 0, ...], IndexRangeError, "more than one Ellipsis"),
    (lambda: X[::-1], IndexRangeError, "step must be greater than zero: use flip"),
    (lambda: X[::0], IndexRangeError, "step must be greater than zero"),
    (lambda: X[[0, 2]], IndexRangeError, "getitem: index 2 is out of range for dim 0 of size 2"),
    (lambda: X[:, [0, -4]], IndexRangeError, "getitem: index -4 is out of range for dim 1"),
    (lambda: X[[0, 1], [0, 5]], IndexRangeError, "getitem: index 5 is out of range for dim 1 of size 3"),
    (lambda: flow.zeros(0, 3)[[0]], IndexRangeError, "index 0 is out of range for dim 0 of size 0 .* the dim is empty"),
    (lambda: X[[0, 1], [0, 1, 2]], ShapeError, r"getitem: shapes \(2,\) and \(3,\) cannot be broadcast"),
    (lambda: X[flow.tensor([True])], IndexRangeError, r"mask of shape \(1,\) .* expected \(2,\)"),
    (lambda: X[0, flow.tensor([True])], IndexRangeError, "mask of shape"),
    (lambda: X[1.5], DTypeError, "index of type float"),
    (lambda: X["a"], DTypeError, "index of type str"),
    (lambda: X[flow.tensor([0.0])], DTypeError, "expected ints, slices"),
    (lambda: X[flow.tensor([1], dtype=flow.uint8)], DTypeError, "index of uint8, which may mean a mask or positions"),
    (lambda: X.__setitem__(2, 1.0), IndexRangeError, "setitem: index 2 is out of range"),
    (lambda: X.__setitem__([2], 1.0), IndexRangeError, "setitem: index 2 is out of range"),
    (lambda: X.__setitem__(0, flow.zeros(2)), ShapeError, r"setitem: got shapes \(2,\) and \(3,\)"),
    (lambda: X.__setitem__(0, "a"), DTypeError, "setitem: got a value of type str"),
    (
        lambda: X.gather(1, flow.tensor([[3]])),
        IndexRangeError,
        r"gather: index 3 is out of range for dim 1 of size 3 .* from 0 to 2",
    ),
    (lambda: X.gather(1, flow.tensor([[-1]])), IndexRangeError, "gather: index -1 is out of range"),
    (lambda: X.gather(1, flow.tensor([0])), ShapeError, "gather: got an index of shape"),
    (lambda: X.gather(1, flow.zeros(3, 1, dtype=flow.int64)), ShapeError, "no larger sizes in the other dims"),
    (lambda: X.gather(1, flow.zeros(2, 1)), DTypeError, "gather: got an index of float32"),
    (lambda: X.gather(2, INDICES), DimError, "gather: got dim=2"),
    (lambda: X.scatter(1, flow.tensor([[3]]), 1.0), IndexRangeError, "scatter: index 3"),
    (lambda: X.scatter(1, INDICES, flow.zeros(1, 1)), ShapeError, "scatter: .* expected no larger index"),
    (lambda: X.scatter(1, INDICES, flow.zeros(1, 2, dtype=flow.float64)), DTypeError, "scatter: .* expected one dtype"),
    (lambda: X.scatter_add(1, INDICES + 2, flow.zeros(1, 2)), IndexRangeError, "scatter_add: index 3"),
    (lambda: X.scatter_add(0, -INDICES, flow.zeros(1, 2)), IndexRangeError, "scatter_add: index -1"),
    (lambda: X.index_select(0, flow.tensor([2])), IndexRangeError, "index 2 is out of range"),
    (lambda: X.index_select(0, INDICES), ShapeError, "index_select: .* at most 1 dim"),
    (lambda: X.index_add(0, flow.tensor([0]), flow.zeros(1, 2)), ShapeError, r"index_add: .* expected \(1, 3\)"),
    (lambda: X.index_add(0, flow.tensor([2]), flow.zeros(1, 3)), IndexRangeError, "index 2 is out of range"),
    (lambda: X.masked_fill(X, 0.0), DTypeError, "masked_fill: got a condition of float32"),
    (lambda: X.masked_fill(flow.zeros(2, 2) > 0, 0.0), ShapeError, "masked_fill: .* broadcast"),
    (
        lambda: INDICES.masked_fill(INDICES > 0, 0.5),
        DTypeError,
        "masked_fill: got the value 0.5 for a tensor of .*int64",
    ),
    (lambda: X.masked_fill(X > 0, flow.zeros(2)), ShapeError, "a number or a 0-dim tensor"),
    (lambda: X.masked_select(INDICES), DTypeError, "masked_select: got a mask"),
    (lambda: X.take_along_dim(flow.tensor([0]), 1), ShapeError, "take_along_dim: .* as many dims"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_errors(call, error, message, device_in_use, monkeypatch):
    for name in ("X", "INDICES"):
        monkeypatch.setitem(globals(), name, globals()[name].to(device_in_use))
    with pytest.raises(error, match=message):
        call()
