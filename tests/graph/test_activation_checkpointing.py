"""`config.activation_checkpointing` as users meet it: the same bits from less memory, whatever passes run besides."""

import numpy as np
import pytest
from checks import assert_same

import miniflow as flow
from miniflow import nn


class Block(nn.Module):
    """Attention and a feed-forward network, each with dropout and a residual connection."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        weights = flow.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        x = x + self.drop(self.out(weights @ v))
        return x + self.drop(self.fc2(nn.functional.gelu(self.fc1(self.norm2(x)))))


class Convolution(nn.Module):
    """With running statistics, which every step changes once."""

    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x):
        return flow.relu(self.norm(self.conv(x))) * 0.5 + x


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.fc2(flow.tanh(self.fc1(x)))


class Net(nn.Module):
    def __init__(self, make_block, width, count):
        super().__init__()
        self.first = nn.Identity()
        self.blocks = nn.Sequential(*[make_block(width) for _ in range(count)])

    def forward(self, x):
        return self.blocks(self.first(x))


class Train(nn.Graph):
    def __init__(self, model, flags, amp=False):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.Adam(model.parameters(), lr=0.01))
        self.config.enable_amp(amp, dtype=flow.float16)
        for block, flag in zip(self.model.blocks, flags, strict=True):
            block.config.activation_checkpointing = flag

    def build(self, x, target):
        y = self.model(x)
        loss = ((y - target) ** 2).mean()
        loss.backward()
        return y, loss


KINDS = {"transformer": (Block, (3, 5, 8)), "convolutions": (Convolution, (2, 8, 5, 5)), "mlp": (Mlp, (6, 8))}


def make(kind, flags, device="cpu", **options):
    flow.manual_seed(6)
    make_block, shape = KINDS[kind]
    model = Net(make_block, 8, len(flags)).to(device)
    return Train(model, flags, **options), model, shape


def numbers(shape, seed, device="cpu"):
    return flow.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32), device=device)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("amp", [False, True], ids=["", "half"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flags", [(True, True), (False, True, False)], ids=["all", "one"])
def test_no_bit_changes(kind, flags, amp, device):
    (graph, model, shape), (plain, twin, _) = (make(kind, f, device, amp=amp) for f in (flags, [False] * len(flags)))
    for step in range(3):
        batch = [numbers(shape, step, device), numbers(shape, 10 + step, device)]
        results = []
        for g in (graph, plain):
            flow.manual_seed(step)
            results.append([y.detach() for y in g(*batch)])
        for y, want in zip(*results, strict=True):
            assert_same(y, want)
    for name, value in model.state_dict().items():
        assert_same(value, twin.state_dict()[name], what=name)
    graph._last.program.check()
    assert any(i.after is not None for i in graph._last.program.instructions)
    assert all(i.after is None for i in plain._last.program.instructions)


BLOCKS = [("mlp", (512, 64), 0.5), ("transformer", (8, 64, 64), 0.5)]


@pytest.mark.few(1)
@pytest.mark.parametrize("kind, shape, share", BLOCKS, ids=[kind for kind, _, _ in BLOCKS])
def test_the_planned_peak_of_eight_blocks_falls(kind, shape, share, capsys):
    peaks = []
    for flag in (False, True):
        model = Net(KINDS[kind][0], 64, 8)
        graph = Train(model, [flag] * 8)
        graph(numbers(shape, 0), numbers(shape, 1))
        peaks.append(graph._last.replay.plan.peak_after / 2**20)
    with capsys.disabled():
        print(f"\n{kind}: {peaks[0]:.1f} MiB without, {peaks[1]:.1f} MiB with checkpointing")
    assert peaks[1] < share * peaks[0]
