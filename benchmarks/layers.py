"""Layers one by one: forward without a gradient, and forward with backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import in_turns, seconds_per_call, table
from benchmarks.networks import load, mlp

# name -> (the layer of a framework's nn, the shape of its input)
LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "MLP, batch 1": (mlp, (1, 784)),
    "MLP, batch 64": (mlp, (64, 784)),
    "LayerNorm 256x1024": (lambda nn: nn.LayerNorm(1024), (256, 1024)),
    "LayerNorm 4096x768": (lambda nn: nn.LayerNorm(768), (4096, 768)),
    "GroupNorm 32 groups, 16x256x14x14": (lambda nn: nn.GroupNorm(32, 256), (16, 256, 14, 14)),
    "depthwise 3x3, 8x512x14x14": (lambda nn: nn.Conv2d(512, 512, 3, 1, 1, groups=512), (8, 512, 14, 14)),
    "depthwise 3x3, 1x144x56x56": (lambda nn: nn.Conv2d(144, 144, 3, 1, 1, groups=144), (1, 144, 56, 56)),
    "depthwise 7x7, 1x96x56x56": (lambda nn: nn.Conv2d(96, 96, 7, 1, 3, groups=96), (1, 96, 56, 56)),
    "32 groups 3x3, 4x256x28x28": (lambda nn: nn.Conv2d(256, 256, 3, 1, 1, groups=32), (4, 256, 28, 28)),
    "stem 7x7 stride 2, 4x3x224x224": (lambda nn: nn.Conv2d(3, 64, 7, 2, 3), (4, 3, 224, 224)),
    "ConvTranspose2d 4x4 stride 2, 8x64x16x16": (lambda nn: nn.ConvTranspose2d(64, 32, 4, 2, 1), (8, 64, 16, 16)),
    "ConvTranspose2d 2x2 stride 2, 2x128x32x32": (lambda nn: nn.ConvTranspose2d(128, 64, 2, 2), (2, 128, 32, 32)),
    "Conv3d 3x3x3, 2x16x16x32x32": (lambda nn: nn.Conv3d(16, 32, 3, 1, 1), (2, 16, 16, 32, 32)),
    "LSTM 64-128, 32 steps of 32": (lambda nn: nn.LSTM(64, 128), (32, 32, 64)),
    "LSTM 256-256, 64 steps of 8": (lambda nn: nn.LSTM(256, 256), (64, 8, 256)),
    "GRU 64-128, 32 steps of 32": (lambda nn: nn.GRU(64, 128), (32, 32, 64)),
    "RNN 64-128, 32 steps of 32": (lambda nn: nn.RNN(64, 128), (32, 32, 64)),
    "MultiheadAttention 256, 8 heads, 8x128": (lambda nn: itself(nn, nn.MultiheadAttention(256, 8)), (128, 8, 256)),
}


def itself(nn: Any, attention: Any) -> Any:
    """Attention of a sequence to itself."""

    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Any) -> Any:
            return self.attention(x, x, x, need_weights=False)

    return SelfAttention()


def time_layers(framework: str, threads: int, names: list[str]) -> dict:
    """Milliseconds of each layer."""
    flow = load(framework, threads)
    result = {}
    for name in names:
        build, shape = LAYERS[name]
        layer = build(flow.nn)
        x = flow.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))

        def forward() -> Any:
            y = layer(x)  # noqa: B023
            return y[0] if isinstance(y, tuple) else y

        def both() -> None:
            layer.zero_grad()  # noqa: B023
            x.grad = None  # noqa: B023
            y = forward()  # noqa: B023
            y.backward(y.detach())

        with flow.no_grad():
            result[name] = 1e3 * seconds_per_call(forward, threads, 0.5)
        x.requires_grad_(True)
        result[name + ", backward"] = 1e3 * seconds_per_call(both, threads, 0.7)
    return result


def report(threads: int, names: list[str] | None = None) -> str:
    """The table."""
    names = names or list(LAYERS)
    found = in_turns("layers.time_layers", ["miniflow", "torch"], threads, names=names)
    rows = []
    for name in names:
        cells = []
        for key in (name, name + ", backward"):
            ours, theirs = (found[framework][key] for framework in ("miniflow", "torch"))
            cells += [f"{ours:.3g}", f"{theirs:.3g}", f"{ours / theirs:.2f}"]
        rows.append([name, *cells])
    header = ["forward, ms", "miniflow", "torch", "ratio", "with backward: miniflow", "torch", "ratio"]
    return table(f"Layers, {threads} thread{'s' * (threads > 1)}", header, rows)
