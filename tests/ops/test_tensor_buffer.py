"""Tensors whose elements are arrays of different shapes."""

import copy
import pickle

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import CheckpointError, DTypeError, GraphTraceError, ShapeError

ARRAYS = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4), np.array(7), np.zeros((0, 2), np.int8)]
VALUES = [array.tolist() for array in ARRAYS]


def buffer():
    return flow.tensor_list_to_tensor_buffer(ARRAYS)


def assert_holds(x, arrays):
    """That the elements of a tensor are these arrays."""
    assert x.dtype is flow.tensor_buffer and len(x.numpy()) == len(arrays) == x.numel()
    for got, want in zip(x.numpy(), arrays, strict=True):
        np.testing.assert_array_equal(got, want, strict=True)


def test_tensor_to_tensor_buffer_and_back():
    values = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    for instance_dims in range(4):
        x = flow.tensor(values)
        y = flow.tensor_to_tensor_buffer(x, instance_dims)
        outer, inner = values.shape[: 4 - instance_dims], values.shape[4 - instance_dims :]
        assert y.shape == outer
        assert_holds(y, list(values.reshape(-1, *inner)))
        x.zero_()  # it is a copy
        back = flow.tensor_buffer_to_tensor(y, dtype=flow.float64, instance_shape=inner)
        assert back.shape == values.shape and np.array_equal(back.numpy(), values) and back.dtype is flow.float64
    assert flow.tensor_to_tensor_buffer(flow.ones(0, 3), 1).shape == (0,)


def test_gen_tensor_buffer():
    x = flow.gen_tensor_buffer((2, 2), [(1,), (2, 3), (), (0, 4)], [1.0, -2.0, 3.0, 4.0], flow.int32)
    assert x.shape == (2, 2)
    want = [
        np.full(shape, value, np.int32) for shape, value in zip([(1,), (2, 3), (), (0, 4)], [1, -2, 3, 4], strict=True)
    ]
    assert_holds(x, want)
    with pytest.raises(ShapeError, match=r"got 1 shapes and 2 values for shape \(2,\); expected 2 of both"):
        flow.gen_tensor_buffer((2,), [(1,)], [0.0, 1.0])


def test_lists():
    x = buffer()
    assert_holds(x, ARRAYS)
    x.numpy()[1][0] = 5  # the memory of the tensor, not of the array that it was made from
    assert x.tolist()[1][0] == 5 and ARRAYS[1][0] == 1
    parts = flow.tensor_buffer_to_list_of_tensors(buffer())
    assert [part.tolist() for part in parts] == VALUES and parts[3].dtype is flow.int8
    (row,) = flow.tensor_buffer_to_list_of_tensors(x[:1], out_shapes=[(6,)], out_dtypes=[flow.float32])
    assert row.tolist() == [0, 1, 2, 3, 4, 5]
    for wrong in ({"out_shapes": [(5,)]}, {"out_shapes": []}):
        with pytest.raises(ShapeError, match="tensor_buffer_to_list_of_tensors: got"):
            flow.tensor_buffer_to_list_of_tensors(x[:1], **wrong)
    with pytest.raises(DTypeError, match=r"got array 0 of float32; expected miniflow.int8"):
        flow.tensor_buffer_to_list_of_tensors(x[:1], out_dtypes=[flow.int8])


def test_a_tensor_list_is_one_memory():
    arrays = [np.arange(6).reshape(2, 3), np.arange(4), np.zeros((0, 2), int), np.array(9)]
    x = flow.tensor_list_to_tensor_buffer(arrays)
    y = flow.tensor_buffer_to_tensor_list(x, shape=None, dtype=flow.int64)
    assert y.is_contiguous() and not x.is_contiguous() and not y[::3].is_contiguous()
    assert_holds(y, arrays)
    assert y.numpy()[0].base is y.numpy()[1].base and y.numpy()[0].base.tolist() == [*range(6), *range(4), 9]
    z = flow.tensor_list_to_tensor_buffer(y)
    assert not z.is_contiguous()
    assert_holds(z, arrays)
    with pytest.raises(ShapeError, match=r"got array 0 of shape \(2, 3\); expected at most \(2, 2\)"):
        flow.tensor_buffer_to_tensor_list(x[:1], shape=(2, 2))
    with pytest.raises(DTypeError, match="got array 1 of float64; expected miniflow.float32"):
        flow.tensor_buffer_to_tensor_list(buffer())
    assert flow.tensor_buffer_to_tensor_list(flow.gen_tensor_buffer((0,), [], [])).shape == (0,)


def test_views_and_copies():
    x = buffer()
    assert_holds(x[1:3], ARRAYS[1:3])
    assert_holds(x[-1], ARRAYS[3:])
    assert_holds(x.reshape(2, 2).t(), [ARRAYS[i] for i in (0, 2, 1, 3)])
    assert_holds(x[:1].expand(3), ARRAYS[:1] * 3)
    assert_holds(x.unfold(0, 2, 2), ARRAYS)
    assert x[None].shape == (1, 4) and x.reshape(2, 2).tolist() == [VALUES[:2], VALUES[2:]] and x[2].tolist() == 7
    assert [one.numpy()[0].shape for one in x] == [array.shape for array in ARRAYS] and len(x) == 4
    y = copy.deepcopy(x)
    y.numpy()[0][:] = -1
    assert_holds(x, ARRAYS)
    assert x.detach().type() == "miniflow.BufferTensor" and x.device == flow.device("cpu") and not x.is_floating_point()


