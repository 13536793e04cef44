"""Element types: names, sizes, conversion from NumPy and Python, promotion."""

import itertools
import pickle

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow.dtype import ALL, as_dtype, can_cast, of_scalar, result_dtype
from miniflow.errors import DTypeError

NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.fixture
def default_dtype():
    """Put the default dtype back after a test that changes it."""
    before = flow.get_default_dtype()
    yield before
    flow.set_default_dtype(before)


METHODS = ["bool", "byte", "char", "short", "int", "long", "half", "bfloat16", "float", "double"]


@pytest.mark.parametrize(("method", "name"), zip(METHODS, NAMES, strict=True))
def test_methods_named_as_dtypes_cast(method, name):
    y = getattr(flow.tensor([0.0, 1.0]), method)()
    assert y.dtype is getattr(flow, name) and y.tolist() == [0, 1]


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_is_there_once(name):
    kind = getattr(flow, name)
    assert repr(kind) == f"miniflow.{name}"
    assert flow.dtype.from_numpy(kind.numpy) is kind
    assert as_dtype(kind.numpy) is as_dtype(kind) is kind
    assert flow.zeros(2, dtype=kind).dtype is kind
    assert kind.itemsize == flow.zeros(2, dtype=kind).element_size() == np.dtype(kind.numpy).itemsize
    assert kind.is_floating_point == ("float" in name)
    assert kind.is_signed == (name not in ("bool", "uint8"))


def test_the_list_is_complete():
    assert [kind.name for kind in ALL] == NAMES
    assert len({hash(kind) for kind in ALL}) == len(ALL)


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_pickling_gives_the_same_object(kind):
    assert pickle.loads(pickle.dumps(kind)) is kind


@pytest.mark.parametrize(("python", "expected"), [(bool, "bool"), (int, "int64"), (float, "float64")])
def test_python_types(python, expected):
    assert as_dtype(python) is getattr(flow, expected)
    assert flow.tensor([1, 0], dtype=python).dtype is getattr(flow, expected)


@pytest.mark.parametrize("foreign", [np.complex64, np.uint32, "U3", object, np.datetime64])
def test_dtypes_that_tensors_cannot_hold(foreign):
    with pytest.raises(DTypeError, match="is not supported; expected one of bool, uint8.*astype"):
        as_dtype(foreign)


@pytest.mark.parametrize("foreign", [np.zeros(2, np.complex128), np.array(["a"]), np.array([None])])
def test_arrays_that_tensors_cannot_hold(foreign):
    for make in (flow.tensor, flow.from_numpy, flow.as_tensor):
        with pytest.raises(DTypeError):
            make(foreign)


def test_dtypes_of_numbers():
    assert of_scalar(True) is flow.bool and of_scalar(np.bool_(False)) is flow.bool
    assert of_scalar(3) is flow.int64 and of_scalar(np.int8(3)) is flow.int64
    assert of_scalar(3.0) is flow.float32 and of_scalar(np.float64(3)) is flow.float32
    with pytest.raises(DTypeError, match="expected a Tensor or a Python bool, int or float"):
        of_scalar("3")


def test_the_default_dtype(default_dtype):
    flow.set_default_dtype(flow.float64)
    assert flow.tensor(1.5).dtype is flow.ones(2).dtype is flow.float64
    assert (flow.tensor([1, 2]) / 2).dtype is flow.float64
    assert flow.exp(flow.tensor([1])).dtype is flow.float64
    with pytest.raises(DTypeError, match="expected a floating dtype"):
        flow.set_default_dtype(flow.int32)
    assert flow.get_default_dtype() is flow.float64
    assert default_dtype is flow.float32


def test_promotion_is_a_join():
    """Symmetric and idempotent, and the result holds both operands' categories. (Not associative: as in PyTorch.)"""
    for a, b in itertools.product(ALL, ALL):
        joined = flow.promote_types(a, b)
        assert joined is flow.promote_types(b, a)
        assert joined.category == max(a.category, b.category)
        assert flow.promote_types(a, joined) is joined
    assert all(flow.promote_types(a, a) is a for a in ALL)


def test_weak_operands_only_count_by_category():
    assert result_dtype([flow.float16], [flow.float64], []) is flow.float16
    assert result_dtype([flow.int8], [flow.float64], [flow.float32]) is flow.float64
    assert result_dtype([flow.bool], [], [flow.int64]) is flow.int64
    assert result_dtype([], [flow.int8], [flow.int64]) is flow.int8


def test_in_place_results_never_lose_their_category():
    for source, target in itertools.product(ALL, ALL):
        assert can_cast(source, target) == (source.category <= target.category)


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", NAMES)
def test_casts_keep_small_whole_numbers(source, target):
    values = np.array([[0, 1], [1, 0]])
    x = flow.tensor(values, dtype=getattr(flow, source))
    y = x.to(getattr(flow, target))
    assert_same(y, values.astype(getattr(flow, target).numpy))
    assert (y is x) == (source == target)


def test_casts_cut_towards_zero():
    assert flow.tensor([1.9, -1.9, 0.5]).int().tolist() == [1, -1, 0]
    assert flow.tensor([0.0, 0.5, -2.0]).bool().tolist() == [False, True, True]


def test_bfloat16_rounds_to_even():
    x = flow.tensor([1.0 + 2**-8, 1.0 + 3 * 2**-8, 256.0 + 1.0], dtype=flow.bfloat16)
    assert x.float().tolist() == [1.0, 1.0 + 2**-6, 256.0]


METHODS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32"}
METHODS |= {"long": "int64", "bool": "bool", "byte": "uint8"}


@pytest.mark.parametrize("method", METHODS)
def test_cast_methods(method):
    assert_same(getattr(flow.tensor([1.0, 0.0]), method)(), np.array([1, 0], getattr(flow, METHODS[method]).numpy))


def test_to_takes_dtypes_devices_and_tensors():
    assert flow.ones(2).to(flow.float64, True).dtype is flow.float64  # non_blocking
    x, like = flow.tensor([1, 2]), flow.zeros(1, dtype=flow.float64)
    for y in (x.to(flow.float64), x.to("cpu", flow.float64), x.to(dtype=flow.float64), x.to(like), x.type_as(like)):
        assert_same(y, np.array([1.0, 2.0]))
    assert x.to("cpu") is x and x.to(flow.device("cpu"), flow.int64) is x
    copied = x.to(flow.int64, copy=True)
    assert copied is not x and copied.data_ptr() != x.data_ptr()


def test_gradients_pass_through_casts():
    x = flow.tensor([1.0, 2.0], dtype=flow.float64, requires_grad=True)
    (x.float() * flow.tensor([3.0, 4.0])).sum().backward()
    assert_same(x.grad, np.array([3.0, 4.0]))
    assert not x.int().requires_grad
