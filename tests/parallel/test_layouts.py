"""Graphs train in every layout as on one device: data, tensor and pipeline parallel, ZeRO, and all of them together."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
from compare import assert_close
from global_training import Block

import miniflow as flow
from miniflow import nn

S, B = flow.sbp.split, flow.sbp.broadcast
STEPS = 20


class Layout(NamedTuple):
    """How many stages, and on the mesh of each data parallel ranks by tensor parallel ones; stage of ZeRO."""

    pipeline: int = 1
    data: int = 1
    tensor: int = 1
    zero: int = 0

    def __str__(self):
        return f"PP{self.pipeline}-DP{self.data}-TP{self.tensor}-Z{self.zero}"

    @property
    def meshes(self):
        ranks = np.arange(self.pipeline * self.data * self.tensor).reshape(self.pipeline, self.data, self.tensor)
        return [flow.placement("cpu", part) for part in ranks]

    def place(self, blocks):
        """The blocks on the stages one after another; what is marked by its module is split among tensor ranks."""
        meshes = self.meshes
        for i, block in enumerate(blocks):
            block.to_global(meshes[i * self.pipeline // len(blocks)], (B, B))
        for module in blocks.modules():
            for name, dim in getattr(module, "tensor_parallel", {}).items():
                p = getattr(module, name)
                p.data = p.data.to_global(sbp=(B, S(dim)))

    def batch(self, x, y):
        first, *_, last = [*self.meshes, self.meshes[-1]]
        return [t.to_global(mesh, (B, B)).to_global(sbp=(S(0), B)) for t, mesh in ((x, first), (y, last))]


def split_outputs(layer):
    layer.tensor_parallel = {"weight": 0, **({} if layer.bias is None else {"bias": 0})}
    return layer


def split_inputs(layer):
    layer.tensor_parallel = {"weight": 1}
    return layer


class MLP:
    @staticmethod
    def blocks():
        return [
            nn.Sequential(nn.Linear(12, 24, bias=False), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2)),
            nn.Sequential(split_outputs(nn.Linear(24, 32)), nn.ReLU()),
            nn.Sequential(split_inputs(nn.Linear(32, 24)), nn.ReLU(), nn.Dropout(0.1)),
            nn.Linear(24, 10),
        ]

    @staticmethod
    def batch(rows, random):
        return random.normal(size=(rows, 12)).astype(np.float32), random.integers(0, 10, rows)


class LeNet:
    @staticmethod
    def blocks():
        return [
            nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Sequential(nn.Conv2d(6, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            nn.Sequential(split_outputs(nn.Linear(32, 24)), nn.ReLU(), split_inputs(nn.Linear(24, 16)), nn.ReLU()),
            nn.Linear(16, 10),
        ]

    @staticmethod
    def batch(rows, random):
        return random.normal(size=(rows, 1, 16, 16)).astype(np.float32), random.integers(0, 10, rows)


class Attention(Block):
    def __init__(self, width, heads):
        super().__init__(width, heads)
        self.qkv = split_outputs(nn.Linear(width, 3 * width, bias=False))  # that of the keys has no gradient
        split_inputs(self.out)
        split_outputs(self.up)
        split_inputs(self.down)


class Transformer:
    @staticmethod
    def blocks():
        return [
            nn.Embedding(20, 16),
            Attention(16, 4),
            Attention(16, 4),
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 20), nn.Flatten(1, 1)),
        ]

    @staticmethod
    def batch(rows, random):
        tokens = random.integers(0, 20, (rows, 6))
        return tokens, (tokens + 1) % 20


class Train(nn.Graph):
    def __init__(self, blocks, layout, micro_batches, amp):
        super().__init__()
        self.blocks = blocks
        group = {"params": blocks.parameters(), "clip_grad_max_norm": 1.0}
        self.add_optimizer(flow.optim.Adam([group], lr=0.003))
        self.config.set_gradient_accumulation_steps(micro_batches)
        self.config.enable_amp(amp, dtype=flow.bfloat16)
        if layout is not None:
            self.config.enable_zero(layout.zero > 0, stage=layout.zero or 1, shard_min_size=1)
            for i, block in enumerate(self.blocks):
                stage = i * layout.pipeline // len(blocks)
                block.to(nn.graph.GraphModule).set_stage(stage, layout.meshes[stage])

    def build(self, x, y):
        for block in self.blocks:
            x = block(x)
        loss = nn.functional.cross_entropy(x.movedim(-1, 1) if x.ndim == 3 else x, y)
        loss.backward()
        return loss


def order_of_rows(rows, ranks, micro_batches):
    """Micro-batches take a part of the rows of each rank: in which order one device has to take them."""
    parts = [np.array_split(part, micro_batches) for part in np.array_split(np.arange(rows), ranks)]
    return np.concatenate([part[i] for i in range(micro_batches) for part in parts])


@functools.cache
def train(make, layout, data, rows, micro_batches, amp):
    """The losses of the steps, and the parameters at the end."""
    flow.manual_seed(0)
    blocks = nn.ModuleList(make.blocks())
    if layout is not None:
        flow.parallel.simulate(layout.pipeline * layout.data * layout.tensor)
        layout.place(blocks)
    graph, losses = Train(blocks, layout, micro_batches, amp), []
    flow.manual_seed(1)
    for step in range(STEPS):
        x, y = make.batch(rows, np.random.default_rng(step))
        if layout is None:
            order = order_of_rows(rows, data, micro_batches)
            x, y = x[order], y[order]
        x, y = flow.tensor(x), flow.tensor(y)
        if layout is not None:
            x, y = layout.batch(x, y)
        losses.append(graph(x, y).numpy().reshape(-1))
    return np.array(losses), {name: p.numpy() for name, p in blocks.named_parameters()}


LAYOUTS = [
    Layout(data=2), Layout(data=4), Layout(tensor=2), Layout(tensor=4), Layout(data=2, tensor=2), Layout(pipeline=2),
    Layout(pipeline=4), Layout(data=2, zero=1), Layout(data=2, zero=2), Layout(data=4, zero=3),
    Layout(data=2, tensor=2, zero=3), Layout(pipeline=2, data=2), Layout(pipeline=2, tensor=2),
    Layout(pipeline=2, data=2, tensor=2), Layout(pipeline=2, data=2, tensor=2, zero=2),
    Layout(pipeline=2, tensor=2, zero=3),
]  # fmt: skip


@pytest.fixture(autouse=True)
def alone():
    yield
    flow.parallel.simulate(1)


def check(make, layout, rows, micro_batches, amp=False):
    found = train(make, layout, layout.data, rows, micro_batches, amp)
    want = train(make, None, layout.data, rows, micro_batches, amp)
    assert_close(found[0], want[0], rtol=2e-2 if amp else 2e-4, atol=1e-2 if amp else 1e-5)
    if not amp:
        for name, value in want[1].items():
            assert_close(found[1][name], value, rtol=1e-3, atol=1e-4, what=name)


@pytest.mark.few(6)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("make", [MLP, LeNet, Transformer])
def test_losses_of_twenty_steps(make, layout):
    check(make, layout, rows=16, micro_batches=4 if layout.pipeline > 1 else 2)


@pytest.mark.few(1)
@pytest.mark.parametrize("layout", [Layout(data=2), Layout(data=4, zero=1), Layout(pipeline=2, data=2)], ids=str)
@pytest.mark.parametrize("make", [MLP, LeNet, Transformer])
def test_uneven_batches(make, layout):
    check(make, layout, rows=7, micro_batches=1)


@pytest.mark.few(1)
@pytest.mark.parametrize("layout", [Layout(pipeline=2, data=2), Layout(data=2, tensor=2, zero=2)], ids=str)
@pytest.mark.parametrize("make", [MLP, LeNet, Transformer])
def test_mixed_precision(make, layout):
    check(make, layout, rows=16, micro_batches=2, amp=True)
