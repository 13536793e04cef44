"""Collation of every kind of sample."""

from collections import OrderedDict, namedtuple

import ml_dtypes
import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import DTypeError, ShapeError
from miniflow.utils.data import default_collate, default_convert

Pair = namedtuple("Pair", "x y")
KINDS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_]


def assert_tensor(result, expected, dtype=None):
    assert isinstance(result, flow.Tensor)
    assert result.numpy().dtype == (dtype or expected.dtype) and result.shape == expected.shape
    np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("shape", [(3, 2), (), (0,)])
def test_tensors_and_arrays(kind, shape):
    stacked = np.random.default_rng(0).integers(0, 2, (4, *shape)).astype(kind)
    assert_tensor(default_collate([flow.from_numpy(stacked[i, ...]) for i in range(4)]), stacked)
    assert_tensor(default_collate([stacked[i, ...] for i in range(4)]), stacked)


def test_the_batch_is_fresh_memory_without_history():
    sample = flow.tensor([1.0, 2.0], requires_grad=True)
    batch = default_collate([sample])
    assert not batch.requires_grad
    batch.numpy()[...] = 0
    assert sample.tolist() == [1.0, 2.0]
    reverse = np.arange(6).reshape(2, 3).T[::-1]
    assert_tensor(default_collate([reverse, reverse]), np.stack([reverse, reverse]))


def test_tensors_stay_where_they_are():
    on_device = default_collate([flow.ones(2, device="cuda"), flow.zeros(2, device="cuda")])
    assert on_device.device.type == "cuda" and on_device.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    x = flow.ones(2, placement=flow.placement("cpu", [0]), sbp=flow.sbp.broadcast)
    assert default_collate([x, x]).is_global


def test_scalars():
    assert_tensor(default_collate([1, 2]), np.array([1, 2]), np.int64)
    assert_tensor(default_collate([0.5, 1.0]), np.array([0.5, 1.0]), np.float64)
    assert_tensor(default_collate([True, False]), np.array([True, False]), np.bool_)
    assert_tensor(default_collate([np.float32(1), np.float32(2)]), np.array([1, 2]), np.float32)
    assert_tensor(default_collate([np.int32(1)]), np.array([1]), np.int32)
    assert_tensor(default_collate([np.bool_(True)]), np.array([True]), np.bool_)


def test_structures():
    assert default_collate(["a", "b"]) == ["a", "b"] and default_collate([b"a"]) == [b"a"]
    result = default_collate([{"x": np.zeros(2), "y": ("a", 1)}, {"y": ("b", 2), "x": np.ones(2)}])
    assert list(result) == ["x", "y"] and result["y"][0] == ["a", "b"] and type(result["y"]) is list
    assert_tensor(result["x"], np.array([[0.0, 0], [1, 1]]))
    assert_tensor(result["y"][1], np.array([1, 2]))
    assert type(default_collate([OrderedDict(a=1)])) is OrderedDict
    pair = default_collate([Pair(1, "a"), Pair(2, "b")])
    assert type(pair) is Pair and pair.y == ["a", "b"]
    assert_tensor(pair.x, np.array([1, 2]))
    assert type(default_collate([[1, 2.0], [3, 4.0]])) is list


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        ([np.zeros(2), np.zeros(3)], ShapeError, r"samples of shapes \[\(2,\), \(3,\)\].*collate_fn"),
        ([(1, 2), (1, 2, 3)], ShapeError, r"samples of lengths \[2, 3\].*collate_fn"),
        ([{"a": 1}, {"b": 1}], KeyError, "a"),
        ([], ShapeError, "empty batch"),
        ([None], DTypeError, "samples of type NoneType; expected tensors.*collate_fn"),
        ([{"a": {1, 2}}], DTypeError, "samples of type set"),
        ([np.zeros(2, np.complex64)], DTypeError, "complex64 is not supported"),
        ([np.array(["a"])], DTypeError, "<U1 is not supported"),
    ],
)
def test_refusals(batch, error, words):
    with pytest.raises(error, match=words):
        default_collate(batch)


def test_convert():
    array = np.arange(3)
    sample = {"a": array, "b": [np.float32(2), "text", 1, None], "c": Pair(array, (array,))}
    result = default_convert(sample)
    assert_tensor(result["a"], array)
    assert_tensor(result["b"][0], np.array(2), np.float32)
    assert result["b"][1:] == ["text", 1, None] and type(result["c"]) is Pair and type(result["c"].y) is tuple
    assert_tensor(result["c"].y[0], array)
    result["a"].numpy()[0] = 5
    assert array[0] == 5
    strings = np.array(["a"])
    assert default_convert(strings) is strings
