"""Collectives of local tensors: where ranks are simulated all of them hold the same; `test_ranks` has others."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow.errors import ArgumentError, DTypeError, PlacementError, ShapeError

A = np.arange(8, dtype=np.float32)


def test_reductions(four_ranks):
    x = flow.tensor(A)
    flow.comm.all_reduce(x)
    assert_same(x, A * 4)
    flow.comm.reduce(x, 2)
    assert_same(x, A * 16)
    y = flow.zeros(2)
    flow.comm.reduce_scatter(y, [flow.tensor(A[:2]) for _ in range(4)])
    assert_same(y, A[:2] * 4)
    flow.comm.reduce_scatter_tensor(y, flow.tensor(A))
    assert_same(y, A[:2] * 4)


@pytest.mark.parametrize("dtype", [flow.float32, flow.float16, flow.bfloat16, flow.int64])
def test_other_reductions(dtype, four_ranks):
    """Where ranks are simulated all of them hold the same."""
    ops, x = flow.distributed.ReduceOp, flow.tensor([-1, 0, 2], dtype=dtype)
    for op, want in ((ops.PRODUCT, [1, 0, 16]), (ops.MIN, [-1, 0, 2]), (ops.MAX, [-1, 0, 2]), (ops.AVG, [-1, 0, 2])):
        if op is ops.AVG and dtype is flow.int64:
            with pytest.raises(DTypeError, match="expected a floating dtype"):
                flow.comm.all_reduce(x, op)
            continue
        y, z, whole = x.clone(), flow.zeros(3, dtype=dtype), flow.cat([x] * 4)
        flow.comm.all_reduce(y, op)
        assert y.tolist() == want
        y = x.clone()
        flow.comm.reduce(y, 1, op)
        assert y.tolist() == want
        flow.comm.reduce_scatter_tensor(z, whole, op=op)
        assert z.tolist() == want
        flow.comm.reduce_scatter(z.zero_(), [x] * 4, op)
        assert z.tolist() == want


def test_reductions_on_devices(four_ranks):
    x = flow.tensor(A[1:4], device="cuda")
    flow.comm.all_reduce(x, flow.distributed.ReduceOp.PRODUCT)
    assert x.tolist() == [1, 16, 81]


def test_gathers(four_ranks):
    parts = [flow.zeros(8) for _ in range(4)]
    flow.comm.all_gather(parts, flow.tensor(A))
    assert all(np.array_equal(x.numpy(), A) for x in parts)
    whole = flow.zeros(32)
    flow.comm.all_gather_into_tensor(whole, flow.tensor(A))
    assert_same(whole, np.tile(A, 4))
    flow.comm.gather(flow.tensor(A + 1), parts, dst=1)
    assert all(np.array_equal(x.numpy(), A + 1) for x in parts)


def test_scatter_broadcast_and_all_to_all(four_ranks):
    x = flow.zeros(8)
    flow.comm.scatter(x, [flow.tensor(A + i) for i in range(4)], src=2)
    assert_same(x, A)  # that of rank 0
    flow.comm.broadcast(x, 3)
    assert_same(x, A)
    parts = [flow.zeros(8) for _ in range(4)]
    flow.comm.all_to_all(parts, [flow.tensor(A + i) for i in range(4)])
    assert all(np.array_equal(y.numpy(), A) for y in parts)
    flow.comm.barrier()


@pytest.mark.parametrize("dtype, eps", [(flow.float16, 2**-10), (flow.bfloat16, 2**-7)])
def test_half_precision_is_summed_in_float32(four_ranks, dtype, eps):
    """1 + eps/2 would be rounded to 1, and then again."""
    flow.parallel.simulate(3)
    everyone = flow.placement.all("cpu")
    x = flow.tensor([1.0, eps / 2, eps / 2], dtype=dtype, placement=everyone, sbp=flow.sbp.split(0)).sum()
    assert x.sbp == (flow.sbp.partial_sum,)
    assert x.item() == 1 + eps


def test_distributed_has_the_same_functions(four_ranks):
    assert flow.distributed.all_reduce is flow.comm.all_reduce
    assert flow.distributed.get_world_size() == flow.env.get_world_size() == 4
    assert flow.distributed.get_rank() == flow.env.get_rank() == flow.env.get_local_rank() == 0
    assert flow.framework.distribute.get_rank is flow.env.get_rank
    assert flow.distributed.is_available() and flow.distributed.is_initialized() and flow.env.get_node_size() == 1


WRONG = {
    "global": (lambda x: flow.comm.all_reduce(x.to_global(flow.placement.all("cpu"), flow.sbp.broadcast)),
               PlacementError, "expected a local one"),
    "list": (lambda x: flow.comm.all_gather([x], x), ArgumentError, "one for each of the 4 ranks"),
    "rank": (lambda x: flow.comm.broadcast(x, 4), ArgumentError, "src=4"),
    "shape": (lambda x: flow.comm.all_gather_into_tensor(x, x), ShapeError, "values of shape"),
    "dtype": (lambda x: flow.comm.all_gather([x.int()] * 4, x), DTypeError, "values of float32"),
    "divided": (lambda x: flow.comm.reduce_scatter_tensor(x, flow.zeros(7)), ShapeError, "divided by 4"),
    "shapes": (lambda x: flow.comm.reduce_scatter(x, [flow.zeros(2)] * 4), ShapeError, "the shape of output"),
    "dtypes": (lambda x: flow.comm.reduce_scatter(x, [x, x, x, x.int()]), DTypeError, "one dtype"),
    "all_to_all": (lambda x: flow.comm.all_to_all([x] * 4, [x, x, x, x.int()]), DTypeError, "one dtype"),
    "op": (lambda x: flow.comm.all_reduce(x, "max"), ArgumentError, "ReduceOp.SUM, AVG"),
    "send": (lambda x: flow.comm.send(x, 1), PlacementError, "simulated"),
    "recv": (lambda x: flow.comm.recv(1), PlacementError, "simulated"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, four_ranks):
    function, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        function(flow.tensor(A))
