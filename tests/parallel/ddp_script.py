"""Data parallel training on MPI ranks: every rank a part of each batch, with other weights and buffers at the start.

Rank 0 writes the losses, means over the ranks, and the final parameters to the file that is named.
"""

import json
import sys
from pathlib import Path

import numpy as np

import miniflow as flow
from miniflow import nn


def model():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    net[1].eval()  # statistics of a part of a batch are others than those of the whole
    return net


def batch(step):
    random = np.random.default_rng(step)
    return flow.tensor(random.normal(size=(12, 4)).astype(np.float32)), flow.tensor(random.integers(0, 3, 12))


def train(net, rows=slice(None), reduce=lambda loss: loss):
    optimizer = flow.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(6):
        x, y = batch(step)
        loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(reduce(loss.detach()).item())
    return losses, [p.detach().numpy().tolist() for p in net.parameters()]


def mean(loss):
    flow.comm.all_reduce(loss)
    return loss / flow.env.get_world_size()


if __name__ == "__main__":
    rank, size = flow.env.get_rank(), flow.env.get_world_size()
    flow.manual_seed(rank)
    found = train(nn.parallel.DistributedDataParallel(model(), bucket_size=2), slice(rank, None, size), mean)
    gathered = [flow.zeros(2) for _ in range(size)] if rank == size - 1 else None
    flow.comm.gather(flow.ones(2) * rank, gathered, dst=size - 1)
    if gathered is not None:
        assert [x.tolist() for x in gathered] == [[r, r] for r in range(size)]
    ops = flow.distributed.ReduceOp
    each = [rank + 1 for rank in range(size)]
    for op, want in ((ops.PRODUCT, np.prod(each)), (ops.MIN, 1), (ops.MAX, size), (ops.AVG, np.mean(each))):
        x, part = flow.full((3,), rank + 1.0), flow.zeros(2)
        flow.comm.reduce_scatter_tensor(part, flow.full((2 * size,), rank + 1.0), op)
        flow.comm.all_reduce(x, op)
        assert x.tolist() == [want] * 3 and part.tolist() == [want] * 2
        x = flow.full((3,), rank + 1.0)
        flow.comm.reduce(x, 0, op)
        assert x.tolist() == [want if rank == 0 else rank + 1] * 3
    scattered = flow.zeros(2)
    flow.comm.scatter(scattered, [flow.ones(2) * r for r in range(size)] if rank == 0 else None, src=0)
    assert scattered.tolist() == [rank, rank]
    if size > 1 and rank == 0:
        flow.comm.send(flow.arange(6).reshape(2, 3), 1)
        flow.comm.send(flow.ones(2), 1, send_meta=False)
    if rank == 1:
        assert flow.comm.recv(0).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert flow.comm.recv(0, shape=(2,), dtype=flow.float32).tolist() == [1, 1]
    flow.comm.barrier()
    if rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(found))
