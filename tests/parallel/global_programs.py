"""Programs over global tensors, which `test_ranks` runs on simulated ranks and on MPI ranks.

`global_programs.py FILE` writes what they compute, and the bytes that all ranks have sent, as JSON.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np

import miniflow as flow
from miniflow import nn
from miniflow.parallel import world

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def matmul_of_every_layout(n):
    everyone = flow.placement.all("cpu")
    for a, b in itertools.product([S(0), S(1), B, P], repeat=2):
        x = flow.tensor(numbers(5, 7), placement=everyone, sbp=a, requires_grad=True)
        w = flow.tensor(numbers(7, 6, seed=1), placement=everyone, sbp=b, requires_grad=True)
        y = x @ w
        (y * y).sum().backward()
        yield str(y.sbp), y, x.grad, w.grad


def boxing_of_every_pair(n):
    everyone = flow.placement.all("cpu")
    for before, after in itertools.product([S(0), S(1), B, P], repeat=2):
        x = flow.tensor(numbers(5, 7), placement=everyone, sbp=before)
        yield x.to_global(sbp=after), x.to_global(sbp=after).to_local().sum().item() if n == 1 else 0


def views_with_gaps(n):
    everyone = flow.placement.all("cpu")
    for before, after in itertools.product([S(0), B, P], [S(0), B, P]):
        x = flow.tensor(numbers(5, 12), placement=everyone, sbp=before)
        for view in (x[:, 3], x[0, ::2], x.t()):
            yield view.to_global(sbp=after), str(view.to_global(sbp=after).sbp)


def placements(n):
    """On fewer ranks, in another order, and back."""
    x = flow.tensor(numbers(6, 4), placement=flow.placement.all("cpu"), sbp=S(0))
    for ranks in ([0], [n - 1], list(range(n))[::-1], list(range(max(1, n - 1)))):
        for sbp in (S(0), S(1), B, P):
            y = x.to_global(flow.placement("cpu", ranks), sbp)
            yield y, (y * 2).sum(), y.to_global(flow.placement.all("cpu"), B)


def two_dimensions(n):
    mesh = flow.placement("cpu", np.arange(n).reshape(2, -1) if n % 2 == 0 else [list(range(n))])
    for a, b in itertools.product(itertools.product([S(0), S(1), B, P], repeat=2), [(S(0), B), (B, S(1)), (P, S(0))]):
        x = flow.tensor(numbers(5, 7), placement=mesh, sbp=a, requires_grad=True)
        y = x.to_global(sbp=b)
        (y * y).sum().backward()
        yield y, x.grad, (y @ x.mT).sum()


def local_tensors(n):
    everyone, rank = flow.placement.all("cpu"), flow.env.get_rank()
    for sbp in (S(0), S(1), B, P):
        x = flow.ones(2, 3).to_global(everyone, sbp)
        yield str(x.shape), x
        if world.owned() == range(rank, rank + 1) or n == 1:
            assert x.to_local().shape == ((2, 3) if sbp in (B, P) else (2, 3))


def random_numbers(n):
    flow.manual_seed(0)
    everyone = flow.placement.all("cpu")
    yield flow.rand(5, 3, placement=everyone, sbp=S(0)), flow.randn(5, 3, placement=everyone, sbp=S(1))
    yield (
        flow.randperm(9, placement=everyone, sbp=S(0)),
        nn.functional.dropout(flow.ones(6, 5, placement=everyone, sbp=S(0))),
    )


def indexing(n):
    x = flow.tensor(numbers(6, 5), placement=flow.placement.all("cpu"), sbp=S(0), requires_grad=True)
    y = x * 1
    y[1] = 3.0
    y[:, 2] = x[:, 0]
    y[2:4, 1:3] += 1
    z = y[flow.tensor([0, 3, 3], placement=x.placement, sbp=B)]
    (z * z).sum().backward()
    yield y, z, x.grad, x[2], x.flip([0]), x.mT.reshape(-1)


def printing(n):
    x = flow.tensor(numbers(3, 2), placement=flow.placement.all("cpu"), sbp=S(0))
    yield repr(x), x.sum().item(), x.tolist()


def training(n):
    everyone = flow.placement.all("cpu")
    for weights in ((B, B, B), (S(0), S(0), S(1))):
        flow.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4)).to_global(everyone, B)
        for p, sbp in zip((model[0].weight, model[0].bias, model[3].weight), weights, strict=True):
            p.data = p.data.to_global(sbp=sbp)
        optimizer = flow.optim.Adam(model.parameters(), lr=0.01)
        x = flow.tensor(numbers(8, 6), placement=everyone, sbp=S(0) if weights[0] is B else B)
        t = flow.tensor(np.arange(8) % 4, placement=everyone, sbp=S(0) if weights[0] is B else B)
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(x), t)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield loss.item()
        yield list(model.parameters())


class Training(nn.Graph):
    def __init__(self, model, move=lambda x, i: x):
        super().__init__()
        self.model, self.move, self.loss = model, move, nn.MSELoss()
        self.add_optimizer(flow.optim.Adam([{"params": model.parameters(), "clip_grad_max_norm": 0.5}], lr=0.01))

    def build(self, x, y):
        for i, layer in enumerate(self.model):
            x = layer(self.move(x, i)).tanh()
        loss = self.loss(x, y)
        loss.backward()
        return loss


def graphs_that_share_out_states(n):
    everyone = flow.placement.all("cpu")
    for stage, steps in itertools.product((0, 1, 2, 3), (1, 2)):
        flow.manual_seed(0)
        graph = Training(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6)).to_global(everyone, B))
        graph.config.enable_zero(stage > 0, stage=stage or 1, shard_min_size=1)
        graph.config.set_gradient_accumulation_steps(steps)
        x, y = (flow.tensor(numbers(12 * n, 6, seed=i), placement=everyone, sbp=S(0)) for i in range(2))
        yield graph(x, y), graph(x, y), *graph.model.parameters()


def graphs_of_stages(n):
    places = [flow.placement("cpu", [r]) for r in range(n)]
    for schedule in ("1F1B", "GPipe"):
        flow.manual_seed(0)
        model = nn.Sequential(*[nn.Linear(6, 6).to_global(where, B) for where in places])
        graph = Training(model, lambda x, i: x.to_global(placement=places[i], sbp=B))
        graph.config.set_gradient_accumulation_steps(4)
        graph.config.set_pipeline_schedule(schedule)
        x, y = (flow.tensor(numbers(8, 6, seed=i), placement=places[-i], sbp=B) for i in range(2))
        yield graph(x, y), graph(x, y), *graph.model.parameters()


PROGRAMS = (
    matmul_of_every_layout, boxing_of_every_pair, views_with_gaps, placements, two_dimensions, local_tensors,
    random_numbers, indexing, printing, training, graphs_that_share_out_states, graphs_of_stages,
)  # fmt: skip


def plain(value):
    """Tensors as lists of the exact values."""
    if isinstance(value, flow.Tensor):
        return [*map(str, value.sbp), value.detach().numpy().tolist()]
    return [plain(x) for x in value] if isinstance(value, list | tuple) else value


def results():
    """program -> what it yields, and the bytes that it has sent on all ranks."""
    found = {}
    for program in PROGRAMS:
        before = flow.parallel.stats()
        values = [plain(x) for x in program(world.size())]
        sent = {key: n - before.get(key, 0) for key, n in flow.parallel.stats().items()}
        every = (
            [sent]
            if len(world.owned()) == world.size()
            else world.communicator().all_gather_object(sent, range(world.size()))
        )
        total = {key: sum(one.get(key, 0) for one in every) for key in {k for one in every for k in one}}
        found[program.__name__] = values, {key: n for key, n in sorted(total.items()) if n}
    return found


if __name__ == "__main__":
    found = results()
    if flow.env.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(found))
