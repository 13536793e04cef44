"""Factories, sequences and triangles."""

from __future__ import annotations

import array
import collections
import math

import numpy as np
import pytest
from checks import assert_close, assert_same

import miniflow as flow
from miniflow.errors import ArgumentError, AutogradError, DTypeError, ShapeError

BFLOAT16 = flow.bfloat16.numpy

# from data


@pytest.mark.parametrize(
    "data, dtype, shape",
    [
        (1, "int64", ()),
        (1.5, "float32", ()),
        (True, "bool", ()),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        ([True, False], "bool", (2,)),
        ([True, 2], "int64", (2,)),
        ([1, 2.5], "float32", (2,)),
        ([[1, 2, 3], (4, 5, 6)], "int64", (2, 3)),
        (range(4), "int64", (4,)),
        (np.float64(1.5), "float64", ()),
        ([np.float64(1.5)], "float64", (1,)),
        ([2.0, np.float64(1.5)], "float64", (2,)),
        ([np.float32(1.5), 2.0], "float32", (2,)),
        ([np.float32(1.5), 2], "float32", (2,)),
        ([[np.int32(1), 2.5], [3, 4]], "float32", (2, 2)),
        ([flow.tensor(1.5), 2.0], "float32", (2,)),
        ([flow.tensor(1.5), flow.tensor(2)], "float32", (2,)),
        ([flow.tensor(2), 1.5], "float32", (2,)),
        ([2.0, flow.tensor(1.5, dtype=flow.float64)], "float64", (2,)),
        ([np.float32(1.5)], "float32", (1,)),
        ([np.int32(1)], "int32", (1,)),
        (np.array([1.5]), "float64", (1,)),
        (np.zeros((2, 3), np.uint8), "uint8", (2, 3)),
        (np.zeros(2, BFLOAT16), "bfloat16", (2,)),
        ([np.zeros(3), np.ones(3)], "float64", (2, 3)),
    ],
)
def test_tensor_infers_dtype_and_shape(data, dtype, shape):
    x = flow.tensor(data)
    assert x.dtype.name == dtype and x.shape == shape and not x.requires_grad
    assert_same(x, np.array(list(data) if isinstance(data, range) else data).astype(x.dtype.numpy))


def test_tensor_of_tensors():
    a, b = flow.tensor([1.0, 2.0], dtype=flow.float64), flow.tensor([3.0, 4.0], requires_grad=True)
    assert_same(flow.tensor([[a, a], [b, b]]), np.array([[[1.0, 2.0]] * 2, [[3.0, 4.0]] * 2]))
    assert_same(flow.tensor([b, b]), np.array([[3.0, 4.0]] * 2, np.float32))
    assert_same(flow.tensor([flow.tensor(1), flow.tensor(2)]), np.array([1, 2]))
    copy = flow.tensor(b)
    assert not copy.requires_grad and copy.data_ptr() != b.data_ptr()
    assert_same(copy, np.array([3.0, 4.0], np.float32))
    assert flow.tensor(b, dtype=flow.int32).tolist() == [3, 4]


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"]
)
def test_dtype_is_honoured_by_every_factory(dtype):
    kind = getattr(flow, dtype)
    like = flow.zeros(2, 3)
    made = [
        flow.tensor([[1, 0, 1]] * 2, dtype=kind),
        flow.tensor([[1.0, 0.0, 1.0]] * 2, dtype=kind),
        flow.as_tensor(np.eye(2, 3), dtype=kind),
        flow.empty(2, 3, dtype=kind),
        flow.zeros(2, 3, dtype=kind),
        flow.ones(2, 3, dtype=kind),
        flow.full((2, 3), 1, dtype=kind),
        flow.eye(2, 3, dtype=kind),
        flow.empty_like(like, dtype=kind),
        flow.zeros_like(like, dtype=kind),
        flow.ones_like(like, dtype=kind),
        flow.full_like(like, 1, dtype=kind),
        like.new_tensor([[1, 0, 1]] * 2, dtype=kind),
        like.new_empty(2, 3, dtype=kind),
        like.new_zeros((2, 3), dtype=kind),
        like.new_ones(2, 3, dtype=kind),
        like.new_full((2, 3), 1, dtype=kind),
    ]
    for x in made:
        assert x.dtype is kind and x.shape == (2, 3) and x.device == flow.get_default_device() and x.is_leaf
        own = x.new_ones(3)
        assert own.dtype is kind and flow.full_like(x, 0).dtype is kind and x.new_tensor([1]).dtype is kind
        assert_same(own, np.ones(3, kind.numpy))
    for x in (made[0], made[1]):
        assert_same(x, np.array([[1, 0, 1]] * 2).astype(kind.numpy))
    for x, value in (
        (made[4], 0),
        (made[5], 1),
        (made[6], 1),
        (made[9], 0),
        (made[10], 1),
        (made[11], 1),
        (made[16], 1),
    ):
        assert_same(x, np.full((2, 3), value).astype(kind.numpy))
    assert_same(made[7], np.eye(2, 3).astype(kind.numpy))


