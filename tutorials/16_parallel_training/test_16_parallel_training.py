"""The checks of lesson 16: the product on one device, in float64; collectives and bytes are counted."""

import importlib
from pathlib import Path

import numpy as np
import pytest

import miniflow as flow
from tutorials import drawn, same, same_all

ranks = importlib.import_module("tutorials.16_parallel_training.ranks")
CLOSE = {"rtol": 1e-7, "atol": 1e-10}


def arrays(rng, *shapes):
    return [drawn(rng, *shape, dtype=np.float64) for shape in shapes]


def tensors(some):
    return [flow.tensor(x, requires_grad=True) for x in some]


def network(params, x):
    """relu(x w1 + b1) w2 + b2, by miniflow; all are tensors."""
    w1, b1, w2, b2 = params
    return flow.relu(x @ w1 + b1) @ w2 + b2


def trained(params, batches, lr, momentum):
    """The losses of miniflow's SGD on one device, and the parameters after the last step."""
    params, losses = tensors(params), []
    optimizer = flow.optim.SGD(params, lr=lr, momentum=momentum)
    for x, labels in batches:
        loss = flow.nn.functional.cross_entropy(network(params, flow.tensor(x)), flow.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().numpy() for p in params]


def sent(comms, calls, nbytes, what, hint):
    """Each rank has called these collectives, and all together have sent so many bytes."""
    for comm in comms:
        same(sorted(comm.calls), sorted(calls), f"the collectives of rank {comm.rank} in {what}", hint)
    same(sum(comm.bytes for comm in comms), nbytes, f"the bytes that all ranks send in {what}", hint)


@pytest.mark.task("16.1")
@pytest.mark.parametrize("rows, size", [(8, 4), (7, 3), (3, 4), (5, 1)])
def test_data_parallel(impl, rng, monkeypatch, rows, size):
    params, ((x, labels), *_) = ranks.problem(int(rng.integers(1000)), 5 * rows)
    x, labels, right, seen = x[:rows], labels[:rows], impl.loss_and_gradients, []
    loss, gradients = right(params, x, labels)
    record = lambda p, x, y: (seen.append(len(x)), right(p, x, y))[1]  # noqa: E731
    monkeypatch.setattr(impl, "loss_and_gradients", record)
    got, comms = ranks.run(lambda comm: impl.own_summands(comm, params, x, labels), size)
    what, hint = f"own_summands of {rows} rows, added up over {size} ranks", "how much does a mean of few rows count?"
    same(sum(one for one, _ in got), loss, f"the loss of {what}", hint)
    same_all([sum(x) for x in zip(*(g for _, g in got))], gradients, what, hint, **CLOSE)
    same(sorted(seen), sorted(map(len, np.array_split(x, size))), "the rows that each rank uses", "only its own part")
    sent(comms, [], 0, what, "nothing is to be sent yet")
    results, comms = ranks.run(lambda comm: impl.data_parallel(comm, params, x, labels), size)
    what = f"data_parallel of {rows} rows on {size} ranks"
    for got, found in results:
        same(got, loss, f"the loss of {what}", "add up over the ranks")
        same_all(found, gradients, what, "add up over the ranks", **CLOSE)
    total = 2 * (size - 1) * (8 + sum(g.nbytes for g in gradients))
    sent(comms, ["all_reduce"] * 5, total, what, "one all-reduce for the loss and for each gradient")


@pytest.mark.task("16.2")
@pytest.mark.parametrize(
    "sizes, limit, wanted",
    [
        ([3, 8, 3, 3, 2], 8, [[4, 3, 2], [1], [0]]),
        ([1, 20, 2, 9, 7], 8, [[4], [3], [2], [1], [0]]),
        ([5, 3, 20], 8, [[2], [1, 0]]),
        ([8, 1], 8, [[1], [0]]),
        ([1, 2, 3], 100, [[2, 1, 0]]),
    ],
)
def test_buckets(impl, sizes, limit, wanted):
    got = impl.buckets(sizes, limit)
    same(got, wanted, f"buckets({sizes}, {limit})", "backward begins with the last layer; a group is full at the limit")


