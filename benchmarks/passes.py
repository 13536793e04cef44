"""What each pass of nn.Graph buys: a step with it and without it, on the workload that it exists for.

Both graphs are in one process and take turns, so that what else the machine does meets both; times are the least of all
turns. "planned" is the memory that a graph lays out for a step, beyond parameters and states. What the user asks for by
an option has its figures elsewhere: sparse updates in the table "sparse", ZeRO in "parallel".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import in_process, table
from benchmarks.networks import graph_of, lenet, load

SECONDS = 6.0  # of measuring for each row


def tokens(flow: Any, shape: tuple[int, ...], words: int) -> Any:
    """Random words."""
    return flow.from_numpy(np.random.default_rng(0).integers(0, words, shape))


def rotary(flow: Any) -> tuple:
    """Inference, four layers of attention on 64 tokens, each of which computes the rotary embedding."""
    nn = flow.nn

    def rotated(x: Any) -> Any:
        t, d = x.shape[-2:]
        angles = flow.arange(t).float().unsqueeze(1) / 10000 ** (flow.arange(0, d, 2).float() / d)
        a, b = x[..., ::2], x[..., 1::2]
        cos, sin = flow.cos(angles), flow.sin(angles)
        return flow.cat([a * cos - b * sin, a * sin + b * cos], -1)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            n, t, d = x.shape
            q, k, v = self.qkv(x).reshape(n, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4).unbind(0)
            y = nn.functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
            return x + self.out(y.transpose(1, 2).reshape(n, t, d))

    return nn.Sequential(*[Attention() for _ in range(4)]), None, (flow.rand(1, 64, 64),)


def tied(flow: Any) -> tuple:
    """Training, a language model of 20,000 words whose table is its output layer too, on 64 tokens."""
    nn = flow.nn

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.body = nn.Embedding(20_000, 64), nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            return nn.functional.linear(self.body(self.table(x)), self.table.weight).reshape(-1, 20_000)

    return Tied(), nn.functional.cross_entropy, (tokens(flow, (2, 32), 20_000), tokens(flow, (64,), 20_000))


def digits(flow: Any) -> tuple:
    """Training, LeNet on 32 images."""
    return lenet(flow.nn), flow.nn.functional.cross_entropy, (flow.rand(32, 1, 28, 28), tokens(flow, (32,), 10))


def separable(flow: Any) -> tuple:
    """Inference, six convolutions of 1x1 and three of 3x3 by channels, each with batch norm and ReLU, 8 images."""
    nn = flow.nn

    def block(inputs: int, outputs: int, size: int = 1) -> list:
        options = {"padding": size // 2, "groups": inputs if size > 1 else 1, "bias": False}
        return [nn.Conv2d(inputs, outputs, size, **options), nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = [layer for _ in range(3) for layer in (*block(16, 32), *block(32, 32, 3), *block(32, 16))]
    return nn.Sequential(*layers).eval(), None, (flow.rand(8, 16, 32, 32),)


def feed_forward(flow: Any) -> tuple:
    """Training, layers of 1024 and 256 features with ReLU and dropout on 512 rows."""
    nn = flow.nn
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 256))
    return model, nn.functional.mse_loss, (flow.rand(512, 256), flow.rand(512, 256))


def scaled(flow: Any) -> tuple:
    """Training, a layer of 1024 x 1024 on 8 rows in mixed precision, with a loss scale and a bound on the norm."""
    return flow.nn.Linear(1024, 1024), flow.nn.functional.mse_loss, (flow.rand(8, 1024), flow.rand(8, 1024))


def deep(flow: Any) -> tuple:
    """Training, eight layers of 32 features with ReLU on 4 rows."""
    nn = flow.nn
    model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.ReLU())])
    return model, nn.functional.mse_loss, (flow.rand(4, 32), flow.rand(4, 32))


def pointwise(flow: Any) -> tuple:
    """Ten pointwise operators on 1,000,000 numbers."""

    class Gate(flow.nn.Module):
        def forward(self, x: Any) -> Any:
            y = flow.tanh(x) * flow.sigmoid(x) + x * 0.5
            return flow.exp(-y) * 0.1 + flow.relu(y - 1.0)

    return Gate(), None, (flow.rand(1_000_000),)


# these put all in order too, if they make one instruction of several
MERGING = ("normalization_activation", "cast_scale", "multi_tensor_update", "elementwise_fusion")
ROWS: list[tuple[str, Callable, tuple[str, ...]]] = [  # pass, workload, other passes that are off in both graphs
    ("cse", rotary, ()),
    ("add_to_output", tied, ()),
    ("relu_after_pool", digits, ()),
    ("normalization_activation", separable, ()),
    ("dropout_mask", feed_forward, ()),
    ("cast_scale", scaled, ("elementwise_fusion", "fused_update")),
    ("fused_update", scaled, ()),
    ("multi_tensor_update", deep, ()),
    ("elementwise_fusion", pointwise, ()),
    ("schedule", digits, MERGING),
    ("memory_planning", digits, ()),
]


def graph(flow: Any, workload: Callable, off: tuple[str, ...]) -> tuple[Any, tuple]:
    """A graph of a workload without some passes, and its inputs: a training step with Adam where there is a loss."""
    flow.manual_seed(0)
    model, loss, inputs = workload(flow)
    if loss is None:

        class Forward(flow.nn.Graph):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def build(self, *inputs: Any) -> Any:
                return self.model(*inputs)

        result = Forward()
    else:
        group = {"params": model.parameters(), **({"clip_grad_max_norm": 1.0} if workload is scaled else {})}
        result = graph_of(flow, model, loss, flow.optim.Adam([group], lr=1e-3))
    if workload is scaled:
        result.config.enable_amp(True)
        result.set_grad_scaler(flow.amp.GradScaler())
    result.config.disable_pass(*off)
    return result, inputs


def measure(framework: str, threads: int, row: int, calls: int = 0) -> dict:
    """Milliseconds and planned MB of a row's workload, each with its pass and without.

    Args:
        calls: how many calls to make instead of measuring for some time.
    """
    flow = load(framework, threads)
    name, workload, off = ROWS[row]
    graphs = [graph(flow, workload, off), graph(flow, workload, (*off, name))]
    best, turns = [float("inf")] * 2, 0
    start = time.process_time()
    while turns < calls if calls else turns < 3 or time.process_time() - start < SECONDS:
        for i, (step, inputs) in enumerate(graphs):
            before = time.process_time()
            step(*inputs)
            best[i] = min(best[i], time.process_time() - before)
        turns += 1
    planned = [step._require_plan("memory").replay.plan.peak_after / 1e6 for step, _ in graphs]
    return {"ms": [1e3 * seconds for seconds in best], "MB": planned}


def report(calls: int = 0) -> str:
    """The table: one thread, CPU time."""
    rows = []
    for row, (name, workload, _) in enumerate(ROWS):
        found = in_process("passes.measure", "miniflow", 1, row=row, calls=calls)
        cells = [cell for key in ("ms", "MB") for cell in (*found[key], found[key][1] / max(found[key][0], 1e-9))]
        rows.append([name, workload.__doc__.rstrip("."), *(f"{cell:.3g}" for cell in cells)])
    header = ["pass", "workload", "ms", "ms without", "ratio", "planned MB", "MB without", "ratio"]
    return table("What passes of nn.Graph buy; one thread, CPU time", header, rows)
