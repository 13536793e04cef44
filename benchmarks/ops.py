"""What a framework adds to the bare NumPy call: small ops, where everything is overhead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import in_process, in_turns, seconds_per_call, table
from benchmarks.networks import load

SIDE = 8  # arrays are 8 by 8
# name -> (what a framework runs on tensors x and y, what NumPy runs on arrays)
OPS: dict[str, tuple[Callable, Callable]] = {
    "x + y": (lambda f, x, y: x + y, lambda x, y: np.add(x, y)),
    "x * y": (lambda f, x, y: x * y, lambda x, y: np.multiply(x, y)),
    "x + 1.5": (lambda f, x, y: x + 1.5, lambda x, y: np.add(x, 1.5)),
    "exp(x)": (lambda f, x, y: f.exp(x), lambda x, y: np.exp(x)),
    "relu(x)": (lambda f, x, y: f.relu(x), lambda x, y: np.maximum(x, 0)),
    "x @ y": (lambda f, x, y: x @ y, lambda x, y: np.matmul(x, y)),
    "x.sum()": (lambda f, x, y: x.sum(), lambda x, y: np.add.reduce(x, axis=None)),
    "x.reshape(-1)": (lambda f, x, y: x.reshape(-1), lambda x, y: x.reshape(-1)),
    "x.transpose(0, 1)": (lambda f, x, y: x.transpose(0, 1), lambda x, y: x.transpose(1, 0)),
}


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Two float32 arrays."""
    random = np.random.default_rng(0)
    return tuple(random.standard_normal((SIDE, SIDE)).astype(np.float32) for _ in range(2))


def time_ops(framework: str, threads: int) -> dict:
    """Microseconds of each op, without a gradient, and with one being recorded."""
    flow = load(framework, threads)
    result = {}
    for name, (run, _) in OPS.items():
        x, y = (flow.from_numpy(array) for array in arrays())
        result[name] = 1e6 * seconds_per_call(lambda: run(flow, x, y), threads, budget=0.3)  # noqa: B023
        x.requires_grad_(True)
        result[name + " recorded"] = 1e6 * seconds_per_call(lambda: run(flow, x, y), threads, budget=0.3)  # noqa: B023
    result |= {name: 1e6 * seconds_per_call(step, threads, budget=0.5) for name, step in chains(flow).items()}
    return result


def time_numpy(framework: str, threads: int) -> dict:
    """Microseconds of each op's bare NumPy call."""
    x, y = arrays()
    return {name: 1e6 * seconds_per_call(lambda: run(x, y), threads, budget=0.3) for name, (_, run) in OPS.items()}  # noqa: B023


def chains(flow: Any) -> dict[str, Callable]:
    """A layer, and ten ops in a row, forward with backward."""
    x, w = (flow.from_numpy(array).requires_grad_(True) for array in arrays())
    b = flow.zeros(SIDE, requires_grad=True)

    def layer() -> None:
        flow.relu(x @ w + b).sum().backward()
        x.grad = w.grad = b.grad = None

    def ten() -> None:
        y = x
        for _ in range(5):
            y = y * 0.9 + w
        y.sum().backward()
        x.grad = w.grad = None

    return {"relu(x @ w + b), forward and backward": layer, "ten ops in a row, forward and backward": ten}


def report(threads: int = 1) -> str:
    """Both tables."""
    bare = in_process("ops.time_numpy", "numpy", threads)
    found = in_turns("ops.time_ops", ["miniflow", "torch"], threads)
    ours, torch = found["miniflow"], found["torch"]
    rows = []
    for name in OPS:
        mine, recorded = ours[name], ours[name + " recorded"]
        rows.append([name, *(f"{t:.2f}" for t in (bare[name], mine, recorded, mine - bare[name], recorded - bare[name],
                                                  torch[name], torch[name + " recorded"]))])  # fmt: skip
    header = ["op, us", "numpy", "miniflow", "recorded", "overhead", "overhead recorded", "torch", "torch recorded"]
    first = table(f"Eager op on {SIDE}x{SIDE} float32, {threads} thread, CPU time", header, rows)
    names = [name for name in ours if "backward" in name]
    rows = [[n, f"{ours[n]:.1f}", f"{torch[n]:.1f}", f"{ours[n] / torch[n]:.2f}"] for n in names]
    return first + "\n" + table("Short programs", ["us", "miniflow", "torch", "ratio"], rows)
