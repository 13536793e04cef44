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


def each(group, x):
    return [x] * flow.env.get_world_size(group)


CALLS = {  # name -> a call with tensors x and y, and what they become on four equal ranks
    "all_reduce": (lambda x, y, g, a: flow.comm.all_reduce(x, group=g, async_op=a), [4, 8], [0, 0]),
    "reduce": (lambda x, y, g, a: flow.comm.reduce(x, 0, group=g, async_op=a), [4, 8], [0, 0]),
    "broadcast": (lambda x, y, g, a: flow.comm.broadcast(x, 2, g, a), [1, 2], [0, 0]),
    "scatter": (lambda x, y, g, a: flow.comm.scatter(y, each(g, x), 0, g, a), [1, 2], [1, 2]),
    "gather": (lambda x, y, g, a: flow.comm.gather(x, each(g, y), 0, g, a), [1, 2], [1, 2]),
    "all_gather": (lambda x, y, g, a: flow.comm.all_gather(each(g, y), x, g, a), [1, 2], [1, 2]),
    "all_to_all": (lambda x, y, g, a: flow.comm.all_to_all(each(g, y), each(g, x), g, a), [1, 2], [1, 2]),
    "reduce_scatter": (lambda x, y, g, a: flow.comm.reduce_scatter(y, each(g, x), group=g, async_op=a), [1, 2], [4, 8]),
    "barrier": (lambda x, y, g, a: flow.comm.barrier(g, a), [1, 2], [0, 0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_work_and_groups(name, four_ranks):
    call, first, second = CALLS[name]
    for ranks in ([0, 1, 2, 3], [2, 0], [1, 2]):
        group = flow.distributed.new_group(ranks)
        for async_op in (False, True):
            x, y = flow.tensor([1.0, 2.0]), flow.zeros(2)
            if name in ("reduce", "scatter", "gather", "broadcast") and 0 not in ranks:
                continue
            if 0 not in ranks:
                with pytest.warns(UserWarning, match=r"rank 0 is not in the group \[1, 2\] and does nothing"):
                    assert call(x, y, group, async_op) is None
                assert x.tolist() == [1, 2] and y.tolist() == [0, 0]
                continue
            work = call(x, y, group, async_op)
            assert (work.wait() and work.is_completed()) if async_op else work is None
            assert [x.tolist(), y.tolist()] == [
                [v if v < 4 else v * len(ranks) / 4 for v in z] for z in (first, second)
            ]


def test_process_groups(four_ranks):
    dist = flow.distributed
    group = dist.new_group([3, 1, 0])
    assert group.ranks == (0, 1, 3) and (dist.get_rank(group), dist.get_world_size(group)) == (0, 3)
    assert dist.group.WORLD.size() == dist.new_group().size() == 4 and dist.new_group([1]).rank() == -1
    assert dist.init_process_group("gloo", rank=0, world_size=4) is None and dist.destroy_process_group() is None
    assert dist.get_backend() == "simulated"
    with pytest.raises(ArgumentError, match="got rank=1; expected 0"):
        dist.init_process_group(rank=1)
    for ranks in ([4], [0, 0], []):
        with pytest.raises(ArgumentError, match="expected each once, of 4"):
            dist.new_group(ranks)
    assert dist.new_group(np.array([2, 0])).ranks == (0, 2)
    with pytest.raises(ArgumentError, match=r"new_group: got ranks=\[0.5\]; expected each once, of 4"):
        dist.new_group([0.5])
    with pytest.raises(ArgumentError, match=r"got src=2; expected one of \[0, 1, 3\]"):
        dist.broadcast(flow.ones(2), 2, group)


def test_objects(four_ranks):
    found, obj = [None] * 4, {"x": flow.ones(2), "rest": (1, [None, "a"], {2: 0.5})}
    flow.distributed.all_gather_object(found, obj)
    for one in found:
        assert_same(one.pop("x"), np.ones(2, np.float32))
        assert one == {"rest": obj["rest"]}
    with pytest.raises(ArgumentError, match="got a list of 3 objects; expected 4"):
        flow.distributed.all_gather_object([0] * 3, 1)
    state = [1, "b"]
    flow.distributed.broadcast_object_list(state, 3)
    assert state == [1, "b"]
    pair, gathered = flow.distributed.new_group([0, 2]), [None] * 2
    flow.distributed.gather_object({"a": 1}, gathered, 2, pair)
    assert gathered == [{"a": 1}] * 2
    for group, expected in ((None, "a rank below 4"), (pair, r"one of \[0, 2\]")):
        with pytest.raises(ArgumentError, match=f"gather_object: got dst=9; expected {expected}"):
            flow.distributed.gather_object(1, [None] * 4, 9, group)
        with pytest.raises(ArgumentError, match=f"broadcast_object_list: got src=9; expected {expected}"):
            flow.distributed.broadcast_object_list([1], 9, group)


def test_objects_are_sent_where_they_are_needed(four_ranks):
    n, big = 10**6, np.zeros(10**6, np.uint8)

    def sent(call):
        before = sum(flow.parallel.stats().values())
        call()
        return sum(flow.parallel.stats().values()) - before

    assert 3 * n < sent(lambda: flow.distributed.broadcast_object_list([big])) < 3.1 * n
    assert 3 * n < sent(lambda: flow.distributed.gather_object(big, [None] * 4)) < 3.1 * n


def test_outputs_in_one_tensor_are_joined_or_stacked(four_ranks):
    """(shape of the input, shapes that the output may have)"""
    gather, scatter = flow.comm.all_gather_into_tensor, flow.comm.reduce_scatter_tensor
    for shape, outputs in (((2, 3), [(8, 3), (4, 2, 3)]), ((2, 0), [(8, 0), (4, 2, 0)]), ((), [(4,)])):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for output in outputs:
            y = flow.zeros(output)
            gather(y, flow.tensor(x))
            assert_same(y, np.stack([x] * 4).reshape(output))
    for shape, outputs in (((8, 3), [(2, 3)]), ((4, 3), [(1, 3), (3,)]), ((4,), [(1,), ()]), ((4, 0), [(1, 0), (0,)])):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for output in outputs:
            y = flow.zeros(output)
            scatter(y, flow.tensor(x))
            assert_same(y, 4 * x[: len(x) // 4].reshape(output))
    with pytest.raises(
        ShapeError, match=r"reduce_scatter_tensor: got a tensor of shape \(3,\) for values of shape \(2,\)"
    ):
        scatter(flow.zeros(3), flow.arange(8.0))
    with pytest.raises(ShapeError, match=r"into_tensor: got a tensor of shape \(2, 4\) for .* \(8,\) or \(4, 2\)"):
        gather(flow.zeros(2, 4), flow.zeros(2))
    with pytest.raises(DTypeError, match=r"all_gather_into_tensor: got a tensor of miniflow.float64 for values of flo"):
        gather(flow.zeros(8, dtype=flow.float64), flow.zeros(2))


def test_bitwise_reductions(four_ranks):
    ops = flow.distributed.ReduceOp
    for op, want in ((ops.BAND, [5, 0]), (ops.BOR, [5, 0]), (ops.BXOR, [0, 0])):
        x = flow.tensor([5, 0])
        flow.comm.all_reduce(x, op)
        assert x.tolist() == want


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
    "bits": (lambda x: flow.comm.all_reduce(x, flow.distributed.ReduceOp.BOR), DTypeError, "integers or bool"),
    "isend": (lambda x: flow.distributed.isend(x, 1), PlacementError, "simulated"),
    "irecv": (lambda x: flow.distributed.irecv(x, 1), PlacementError, "simulated"),
    "send": (lambda x: flow.comm.send(x, 1), PlacementError, "simulated"),
    "recv": (lambda x: flow.comm.recv(1), PlacementError, "simulated"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, four_ranks):
    function, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        function(flow.tensor(A))


def test_the_sum_over_ranks_as_a_layer(four_ranks):
    x = flow.tensor(A, requires_grad=True)
    for conf, n in ((None, 4), ('device_tag: "cpu" device_name: "0:0-2"', 3), ('device_name: "0:gpu:0"', 1)):
        x.grad = None
        y = flow.nn.AllReduce(conf)(x)
        assert_same(y, n * A)
        y.backward(flow.tensor(A))
        assert_same(x.grad, n * A)
    with pytest.raises(ArgumentError, match="AllReduce: got parallel_conf_str='all'; expected machines and their"):
        flow.nn.AllReduce("all")
    with pytest.raises(ArgumentError, match="expected each once, of 4"):
        flow.nn.AllReduce('device_name: "0:2-5"')