def test_requires_grad_keyword():
    x = flow.zeros(2)
    made = [
        flow.tensor([1.0], requires_grad=True),
        flow.empty(2, requires_grad=True),
        flow.zeros(2, requires_grad=True),
        flow.ones((2,), requires_grad=True),
        flow.full((2,), 1.0, requires_grad=True),
        flow.zeros_like(x, requires_grad=True),
        x.new_full((2,), 3, requires_grad=True),
        flow.arange(2.0, requires_grad=True),
        flow.linspace(0, 1, 3, requires_grad=True),
        flow.logspace(0, 1, 3, requires_grad=True),
        flow.eye(2, requires_grad=True),
        flow.rand(2, requires_grad=True),
        flow.randn(2, requires_grad=True),
    ]
    assert all(y.requires_grad and y.is_leaf for y in made)
    with pytest.raises(AutogradError, match="requires_grad_: got miniflow.int64"):
        flow.tensor([1], requires_grad=True)


@pytest.mark.cpu_only("NumPy cannot share the memory of a device")
def test_memory_is_shared_exactly_where_promised():
    array = np.arange(6.0).reshape(2, 3)
    shared = flow.from_numpy(array)
    array[0, 0] = 50
    shared[1, 1] = 70
    assert shared[0, 0].item() == 50 and array[1, 1] == 70
    assert flow.as_tensor(array).data_ptr() == shared.data_ptr()
    assert flow.as_tensor(shared) is shared
    assert flow.as_tensor(array, dtype=flow.float32).data_ptr() != shared.data_ptr()
    assert flow.as_tensor(shared, dtype=flow.float32).dtype is flow.float32
    assert flow.tensor(array).data_ptr() != shared.data_ptr()
    strided = flow.from_numpy(array[:, ::2])
    strided[0, 1] = -1
    assert array[0, 2] == -1 and strided.stride() == (3, 2)
    assert flow.as_tensor([1, 2]).tolist() == [1, 2]


def test_default_dtype():
    assert flow.get_default_dtype() is flow.float32
    flow.set_default_dtype(flow.float64)
    try:
        made = [flow.tensor(1.5), flow.tensor([]), flow.zeros(2), flow.full((1,), 1.5), flow.arange(1.5), flow.rand(2)]
        made += [flow.eye(2), flow.linspace(0, 1, 2), flow.randn(3)]
        assert all(x.dtype is flow.float64 for x in made)
        assert flow.tensor(1).dtype is flow.int64
    finally:
        flow.set_default_dtype(flow.float32)
    with pytest.raises(DTypeError, match="set_default_dtype got miniflow.int64; expected a floating dtype"):
        flow.set_default_dtype(flow.int64)


def test_sizes_as_integers_or_one_sequence():
    for make in (flow.zeros, flow.ones, flow.empty, flow.rand, flow.randn, flow.zeros(1).new_zeros):
        for sizes in ((2, 3), ((2, 3),), ([2, 3],), (flow.zeros(2, 3).shape,), (np.int64(2), np.int32(3))):
            assert make(*sizes).shape == (2, 3)
        assert (
            make(()).shape == () and make().shape == () and make(0).shape == (0,) and make(2, 0, 3).shape == (2, 0, 3)
        )
    assert flow.full((), 3).item() == 3


