"""Embedding against NumPy's indexing and `np.add.at`."""

import checks
import numpy as np
import pytest

import miniflow as flow
from miniflow.backends.cpu.threads import SHARED_FROM
from miniflow.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from miniflow.ops.embedding import embedding

draw = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(4, 3), (9,), (2, 2, 3), ()], ids=str)
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
def test_values_and_gradients(shape, kind):
    checks.check_op(
        embedding,
        [draw.integers(0, 4, shape).astype(kind), draw.normal(size=(4, 3))],
        lambda indices, weight: weight[indices],
        dtypes=("float16", "bfloat16", "float32", "float64"),
        gradient="sparse",
    )


@pytest.mark.parametrize("padding", [1, -3])
def test_padding_row_gets_no_gradient_of_any_order(padding):
    indices, weight = np.array([[0, 1], [1, 3]]), draw.normal(size=(4, 3))
    table = flow.tensor(weight, requires_grad=True)
    y = embedding(flow.tensor(indices), table, padding_idx=padding)
    checks.assert_same(y, weight[indices])
    cotangent = flow.tensor(draw.normal(size=y.shape), requires_grad=True)
    (gradient,) = flow.autograd.grad(y, table, cotangent, create_graph=True)
    expected = np.zeros_like(weight)
    np.add.at(expected, indices, cotangent.detach().cpu().numpy())
    expected[1] = 0
    checks.assert_close(gradient, expected)
    second = draw.normal(size=weight.shape)
    (back,) = flow.autograd.grad(gradient, cotangent, flow.tensor(second))
    checks.assert_close(back, second[indices] * (indices != 1)[..., None])


@pytest.mark.parametrize("width", [1, 8, 65])
@pytest.mark.parametrize("size", [500, SHARED_FROM // 8 + 1])
def test_repeated_rows_add_up_the_same_every_time(width, size):
    indices = draw.integers(0, 37, size)
    cotangent = draw.normal(size=(size, width)).astype(np.float32)
    expected = np.zeros((37, width))
    np.add.at(expected, indices, cotangent.astype(np.float64))
    results = []
    for _ in range(3):
        table = flow.zeros(37, width, requires_grad=True)
        embedding(flow.tensor(indices), table).backward(flow.tensor(cotangent))
        results.append(table.grad.cpu().numpy())
    checks.assert_close(results[0], expected.astype(np.float32), rtol=1e-4, atol=1e-3)
    if flow.get_default_device().type == "cpu":  # atomics on a cuda device add in whatever order
        checks.assert_same(results[1], results[0])
        checks.assert_same(results[2], results[0])


def test_zero_size():
    table = flow.ones(4, 3, requires_grad=True)
    y = embedding(flow.zeros(2, 0, dtype=flow.int64), table)
    checks.assert_same(y, np.empty((2, 0, 3), np.float32))
    y.sum().backward()
    checks.assert_same(table.grad, np.zeros((4, 3), np.float32))


@pytest.mark.parametrize("offsets", [[0, 3, 2], [0, 5], [0, -1], [1, 2]], ids=str)
def test_offsets_that_are_no_bags(offsets):
    with pytest.raises(ArgumentError, match=r"embedding_bag: got offsets=.* for 4 indices; expected 0 first"):
        flow.nn.functional.embedding_bag(flow.tensor([0, 1, 2, 3]), flow.ones(4, 3), flow.tensor(offsets))


def test_the_last_offset_ends_the_last_bag():
    table = flow.tensor(np.arange(12.0).reshape(4, 3), requires_grad=True)
    indices, offsets = flow.tensor([3, 1, 2, 0]), flow.tensor([0, 1, 3])
    y = flow.nn.functional.embedding_bag(indices, table, offsets, mode="sum", include_last_offset=True)
    checks.assert_same(y, np.array([[9.0, 10.0, 11.0], [9.0, 11.0, 13.0]]))
    y.sum().backward()
    checks.assert_same(table.grad, np.repeat([[0.0], [1.0], [1.0], [1.0]], 3, axis=1))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 0])
def test_bags_without_indices_and_bags_of_equal_length(mode, padding):
    bags, empty = flow.nn.functional.embedding_bag, flow.zeros(2, 0, dtype=flow.int64)
    for indices, offsets in ((empty, None), (empty.reshape(0), flow.tensor([0, 0]))):
        table = flow.ones(4, 3, requires_grad=True)
        y = bags(indices, table, offsets, mode=mode, padding_idx=padding)
        checks.assert_same(y, np.zeros((2, 3), np.float32))
        y.sum().backward()
        checks.assert_same(table.grad, np.zeros((4, 3), np.float32))
    y = bags(flow.tensor([[1], [2]]), table, mode=mode, include_last_offset=True)  # there are no offsets
    checks.assert_same(y, np.ones((2, 3), np.float32))


def test_a_bag_with_nan_is_nan():
    for table in ([[1.0], [np.nan], [np.nan], [4.0]], [[np.nan], [3.0], [np.nan], [4.0]]):
        table = flow.tensor(table, requires_grad=True)
        y = flow.nn.functional.embedding_bag(flow.tensor([0, 1, 2, 3]), table, flow.tensor([0, 3]), mode="max")
        checks.assert_same(y, np.array([[np.nan], [4.0]], np.float32))
        y.backward(flow.tensor([[5.0], [7.0]]))
        first = int(np.isnan(table.detach().cpu().numpy()).argmax())
        checks.assert_same(table.grad, np.float32([[5.0 * (i == first) + 7.0 * (i == 3)] for i in range(4)]))


@pytest.mark.parametrize("bad", [-1, 4])
def test_index_outside_of_the_table(bad):
    with pytest.raises(
        IndexRangeError, match=rf"embedding: index {bad} is out of range .* from 0 to 3: .* num_embeddings"
    ):
        embedding(flow.tensor([[0, 1], [bad, 2]]), flow.zeros(4, 3))


def test_errors():
    table = flow.zeros(4, 3)
    with pytest.raises(
        DTypeError, match=r"embedding: got indices of float32; expected an integer dtype: use input.long"
    ):
        embedding(flow.tensor([1.0]), table)
    with pytest.raises(
        ShapeError, match=r"embedding: got a weight of shape \(4,\); expected \(num_embeddings, embedding_dim\)"
    ):
        embedding(flow.tensor([1]), flow.zeros(4))
    with pytest.raises(IndexRangeError, match="embedding: got padding_idx=4 for a table of 4 rows; expected -4 to 3"):
        embedding(flow.tensor([1]), table, padding_idx=4)
    weights = flow.ones(1, dtype=flow.float64)
    with pytest.raises(DTypeError, match=r"got per_sample_weights of miniflow.float64; expected miniflow.float32"):
        indices = flow.tensor([1]), table, flow.tensor([0])
        flow.nn.functional.embedding_bag(*indices, mode="sum", per_sample_weights=weights)
    with pytest.raises(ArgumentError, match=r"embedding: got max_norm=1.0; expected None"):
        embedding(flow.tensor([1]), table, max_norm=1.0)
