"""What programs use of `torch.distributed`, on three MPI ranks that hold different values."""

import functools
import warnings

import numpy as np

import miniflow as flow
import miniflow.distributed as dist
from miniflow.errors import ArgumentTypeError, DataError, DTypeError, ShapeError

rank, size = dist.get_rank(), dist.get_world_size()


def full(value, *shape, **options):
    return flow.full(shape or (2,), float(value), **options)


def groups():
    pair, single = dist.new_group([2, 0]), dist.new_group([rank])
    assert pair.ranks == (0, 2) and dist.get_world_size(pair) == 2 and dist.get_rank(pair) == [0, -1, 1][rank]
    assert dist.group.WORLD.size() == 3
    x = full(rank + 1)
    if rank == 1:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert dist.all_reduce(x, group=pair) is None
        assert "rank 1 is not in the group [0, 2] and does nothing" in str(caught[0].message)
        assert x.tolist() == [2, 2]
    else:
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [4, 4]
        parts = [full(0), full(0)]
        dist.all_gather(parts, full(rank), group=pair)
        assert [p.tolist() for p in parts] == [[0, 0], [2, 2]]
        dist.broadcast(x, 2, group=pair)
        y, z = full(0), full(rank + 5)
        dist.scatter(y, [full(7), full(8)] if rank == 2 else None, src=2, group=pair)
        assert y.tolist() == [[7, 7], None, [8, 8]][rank]
        dist.reduce(z, 2, dist.ReduceOp.AVG, group=pair)
        assert z.tolist() == [[5, 5], None, [6, 6]][rank]
        found = [full(0), full(0)] if rank == 0 else None
        dist.gather(full(rank), found, dst=0, group=pair)
        assert found is None or [p.tolist() for p in found] == [[0, 0], [2, 2]]
        out = [full(0), full(0)]
        dist.all_to_all(out, [full(10 * rank), full(10 * rank + 1)], group=pair)
        assert [p.tolist()[0] for p in out] == [[0, 20], None, [1, 21]][rank]
        part, whole = full(0, 1), full(0, 4)
        dist.reduce_scatter_tensor(part, flow.arange(2.0) + rank, group=pair)
        assert part.tolist() == [[2], None, [4]][rank]
        dist.reduce_scatter(part, [full(rank, 1), full(rank + 1, 1)], dist.ReduceOp.MAX, group=pair)
        assert part.tolist() == [[2], None, [3]][rank]
        dist.all_gather_into_tensor(whole, full(rank), group=pair)
        assert whole.tolist() == [0, 0, 2, 2]
        dist.barrier(pair)
    y = full(rank)
    dist.all_reduce(y, group=single)
    assert y.tolist() == [rank, rank]


def operations():
    bits = flow.tensor([1 << rank, 3], dtype=flow.int64)
    for op, want in ((dist.ReduceOp.BOR, [7, 3]), (dist.ReduceOp.BAND, [0, 3]), (dist.ReduceOp.BXOR, [7, 3])):
        x = bits.clone()
        dist.all_reduce(x, op)
        assert x.tolist() == want
    refused(DTypeError, "expected integers or bool", lambda: dist.all_reduce(full(1), dist.ReduceOp.BOR))


def refused(error, words, function):
    try:
        function()
    except error as found:
        assert words in str(found), found
    else:
        raise AssertionError(f"not refused: {words}")


def asynchronous():
    """Several at once, between other collectives, waited for in another order on each rank."""
    tensors = [full(rank + i, 1000 * i + 1) for i in range(6)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    y = full(rank)
    dist.all_reduce(y, dist.ReduceOp.MAX)
    assert y.tolist() == [2, 2]
    z, parts = full(rank), [full(0) for _ in range(size)]
    works += [dist.broadcast(z, 1, async_op=True), dist.all_gather(parts, full(rank), async_op=True)]
    works.append(dist.barrier(async_op=True))
    if rank == 1:
        while not all(work.is_completed() for work in works):
            pass
    for work in works[:: 1 if rank else -1]:
        assert work.wait() and work.is_completed()
    for i, x in enumerate(tensors):
        assert x.tolist() == [3 + 3 * i] * (1000 * i + 1)
    assert z.tolist() == [1, 1] and [p.tolist() for p in parts] == [[r, r] for r in range(size)]


def messages():
    """A ring of large ones, both ways at once, with tags that come in another order."""
    after, before = (rank + 1) % size, (rank - 1) % size
    n = 200_000
    a, b = flow.zeros(n), flow.zeros(n)
    sent = [dist.isend(full(rank, n), after, tag=1), dist.isend(full(rank + 10, n), after, tag=2)]
    received = [dist.irecv(b, before, tag=2), dist.irecv(a, before, tag=1)]
    x = full(rank)
    dist.all_reduce(x)  # takes none of them for its own
    assert x.tolist() == [3, 3]
    for work in (*sent, *received):
        work.wait()
    assert a.tolist() == [before] * n and b.tolist() == [before + 10] * n
    for source in (before, None):  # a test as often as one likes, then a wait, and one more
        x, work = full(-1), dist.isend(full(rank), after, tag=5)
        arrival = dist.irecv(x, source, tag=5)
        while not (work.is_completed() and arrival.is_completed()):
            pass
        assert x.tolist() == [before] * 2
        assert arrival.wait() and arrival.wait() and work.wait() and arrival.is_completed()
        dist.barrier()
    if rank:
        dist.send(full(rank), 0)
        dist.send(full(rank, dtype=flow.float64), 0, tag=3)
        dist.send(full(rank, 3), 0, tag=4)
    else:
        x, found = full(0), {}
        for _ in range(2):
            source = dist.recv(x)
            found[source] = x.tolist()
        assert found == {1: [1, 1], 2: [2, 2]}
        for source in (1, 2):
            wrong = functools.partial(dist.recv, x, source, tag=3)
            refused(DTypeError, f"rank {source} has sent a tensor of miniflow.float64", wrong)
            work = dist.irecv(x, source, tag=4)
            for wait in (work.wait, work.wait, work.is_completed):
                refused(ShapeError, "shape (3,); expected miniflow.float32 and (2,)", wait)
    dist.barrier()


def objects():
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "x": [full(rank)] * rank, "text": "a" * 1000 * rank})
    for r, one in enumerate(found):
        assert (one["rank"], len(one["x"]), len(one["text"])) == (r, r, 1000 * r)
        assert all(x.tolist() == [r, r] for x in one["x"])
    state = [rank, {"a": (rank, None)}]
    dist.broadcast_object_list(state, src=2)
    assert state == [2, {"a": (2, None)}]
    gathered = [None] * size if rank == 1 else None
    dist.gather_object(rank * 1.5, gathered, dst=1)
    assert gathered == ([0.0, 1.5, 3.0] if rank == 1 else None)
    refused(ArgumentTypeError, "never pickled", lambda: dist.all_gather_object([None] * size, {"f": print}))