def test_printed():
    assert repr(buffer()[:3].reshape(3, 1)) == (
        "tensor([[float32 (2, 3)],\n        [float64 (4,)],\n        [int64 ()]], dtype=miniflow.tensor_buffer)"
    )
    assert repr(buffer()[2]) == "tensor(int64 (), dtype=miniflow.tensor_buffer)"
    assert repr(flow.gen_tensor_buffer((0,), [], [])) == "tensor([], dtype=miniflow.tensor_buffer)"


def graph_of(function):
    class Graph(flow.nn.Graph):
        def build(self, x):
            return function(x)

    return Graph()


X = buffer()
REFUSED = {
    "add": lambda: X + 1,
    "add to a tensor": lambda: flow.ones(4) + X,
    "relu": lambda: X.relu(),
    "sum": lambda: X.sum(),
    "matmul": lambda: flow.ones(4, 4) @ X,
    "where": lambda: flow.where(flow.ones(4) > 0, X, 0.0),
    "compare": lambda: X == X,
    "stack": lambda: flow.stack([X, X]),
    "index": lambda: X[flow.tensor([0, 1])],
    "clone": lambda: X.clone(),
    "cast": lambda: X.float(),
    "cast to it": lambda: flow.ones(2).to(flow.tensor_buffer),
    "move": lambda: X.cuda(),
    "copy": lambda: flow.tensor(X),
    "copy in another dtype": lambda: flow.Tensor(X),
    "factory": lambda: flow.zeros(2, dtype=flow.tensor_buffer),
    "like": lambda: flow.zeros_like(X),
    "fill_": lambda: X.fill_(0),
    "add_": lambda: X.add_(1),
    "setitem": lambda: X.__setitem__(0, 1.0),
    "setitem of a view": lambda: X[1:].__setitem__(0, 1.0),
    "item": lambda: X[0].item(),
    "bool": lambda: bool(X[0]),
    "collate": lambda: flow.utils.data.default_collate([X, X]),
    "to_global": lambda: X.to_global(flow.placement("cpu", [0]), flow.sbp.split(0)),
    "objects": lambda: flow.from_numpy(np.array([None, "a"])),
    "numbers": lambda: flow.tensor_buffer_to_tensor(flow.ones(2), flow.float32, ()),
    "twice": lambda: flow.tensor_to_tensor_buffer(X, 0),
    "another dtype": lambda: flow.tensor_buffer_to_tensor(X[:1], flow.float64, (2, 3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(DTypeError, match="(got|dtype object) .*expected"):
        REFUSED[name]()
    assert X.tolist() == VALUES


def test_refused_in_graphs_and_files(tmp_path):
    message = "got a tensor of tensor_buffer; expected numbers"
    with pytest.raises(GraphTraceError, match=message):
        graph_of(lambda x: x[0])(X)
    with pytest.raises(GraphTraceError, match=message):
        graph_of(lambda x: X[0])(flow.ones(2))
    with pytest.raises(GraphTraceError, match="the values of a tensor cannot be looked at"):
        graph_of(lambda x: flow.tensor_to_tensor_buffer(x, 1))(flow.ones(2, 2))
    with pytest.raises(CheckpointError, match=r"obj\['x'\] is a tensor of tensor_buffer; .* save x.numpy\(\), a list"):
        flow.save({"x": X}, tmp_path / "file")
    with pytest.raises(CheckpointError, match="save: x is a tensor of tensor_buffer"):
        flow.distributed.checkpoint.save({"x": X}, tmp_path / "folder")
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(X)
    flow.save(X.numpy()[:2], tmp_path / "file")
    assert [array.tolist() for array in flow.load(tmp_path / "file")] == VALUES[:2]
    with pytest.raises(ShapeError, match=r"got array 0 of shape \(2, 3\); expected shape \(3, 2\)"):
        flow.tensor_buffer_to_tensor(X[:1], flow.float32, (3, 2))
    with pytest.raises(ShapeError, match=r"got x \(2,\) and instance_dims=1; expected from 0 to 0 dims"):
        flow.tensor_to_tensor_buffer(flow.ones(2), 1)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_of_samples_that_differ_in_shape(num_workers):
    data = [np.full((n, 2), n) for n in range(5)]
    loader = flow.utils.data.DataLoader(data, 2, collate_fn=flow.tensor_list_to_tensor_buffer, num_workers=num_workers)
    batches = list(loader)
    assert len(batches) == 3
    assert_holds(batches[0], data[:2])
    assert_holds(batches[2], data[4:])
    with pytest.raises(DTypeError):
        batches[0].fill_(1)


def test_one_array_in_a_format_string():
    x = flow.tensor_list_to_tensor_buffer([np.ones((1, 2)), np.ones(2)])[0]
    assert f"{x}" == repr(x) and f"{flow.tensor(0.5):.2f}" == "0.50"