def test_full_takes_its_dtype_from_the_value():
    assert flow.full((2,), True).dtype is flow.bool
    assert flow.full((2,), 7).dtype is flow.int64
    assert flow.full((2,), 0.5).dtype is flow.float32
    assert flow.full((2,), flow.tensor(2.5, dtype=flow.float64)).tolist() == [2.5, 2.5]
    assert flow.full([2], math.nan, dtype=flow.float16).isnan().all()


# sequences


@pytest.mark.parametrize(
    "args",
    [(5,), (0,), (2, 7), (7, 2, -1), (7, 2, -2), (0, 1, 0.3), (2.5,), (1, 2, 0.1), (-3, 3), (0, -1, -0.25), (3, 3)],
)
def test_arange(args):
    x = flow.arange(*args)
    start, end, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    expected = np.array([start + i * step for i in range(max(0, math.ceil((end - start) / step)))])
    integral = all(isinstance(a, int) for a in args)
    assert_same(x, expected.astype(np.int64 if integral else np.float32))
    assert_same(flow.arange(*args, dtype=flow.float64), expected.astype(np.float64))


def test_arange_of_large_integers_is_exact():
    assert flow.arange(2**62, 2**62 + 3).tolist() == [2**62, 2**62 + 1, 2**62 + 2]
    assert flow.arange(flow.tensor(3)).tolist() == [0, 1, 2]
    assert flow.arange(np.int64(3)).dtype is flow.int64


@pytest.mark.parametrize(
    "start, end, steps", [(0, 1, 5), (-2.5, 7, 100), (3, -3, 7), (1, 2, 1), (1, 2, 0), (0, 1e9, 3), (5, 5, 4)]
)
def test_linspace_and_logspace(start, end, steps):
    expected = np.linspace(start, end, steps)
    assert_close(flow.linspace(start, end, steps, dtype=flow.float64), expected, rtol=1e-15, atol=1e-15)
    assert_close(flow.linspace(start, end, steps), expected.astype(np.float32), rtol=1e-7, atol=1e-7)
    if steps > 1:
        assert flow.linspace(start, end, steps)[-1].item() == end
    small = expected / 1e9
    got = flow.logspace(start / 1e9, end / 1e9, steps, base=2.0, dtype=flow.float64)
    assert_close(got, 2.0**small, rtol=1e-14)
    assert_close(flow.logspace(0, 3, 4), np.array([1, 10, 100, 1000], np.float32))


def test_integer_linspace_cuts():
    assert flow.linspace(0, 10, 4, dtype=flow.int32).tolist() == [0, 3, 6, 10]


def test_eye():
    for n, m in ((3, None), (2, 4), (4, 2), (0, 3), (1, 1)):
        assert_same(flow.eye(n, m), np.eye(n, m, dtype=np.float32))


# errors


