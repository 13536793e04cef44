"""Draw which bytes a tensor-parallel block sends: `python tools/tensor_parallel_bytes.py` writes a picture of
docs/architecture.md, docs/images/tensor_parallel_bytes.svg, and prints what it counted.

A transformer block is split as in Megatron-LM (Shoeybi et al. 2019) on a mesh of 2 x 2 simulated ranks: the first
dimension divides a batch of 7, the second the heads and the hidden units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

import miniflow as flow
from miniflow import nn

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "tensor_parallel_bytes.svg"
BATCH, TIME, WIDTH, HEADS = 7, 16, 64, 4
STAGES = ("layer norm 1", "q, k, v", "attention", "out", "add 1", "layer norm 2", "up", "gelu", "down", "add 2",
          "next block", "gradients")  # fmt: skip
# What this script counts with miniflow of commit b59c8d4: there the bytes of the operands decide alone, and a Linear is
# a view, a product and a view. A view keeps no split of a batch that the ranks do not divide.
BEFORE = {
    "forward": (0, 92160, 344064, 59392, 0, 86016, 71680, 114688, 0, 0, 114688, 0),
    "backward": (86016, 393216, 516096, 108544, 0, 172032, 86016, 229376, 186368, 0, 0, 483328),
}
B, S = flow.sbp.broadcast, flow.sbp.split


class Meter:
    """Counts what is sent in each stage of forward and backward, by the counters of all that is sent.

    Attributes:
        sent: ("forward" or "backward", stage) -> collective -> bytes.
    """

    def __init__(self) -> None:
        self.sent: dict[tuple[str, str], Counter] = {}
        self.place, self.counted = ("", ""), Counter(flow.parallel.stats())

    def enter(self, *place: str) -> None:
        """What was sent since the last call belongs to its place."""
        now = Counter(flow.parallel.stats())
        self.sent.setdefault(self.place, Counter()).update(now - self.counted)
        self.place, self.counted = place, now

    def run(self, stage: str, function: Callable, *inputs: flow.Tensor) -> flow.Tensor:
        """Call a function; its backward begins when the gradient of its result is there."""
        self.enter("forward", stage)
        y = function(*inputs)
        y.register_hook(lambda dy: self.enter("backward", stage))
        return y


class Block(nn.Module):
    """Attention and two layers, each after a layer norm and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def place(self, mesh: flow.placement) -> None:
        """Split what makes heads and hidden units by its outputs, and what takes them by its inputs."""
        self.to_global(mesh, (B, B))
        for name, p in self.named_parameters():
            layer = name.partition(".")[0]
            if layer in ("q", "k", "v", "up"):
                p.data = p.data.to_global(sbp=(B, S(0)))
            elif name in ("out.weight", "down.weight"):
                p.data = p.data.to_global(sbp=(B, S(1)))

    def forward(self, x: flow.Tensor, run: Callable) -> flow.Tensor:
        """x, (N, T, WIDTH), after the block; `run` is that of a `Meter`."""
        n, t, _ = x.shape
        h = run("layer norm 1", self.norm1, x)
        heads = lambda layer: layer(h).reshape(n, t, HEADS, -1).transpose(1, 2)  # noqa: E731
        q, k, v = (run("q, k, v", heads, layer) for layer in (self.q, self.k, self.v))
        a = run("attention", lambda: flow.softmax(q @ k.mT / (WIDTH // HEADS) ** 0.5, -1) @ v)
        y = run("out", lambda: self.out(a.transpose(1, 2).reshape(n, t, WIDTH)))
        x = run("add 1", flow.add, x, y)
        h = run("layer norm 2", self.norm2, x)
        h = run("up", self.up, h)
        h = run("gelu", nn.functional.gelu, h)
        return run("add 2", flow.add, x, run("down", self.down, h))


def measured() -> dict[tuple[str, str], Counter]:
    """`Meter.sent` of one block, from inputs to results for the next block, and back to the gradients."""
    flow.parallel.simulate(4)
    flow.manual_seed(0)
    mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    block = Block()
    block.place(mesh)
    random = np.random.default_rng(0)
    x, dy = (
        flow.tensor(random.normal(size=(BATCH, TIME, WIDTH)).astype(np.float32), placement=mesh, sbp=(S(0), B))
        for _ in range(2)
    )
    parameters = [x.requires_grad_(), *block.parameters()]
    meter = Meter()
    y = block(x, meter.run)
    y = meter.run("next block", lambda: y.to_global(sbp=(S(0), B)))
    gradients = flow.autograd.grad(y, parameters, dy)
    meter.enter("backward", "gradients")
    for p, gradient in zip(parameters, gradients, strict=True):
        gradient.to_global(sbp=p.sbp)
    meter.enter("", "")
    flow.parallel.simulate(1)
    return meter.sent


def totals(sent: dict[tuple[str, str], Counter]) -> dict[str, tuple[int, ...]]:
    """The bytes of each stage, in the form of `BEFORE`."""
    return {way: tuple(sum(sent.get((way, stage), {}).values()) for stage in STAGES) for way in BEFORE}


def draw(sent: dict[tuple[str, str], Counter]) -> None:
    """Write the picture: for each stage the bytes before, and below them those that are counted now."""
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "miniflow", "font.size": 9})
    figure, panels = plt.subplots(1, 2, figsize=(9, 5.6), sharey=True, layout="constrained")
    now, rows = totals(sent), np.arange(len(STAGES))
    for panel, way in zip(panels, BEFORE, strict=True):
        panel.barh(rows - 0.2, BEFORE[way], 0.38, color="#c9ccd1", label="before")
        panel.barh(rows + 0.2, now[way], 0.38, color="#3567c8", label="now")
        for row, (stage, old, new) in enumerate(zip(STAGES, BEFORE[way], now[way], strict=True)):
            names = ", ".join(name.replace("_", "-") for name in sorted(sent.get((way, stage), ())))
            for y, n, text in ((row - 0.2, old, f"{old:,}"), (row + 0.2, new, f"{new:,} {names}")):
                panel.text(n + 6000, y, text if n else "", va="center", size=8)
        panel.set(
            xlim=(0, 760_000),
            xticks=range(0, 600_000, 200_000),
            title=f"{way}: {sum(BEFORE[way]):,} bytes before, {sum(now[way]):,} now",
        )
        panel.set(xlabel="bytes that the 4 ranks send together")
        panel.spines[["top", "right"]].set_visible(False)
        panel.xaxis.set_major_formatter("{x:,.0f}")
    panels[0].set_yticks(rows, STAGES)
    panels[0].invert_yaxis()
    panels[0].legend(loc="lower right", frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    counted = measured()
    for (way, stage), collectives in counted.items():
        print(way, stage, dict(collectives))
    print(totals(counted))
    draw(counted)