def training(join, batches, by_initial=True):
    """Weights after SGD on a linear layer, each rank with its own number of batches; and those by the formula."""
    flow.manual_seed(rank)
    layer = flow.nn.Sequential(flow.nn.Linear(3, 1, bias=False), flow.nn.BatchNorm1d(1, affine=False).eval()).double()
    model = flow.nn.parallel.DistributedDataParallel(layer)
    weight = model[0].weight.detach().numpy().copy()
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
    data = np.random.default_rng(0).normal(size=(size, max(batches), 4, 3))
    with model.join(divide_by_initial_world_size=by_initial, **join):
        for x in data[rank, : batches[rank]]:
            optimizer.zero_grad()
            model(flow.tensor(x)).pow(2).sum().backward()
            optimizer.step()
    for step in range(max(batches)):
        present = [r for r in range(size) if step < batches[r]]
        x = [data[r, step] / np.sqrt(1 + 1e-5) for r in present]
        gradient = sum(2 * (a @ weight.T).T @ a for a in x) / (size if by_initial else len(present))
        weight = weight - 0.1 * gradient
    np.testing.assert_allclose(model[0].weight.detach().numpy(), weight, rtol=1e-9)


def joining():
    for batches in ([3, 2, 1], [0, 4, 2], [2, 2, 2]):
        training({}, batches)
        training({}, batches, by_initial=False)
    training({"enable": False}, [2, 2, 2])
    refused(DataError, "the ranks [1] have no more batches", lambda: training(
        {"throw_on_early_termination": True}, [2, 1, 2]))  # fmt: skip


def parameters_that_no_rank_uses():
    """They keep their gradients, as with find_unused_parameters=True of PyTorch: AdamW does not move them."""
    layers = flow.nn.ModuleList([flow.nn.Linear(2, 1), flow.nn.Linear(2, 1), flow.nn.Linear(2, 1)])
    layers.forward = lambda x, used: sum(layers[i](x) for i in used)
    model = flow.nn.parallel.DistributedDataParallel(layers, find_unused_parameters=True, bucket_size=4)
    optimizer = flow.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for used in ([[0]] * 3, [[0], [0, 1], [0]], [[0]] * 3):
        optimizer.zero_grad()
        before = [p.detach().clone() for p in layers[2].parameters()]
        model(full(rank + 1, 1, 2), used[rank]).sum().backward()
        assert layers[0].weight.grad.tolist() == [[2, 2]]
        found = layers[1].weight.grad
        assert found is None if used[1] == [0] else np.allclose(found.numpy(), 2 / 3, rtol=1e-6), "of rank 1"
        assert layers[2].weight.grad is None and layers[2].bias.grad is None
        optimizer.step()
        assert all(bool((p == q).all()) for p, q in zip(layers[2].parameters(), before, strict=True))
    optimizer.zero_grad()
    with model.no_sync():
        model(full(rank + 1, 1, 2), [1]).sum().backward()
    model(full(rank + 1, 1, 2), [0]).sum().backward()
    assert layers[1].weight.grad.tolist() == [[2, 2]], "of a forward in no_sync"


def pairs_train():
    pair = dist.new_group([0, 2])
    if rank != 1:
        layer = flow.nn.Linear(2, 1)
        flow.nn.init.constant_(layer.weight, rank)
        model = flow.nn.parallel.DistributedDataParallel(layer, process_group=pair, find_unused_parameters=True)
        assert model.weight.tolist() == [[0, 0]] and model.module is model
        model(full(rank, 1, 2)).sum().backward()
        assert model.weight.grad.tolist() == [[1, 1]]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    assert size == 3 and dist.get_backend() == "mpi"
    for part in (
        groups,
        operations,
        asynchronous,
        messages,
        objects,
        joining,
        parameters_that_no_rank_uses,
        pairs_train,
    ):
        part()
    dist.destroy_process_group()
    print("right")