@pytest.mark.task("16.2")
@pytest.mark.parametrize("groups", [[[2, 1, 0]], [[2], [1, 0]], [[2], [1], [0]]])
def test_reduce_buckets(impl, rng, groups):
    shapes, size = [(3, 5), (5,), (2, 1, 2)], 3
    summands = [arrays(rng, *shapes) for _ in range(size)]
    results, comms = ranks.run(lambda comm: impl.reduce_buckets(comm, list(summands[comm.rank]), groups), size)
    what = f"reduce_buckets of shapes {shapes} in groups {groups}"
    for got in results:
        same_all(got, [sum(x) for x in zip(*summands)], what, "in the order of the parameters", **CLOSE)
    sent(comms, ["all_reduce"] * len(groups), 2 * (size - 1) * 24 * 8, what, "one message for each group")


@pytest.mark.task("16.2")
def test_finish_time(impl, rng):
    ready, sizes = [5.0, 4.0, 2.0, 0.5], [20, 40, 10, 30]
    for groups, latency, rate, wanted in [
        ([[3], [2], [1], [0]], 0.0, 10.0, 10.5),  # always busy from 0.5 on
        ([[3], [2], [1], [0]], 0.0, 100.0, 5.2),  # waits for backward
        ([[3], [2], [1], [0]], 2.0, 100.0, 9.5),
        ([[3, 2], [1, 0]], 2.0, 100.0, 7.6),
        ([[2, 3], [0, 1]], 0.5, 20.0, 8.5),
    ]:
        what = f"finish_time({ready}, {sizes}, {groups}, {latency}, {rate})"
        hint = "a group starts when its gradients are ready and the group before has ended"
        same(impl.finish_time(ready, sizes, groups, latency, rate), wanted, what, hint)


@pytest.mark.task("16.3")
@pytest.mark.parametrize("hidden, size", [(8, 4), (7, 3), (2, 3), (5, 1)])
def test_tensor_parallel(impl, rng, hidden, size):
    x, w1, b1, w2, b2 = whole = arrays(rng, (6, 3), (3, hidden), (hidden,), (hidden, 4), (4,))
    leaves, (cotangent,) = tensors(whole), arrays(rng, (6, 4))
    y = network(leaves[1:], leaves[0])
    y.backward(flow.tensor(cotangent))
    units = np.array_split(np.maximum(x @ w1 + b1, 0), size, 1)
    axes = {1: 1, 2: 0, 3: 0}  # along which w1, b1 and w2 are cut

    def cut(some):
        parts = [np.array_split(a, size, axes[k]) if k in axes else [a] * size for k, a in enumerate(some)]
        return list(zip(*parts))

    own, gradients = cut(whole), cut([p.grad.numpy() for p in leaves])
    results, comms = ranks.run(lambda comm: impl.block_forward(comm, *own[comm.rank]), size)
    what = f"block_forward with {hidden} hidden units on {size} ranks"
    for rank, got in enumerate(results):
        same_all(got, [y.detach().numpy(), units[rank]], what, "where is b2 added, and how often?", **CLOSE)
    sent(comms, ["all_reduce"], 2 * (size - 1) * y.numel() * 8, what, "only the second product is partial")

    def backward(comm):
        x, w1, _, w2, _ = own[comm.rank]
        return impl.block_backward(comm, x, units[comm.rank], w1, w2, cotangent)

    results, comms = ranks.run(backward, size)
    what = f"block_backward with {hidden} hidden units on {size} ranks (gradients of x, w1, b1, w2, b2)"
    for got, wanted in zip(results, gradients):
        same_all(got, wanted, what, "which gradient is a sum over the hidden units of all ranks?", **CLOSE)
    sent(comms, ["all_reduce"], 2 * (size - 1) * x.nbytes, what, "only the gradient of x is partial")


def state_bytes(optimizer):
    """The bytes of all arrays that an optimizer keeps, alone or in lists."""
    values = [v for name, v in vars(optimizer).items() if name != "comm"]
    return sum(x.nbytes for v in values for x in (v if isinstance(v, list) else [v]) if isinstance(x, np.ndarray))


