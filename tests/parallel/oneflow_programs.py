"""Programs in the manner of OneFlow's documentation, on four MPI ranks: global tensors, 2-D SBP, stages on different
ranks, graphs of them, and data parallel training."""

import sys

import numpy as np

import miniflow as flow
from miniflow import nn
from miniflow.nn.parallel import DistributedDataParallel as ddp


def global_tensors():
    placement = flow.placement(type="cpu", ranks=[0, 1])
    x = flow.randn(4, 5, placement=placement, sbp=flow.sbp.split(dim=0))
    assert x.is_global and x.shape == flow.Size([4, 5]) and x.sbp == (flow.sbp.split(0),)
    if flow.env.get_rank() < 2:
        assert x.to_local().shape == (2, 5)
    else:
        assert x.to_local().numel() == 0
    y = x.to_global(placement=flow.placement("cpu", ranks=[2, 3]), sbp=flow.sbp.broadcast)
    assert np.array_equal(x.numpy(), y.numpy())
    local = flow.tensor([[0, 1], [2, 3]]) if flow.env.get_rank() == 0 else flow.tensor([[4, 5], [6, 7]])
    z = local.to_global(placement=placement, sbp=flow.sbp.split(1))
    assert z.numpy().tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert local.to_global(placement=placement, sbp=flow.sbp.partial_sum).numpy().tolist() == [[4, 6], [8, 10]]
    assert local.to_global(placement=placement, sbp=flow.sbp.broadcast).numpy().tolist() == [[0, 1], [2, 3]]


def two_dimensional_sbp():
    placement = flow.placement("cpu", ranks=[[0, 1], [2, 3]])
    a = flow.arange(64, dtype=flow.float32, placement=placement, sbp=[flow.sbp.broadcast] * 2).reshape(8, 8)
    b = a.to_global(sbp=[flow.sbp.split(0), flow.sbp.split(1)])
    assert b.to_local().shape == (4, 4)
    c = flow.matmul(
        a.to_global(sbp=(flow.sbp.split(0), flow.sbp.broadcast)),
        a.to_global(sbp=(flow.sbp.broadcast, flow.sbp.split(1))),
    )
    assert c.sbp == (flow.sbp.split(0), flow.sbp.split(1))
    assert np.array_equal(c.numpy(), a.numpy() @ a.numpy())


class Stages(nn.Module):
    """The first layer on ranks 0 and 1, data parallel; the second on ranks 2 and 3, tensor parallel."""

    def __init__(self):
        super().__init__()
        self.first_place, self.second_place = flow.placement("cpu", [0, 1]), flow.placement("cpu", [2, 3])
        self.first = nn.Linear(4, 8).to_global(placement=self.first_place, sbp=flow.sbp.broadcast)
        self.second = nn.Linear(8, 4).to_global(placement=self.second_place, sbp=flow.sbp.broadcast)
        self.second.weight.data = self.second.weight.data.to_global(sbp=flow.sbp.split(0))

    def forward(self, x):
        h = self.first(x.to_global(placement=self.first_place, sbp=flow.sbp.split(0))).relu()
        return self.second(h.to_global(placement=self.second_place, sbp=flow.sbp.broadcast))


class StagesGraph(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss = nn.MSELoss()
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x, y):
        loss = self.loss(self.model(x), y)
        loss.backward()
        return loss


def hybrid_stages():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)).astype(np.float32), rng.normal(size=(8, 4)).astype(np.float32)
    losses = []
    for kind in ("local", "eager", "graph"):
        flow.manual_seed(3)
        if kind == "local":
            model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
            inputs, target = flow.tensor(x), flow.tensor(y)
        else:
            model = Stages()
            inputs = flow.tensor(x, placement=model.first_place, sbp=flow.sbp.split(0))
            target = flow.tensor(y, placement=model.second_place, sbp=flow.sbp.broadcast)
        optimizer, graph = flow.optim.SGD(model.parameters(), lr=0.1), StagesGraph(model) if kind == "graph" else None
        found = []
        for _ in range(4):
            if graph is not None:
                loss = graph(inputs, target)
            else:
                loss = nn.functional.mse_loss(model(inputs), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            found.append(loss.item())
        losses.append(found)
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-5)


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(flow.tensor([[0], [0]], dtype=flow.float32))

    def forward(self, x):
        return flow.matmul(x, self.w)


def data_parallel():
    rank = flow.env.get_rank() % 2
    x = [flow.tensor([[1.0, 2], [2, 3]]), flow.tensor([[4.0, 6], [3, 1]])][rank]
    y = [flow.tensor([[8.0], [13]]), flow.tensor([[26.0], [9]])][rank]
    m = ddp(Regression())
    loss, optimizer = nn.MSELoss(reduction="sum"), flow.optim.SGD(m.parameters(), 0.01)
    for _ in range(500):
        error = loss(m(x), y)
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    np.testing.assert_allclose(m.w.detach().numpy(), [[2], [3]], rtol=1e-3)


if __name__ == "__main__":
    assert flow.env.get_world_size() == 4
    for program in (global_tensors, two_dimensional_sbp, hybrid_stages, data_parallel):
        program()
        if flow.env.get_rank() == 0:
            print(program.__name__, file=sys.stdout)