ERRORS = [
    (
        lambda: flow.tensor([[1, 2], [3]]),
        ShapeError,
        "tensor: got nested sequences of unequal lengths; expected a rectangular",
    ),
    (lambda: flow.tensor([1, [2]]), ShapeError, "unequal lengths"),
    (lambda: flow.tensor([flow.ones(2), flow.ones(3)]), ShapeError, "unequal lengths"),
    (lambda: flow.tensor(["a"]), DTypeError, "dtype <U1 is not supported; expected one of bool, uint8"),
    (lambda: flow.tensor(["1.5"], dtype=flow.float32), DTypeError, "dtype <U3 is not supported"),
    (lambda: flow.tensor(None), DTypeError, "dtype object is not supported"),
    (lambda: flow.tensor([None], dtype=flow.float32), DTypeError, "dtype object is not supported"),
    (lambda: flow.tensor({}), DTypeError, "dtype object is not supported"),
    (lambda: flow.tensor(1j), DTypeError, "dtype complex128 is not supported"),
    (
        lambda: flow.tensor(np.zeros(2, np.complex64)),
        DTypeError,
        "dtype complex64 is not supported.* convert with astype",
    ),
    (lambda: flow.as_tensor(np.zeros(2, np.uint16)), DTypeError, "dtype uint16 is not supported"),
    (lambda: flow.from_numpy(np.array(["a"])), DTypeError, "dtype <U1 is not supported"),
    (lambda: flow.from_numpy(np.array([{}])), DTypeError, "dtype object is not supported"),
    (lambda: flow.from_numpy([1, 2]), DTypeError, "from_numpy: got list; expected a NumPy array, or use flow.tensor"),
    (lambda: flow.tensor([2**63]), DTypeError, "dtype uint64 is not supported"),
    (lambda: flow.arange("3"), TypeError, "arange: got start=0, end='3' and step=1; expected numbers"),
    (
        lambda: flow.tensor([300], dtype=flow.uint8),
        DTypeError,
        "tensor: got values that do not fit into miniflow.uint8",
    ),
    (lambda: flow.tensor([-1], dtype=flow.uint8), DTypeError, "do not fit into miniflow.uint8; expected a wider dtype"),
    (lambda: flow.tensor([math.nan], dtype=flow.int64), DTypeError, "do not fit into miniflow.int64"),
    (lambda: flow.zeros(2, -1), ShapeError, r"zeros: got sizes \(2, -1\); expected sizes of at least 0"),
    (lambda: flow.ones(2.0), DTypeError, r"ones: got sizes \(2.0,\); expected integers"),
    (lambda: flow.empty("2"), DTypeError, "empty: got sizes .* expected integers"),
    (lambda: flow.full(3, 1.0), DTypeError, r"full: got size=3; expected a sequence of integers such as \(3,\)"),
    (
        lambda: flow.full((2,), 300, dtype=flow.uint8),
        DTypeError,
        "full: got the value 300, which miniflow.uint8 cannot hold; expected one from 0 to 255",
    ),
    (lambda: flow.full((2,), "x"), DTypeError, "'x' of type str"),
    (lambda: flow.arange(0, 1, 0), ArgumentError, "arange: got start=0, end=1, step=0; expected .* nonzero step"),
    (lambda: flow.arange(1, 0), ArgumentError, "arange: got start=1, end=0, step=1"),
    (lambda: flow.arange(0, math.inf), ArgumentError, "end=inf"),
    (lambda: flow.linspace(0, 1, -1), ArgumentError, "linspace: got steps=-1; expected at least 0"),
    (lambda: flow.logspace(0, 1, -1), ArgumentError, "logspace: got steps=-1"),
    (lambda: flow.eye(-1), ShapeError, "eye: got sizes"),
    (lambda: flow.zeros(2, device="gpu"), RuntimeError, "'gpu' does not exist; expected 'cpu', 'cuda'"),
]


@pytest.mark.cpu_only("arguments are checked before a kernel is chosen")
def test_errors():
    for action, error, message in ERRORS:
        with pytest.raises(error, match=message):
            action()


@pytest.mark.parametrize("kind", [collections.deque, lambda x: array.array("d", x)], ids=["deque", "array"])
def test_sequences_of_other_kinds(kind):
    for data in (kind([1.0, 2.0]), [kind([1.0, 2.0])]):
        assert flow.tensor(data).dtype is flow.float32
    assert flow.tensor(kind([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_dtypes_of_pythons_types_and_of_the_class():
    assert flow.zeros(1, dtype=float).dtype is flow.float64 and flow.ones(1).to(float).dtype is flow.float64
    flow.set_default_dtype(flow.float64)
    try:
        assert flow.Tensor([1.0]).dtype is flow.Tensor(2, 2).dtype is flow.arange(3.0).dtype is flow.float64
    finally:
        flow.set_default_dtype(flow.float32)
    x = flow.ones(2, dtype=flow.float64)
    assert x.new(2, 3).dtype is x.new([1.0]).dtype is flow.float64 and x.new(2, 3).shape == (2, 3)
    large = 2**24 + 1  # which float32 cannot hold
    assert flow.ones(1, dtype=flow.int64).new([large]).tolist() == [large]