@pytest.mark.task("16.4")
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_sharded_optimizer(impl, rng, size):
    shapes, (lr, momentum) = [(3, 5), (2,), (1, 4)], rng.uniform(0.1, 0.9, 2)
    params, *many = [arrays(rng, *shapes) for _ in range(1 + 3 * size)]
    steps, leaves = [many[k::3] for k in range(3)], tensors(params)
    optimizer, wanted = flow.optim.SGD(leaves, lr=lr, momentum=momentum), []
    for summands in steps:
        for p, *parts in zip(leaves, *summands):
            p.grad = flow.tensor(sum(parts))
        optimizer.step()
        wanted.append([p.detach().numpy().copy() for p in leaves])

    def follow(comm):
        own, found = impl.ShardedSGD(comm, params, lr, momentum), [[x.copy() for x in params]]
        for summands in steps:
            found.append(own.step(found[-1], [x.copy() for x in summands[comm.rank]]))
        return found[1:], state_bytes(own)

    results, comms = ranks.run(follow, size)
    hint = "reduce-scatter the gradients, update the own part, gather the parameters"
    for rank, (found, nbytes) in enumerate(results):
        for step, (got, right) in enumerate(zip(found, wanted)):
            same_all(got, right, f"step {step} of ShardedSGD on {size} ranks, at rank {rank}", hint, **CLOSE)
        part = 8 * len(np.array_split(np.arange(21), size)[rank])
        same(nbytes, part, f"the bytes of state of rank {rank} of {size}", "keep the velocity of the own part only")
    calls = ["all_gather", "reduce_scatter"] * len(steps)
    sent(comms, calls, 2 * (size - 1) * 21 * 8 * len(steps), f"{len(steps)} steps of ShardedSGD", hint)


class Replicated:
    """For tasks that need `ShardedSGD`: an optimizer with all of the state on every rank."""

    def __init__(self, comm, params, lr, momentum):
        self.comm, self.lr, self.momentum, self.velocities = comm, lr, momentum, [0 * p for p in params]

    def step(self, params, summands):
        sums = [self.comm.all_reduce(g) for g in summands]
        self.velocities = [self.momentum * v + g for v, g in zip(self.velocities, sums)]
        return [p - self.lr * v for p, v in zip(params, self.velocities)]


@pytest.mark.task("16.5")
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_training(impl, rng, monkeypatch, size):
    def summands(comm, *whole):  # rank 0 has all of the sum
        loss, gradients = impl.loss_and_gradients(*whole)
        return loss * (comm.rank == 0), [g * (comm.rank == 0) for g in gradients]

    monkeypatch.setattr(impl, "own_summands", summands)
    monkeypatch.setattr(impl, "ShardedSGD", Replicated)
    params, batches = ranks.problem(int(rng.integers(1 << 30)), rows=17)
    lr, momentum = 0.2, 0.8
    losses, wanted = trained(params, batches, lr, momentum)
    given = [p.copy() for p in params]
    results, comms = ranks.run(lambda comm: impl.train(comm, given, batches, lr, momentum), size)
    what = f"train on {size} ranks"
    for found, after in results:
        same_all(found, losses, f"the losses of {what}", "floats, those of the whole batches, before the step")
        same_all(after, wanted, what, "one step for each batch", **CLOSE)
    total = 2 * (size - 1) * 8 * (1 + sum(p.size for p in params)) * len(batches)
    sent(comms, ["all_reduce"] * 5 * len(batches), total, what, "the loss, and what the optimizer sends for 4 arrays")


@pytest.mark.task("16.5")
@pytest.mark.skipif(not ranks.MPI, reason="needs mpi4py and mpiexec: the extra `mpi`")
def test_training_on_processes(impl, rng):
    seed = int(rng.integers(1000))
    params, batches = ranks.problem(seed)
    losses, _ = trained(params, batches, lr=0.1, momentum=0.9)
    ranks.run(lambda comm: impl.train(comm, params, batches, lr=0.1, momentum=0.9), 2)
    found = ranks.launch(2, str(seed), str(Path(impl.__file__).resolve()))
    same(found["ranks"], 2, "the number of MPI ranks")
    same_all(found["losses"], losses, "the losses of train on 2 MPI ranks", "as on threads")
