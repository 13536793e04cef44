"""One training step of an embedding of up to ten million rows: updated as a whole, and where it was looked up.

miniflow's steps are graphs, one with `is_sparse=True`. Beside them stands torch with `Embedding(sparse=True)` and SGD
or `SparseAdam`, whose updates are the same. Each call looks up other rows, so that they do not stay in a cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import in_turns, require_equal, seconds_per_call, table
from benchmarks.networks import load

ROWS, WIDTH, BATCH = (10_000, 1_000_000, 10_000_000), 16, 1024
RATE, LOSSES, TOLERANCE = 0.05, 5, 1e-4
RULES = ("SGD", "Adam")


def time_step(framework: str, threads: int, rows: int, rule: str) -> dict:
    """The time of a step in ms, and the first losses; `framework` is "miniflow.dense", "miniflow.sparse" or "torch"."""
    flow = load(framework, threads)
    random = np.random.default_rng(0)
    embedding = flow.nn.Embedding(2, WIDTH, **({"sparse": True} if framework == "torch" else {}))
    embedding.weight = flow.nn.Parameter(flow.from_numpy(random.random((rows, WIDTH), np.float32)))
    batches = [flow.from_numpy(random.integers(0, rows, BATCH)) for _ in range(64)]
    target = flow.from_numpy(random.random((BATCH, WIDTH), np.float32))
    make = eager_step if framework == "torch" else graph_step
    step = make(flow, embedding, optimizer_class(flow, rule)([embedding.weight], lr=RATE), framework)
    indices = itertools.cycle(batches)
    losses = [float(step(next(indices), target)) for _ in range(LOSSES)]
    return {"ms": 1e3 * seconds_per_call(lambda: step(next(indices), target), threads, budget=2.0), "losses": losses}


def optimizer_class(flow: Any, rule: str) -> Any:
    """torch has a rule of its own for sparse gradients of Adam."""
    return getattr(flow.optim, f"Sparse{rule}", None) or getattr(flow.optim, rule)


def eager_step(flow: Any, embedding: Any, optimizer: Any, framework: str) -> Callable[[Any, Any], Any]:
    """A step that runs op by op."""

    def step(indices: Any, target: Any) -> Any:
        optimizer.zero_grad()
        loss = ((embedding(indices) - target) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def graph_step(flow: Any, embedding: Any, optimizer: Any, framework: str) -> Callable[[Any, Any], Any]:
    """A step that is replayed."""

    class Step(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = embedding
            self.add_optimizer(optimizer, is_sparse=framework.endswith("sparse"))

        def build(self, indices: Any, target: Any) -> Any:
            loss = ((self.embedding(indices) - target) ** 2).sum()
            loss.backward()
            return loss

    return Step()


def lines(threads: int, sizes: tuple[int, ...] = ROWS) -> Iterator[list[str]]:
    """A line of the table for each rule and size.

    Raises:
        BenchmarkError: if losses differ: of the sparse steps, and with SGD of the dense one too.
    """
    for rule, rows in itertools.product(RULES, sizes):
        names = ["miniflow.dense", "miniflow.sparse", "torch"]
        found = in_turns("sparse.time_step", names, threads, rows=rows, rule=rule)
        ours = found["miniflow.sparse"]["losses"]
        for other in ["torch", "miniflow.dense"] if rule == "SGD" else ["torch"]:
            require_equal(f"{rule}, {rows} rows", ours, found[other]["losses"], TOLERANCE)
        dense, sparse, peer = (found[name]["ms"] for name in names)
        yield [
            rule, f"{rows:,}", f"{dense:.3f}", f"{sparse:.3f}", f"{dense / sparse:.0f}", f"{peer:.3f}",
            f"{sparse / peer:.2f}",
        ]  # fmt: skip


def report(threads: int, sizes: tuple[int, ...] = ROWS) -> str:
    """The table for this number of threads."""
    header = ["rule", "rows", "dense ms", "sparse ms", "faster by", "torch sparse ms", "ratio"]
    title = f"Step of an embedding of {WIDTH} columns, {BATCH} lookups; {threads} thread(s)"
    return table(title, header, list(lines(threads, sizes)))
