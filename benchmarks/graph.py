"""One training step as an nn.Graph, beside eager miniflow, torch eager and torch.compile; what compiling costs; memory.

The first call of a compiled step contains its compilation. "cold" has empty caches of compiled code on disk, "warm"
those that an earlier process filled. Imports are not part of it.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks import gpu
from benchmarks.harness import BenchmarkError, in_process, in_turns, require_equal, seconds_per_call, table
from benchmarks.networks import MOMENTUM, RATE, graph_of, load, prepared, training_step

CASES = [  # network, batch, and the share of torch's time that the graph is to take
    ("mlp", 1, 0.6), ("mlp", 16, 0.6), ("mlp", 64, 0.6), ("mlp", 256, 0.6), ("lenet", 32, 0.8), ("lenet", 64, 0.8),
    ("resnet18", 16, 1.0), ("encoder", 8, 0.9),
]  # fmt: skip
REPLAYS = 20  # before the host waits for the GPU
LOSSES = 5  # compared between the frameworks
TOLERANCE = {"resnet18": 2e-3}  # batch norm over few pixels lets rounding errors grow; 1e-4 for the others
COMPILED = ("miniflow.graph", "torch.compile")
CACHES = ("NUMBA_CACHE_DIR", "MINIFLOW_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


# in processes of their own


def time_step(framework: str, threads: int, network: str, batch: int, calls: int = 0) -> dict:
    """Seconds of the first call, milliseconds of a later one, and the losses of the first ones.

    Args:
        calls: how many calls to make instead of measuring for some time.
    """
    step = training_step(framework, threads, network, batch)
    start = time.perf_counter()
    losses = [step().item()]
    first = time.perf_counter() - start
    losses += [step().item() for _ in range(LOSSES - 1)]
    budget, windows = (0.0, calls) if calls else (2.0, 15)
    ms = 1e3 * seconds_per_call(step, threads, budget, windows)
    return {"first": first, "ms": ms, "losses": losses}


def memory(framework: str, threads: int, network: str, batch: int) -> dict:
    """MB: the largest resident size of a process that does three steps, and what the arrays of a step take at most.

    For eager miniflow those are the arrays that Python allocates in a step, counted by `tracemalloc`; for a graph those
    that were planned. None for torch.
    """
    step = training_step(framework, threads, network, batch)
    for _ in range(3):
        step()
    scale = 1 if sys.platform == "darwin" else 1024  # ru_maxrss counts bytes there, KB elsewhere
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6
    arrays = None
    if framework == "miniflow":
        arrays = traced_peak(step) / 1e6
    elif framework == "miniflow.graph":
        arrays = step.func._require_plan("memory").replay.plan.peak_after / 1e6
    return {"resident": resident, "arrays": arrays}


def time_captured(framework: str, threads: int, batch: int, dry: bool = False) -> dict:
    """Milliseconds of an MLP's training step on a GPU, replayed, and the losses of the first steps.

    "miniflow.graph" replays an nn.Graph, "torch" a CUDA graph that it captured after three steps.

    Args:
        dry: run miniflow on its emulated device and torch eagerly on the CPU, for the tests.
    """
    flow = load(framework, threads)
    device = "cpu" if dry and framework == "torch" else "cuda"
    model, loss_function, inputs, targets = prepared(flow, "mlp", batch)
    model, inputs, targets = model.to(device), inputs.to(device), targets.to(device)
    optimizer = flow.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    losses: list[float] = []
    if framework == "torch":

        def step() -> Any:
            optimizer.zero_grad()
            loss = loss_function(model(inputs), targets)
            loss.backward()
            optimizer.step()
            return loss

        losses = [step().item() for _ in range(3)]
        step = step if dry else captured(flow, step)
    else:
        step = partial(graph_of(flow, model, loss_function, optimizer), inputs, targets)
    losses += [step().item() for _ in range(LOSSES - len(losses))]

    def several() -> None:
        for _ in range(1 if dry else REPLAYS):
            step()
        if flow.cuda.is_available():
            flow.cuda.synchronize()

    seconds = seconds_per_call(several, 2, *((0.0, 1) if dry else (2.0, 15)))
    return {"ms": 1e3 * seconds / (1 if dry else REPLAYS), "losses": losses}


def captured(torch: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    """A step as a CUDA graph of torch."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        loss = step()

    def replay() -> Any:
        graph.replay()
        return loss

    return replay


def traced_peak(step: Any) -> int:
    """Bytes that a step allocates and holds at the same time, at most; parameters were there before."""
    tracemalloc.start()
    step()
    tracemalloc.reset_peak()
    step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


# tables


def peers() -> list[str]:
    """What there is to compare with: torch.compile needs a C++ compiler."""
    compilers = [os.environ.get("CXX", "c++"), "g++", "clang++"]
    return ["torch", "torch.compile"] if any(map(shutil.which, compilers)) else ["torch"]


def reports(threads: Sequence[int], cases: Sequence[tuple] = CASES, calls: int = 0) -> Iterator[str]:
    """The tables: times of a step for each number of threads, first calls, memory."""
    others = peers()
    firsts: dict[tuple, dict] = {}
    for count in threads:
        yield times(count, others, cases, calls, firsts)
    compiled = [name for name in COMPILED if name in ("miniflow.graph", *others)]
    header = ["first call", *(f"{name} {state}, s" for name in compiled for state in ("cold", "warm"))]
    rows = [
        [name, *(f"{found[f][state]:.2f}" for f in compiled for state in ("cold", "warm"))]
        for name, found in firsts.items()
    ]
    yield table(f"First call, with compilation; {threads[0]} thread(s), wall time", header, rows)
    yield memory_table(threads[-1], cases)
    if not gpu.refusal():
        yield captured_table()


def times(threads: int, others: list[str], cases: Sequence[tuple], calls: int, firsts: dict[tuple, dict]) -> str:
    """The table for this number of threads; the first calls of the first table go into `firsts`."""
    rows = []
    for network, batch, target in cases:
        name = f"{network} batch {batch}"
        found, cold = measured(network, batch, threads, others, calls)
        firsts.setdefault(name, {f: {"cold": cold[f], "warm": found[f]["first"]} for f in cold})
        graph, tolerance = found["miniflow.graph"], TOLERANCE.get(network, 1e-4)
        wrong = [
            f for f in others if f != "torch" and not agrees(found["torch"]["losses"], found[f]["losses"], tolerance)
        ]
        right = [peer for peer in others if peer not in wrong]
        compared = [("miniflow", 1e-5), *((peer, tolerance) for peer in right)]
        differences = [require_equal(name, graph["losses"], found[f]["losses"], limit) for f, limit in compared]
        best = min(found[peer]["ms"] for peer in right)
        every = ("miniflow", "miniflow.graph", *others)
        shown = ["other losses" if f in wrong else f"{found[f]['ms']:.3f}" for f in every]
        rows.append([name, *shown, f"{graph['ms'] / best:.2f}", target, f"{max(differences):.0e}"])
    header = ["training step", "eager ms", "graph ms", *(f"{peer} ms" for peer in others), "ratio", "target"]
    clock = "CPU time" if threads == 1 else "wall time"
    title = f"Training step with SGD, momentum 0.9, as nn.Graph; {threads} thread(s), {clock}"
    return table(title, [*header, "losses differ by"], rows)


def agrees(ours: list[float], theirs: list[float], tolerance: float) -> bool:
    """Whether torch.compile computes what torch does; where it does not, its time counts for nothing."""
    try:
        require_equal("torch.compile", ours, theirs, tolerance)
    except BenchmarkError:
        return False
    return True


def measured(network: str, batch: int, threads: int, others: list[str], calls: int) -> tuple[dict, dict]:
    """What `time_step` reports of every framework with warm caches, and the first calls with cold ones."""
    frameworks = ["miniflow", "miniflow.graph", *others]
    what: dict[str, Any] = {"network": network, "batch": batch, "calls": calls}
    with tempfile.TemporaryDirectory() as folder:
        env = dict.fromkeys(CACHES, folder)
        compiled = [f for f in COMPILED if f in frameworks]
        cold = {f: in_process("graph.time_step", f, threads, env, **what)["first"] for f in compiled}
        rounds = 1 if calls else 3
        return in_turns("graph.time_step", frameworks, threads, rounds=rounds, env=env, **what), cold


def memory_table(threads: int, cases: Sequence[tuple]) -> str:
    """The table of what steps need."""
    rows = []
    for network, batch, _ in cases:
        found = {
            f: in_process("graph.memory", f, threads, network=network, batch=batch)
            for f in ("miniflow", "miniflow.graph", "torch")
        }
        arrays = [f"{found[f]['arrays']:.1f}" for f in ("miniflow", "miniflow.graph")]
        rows.append([f"{network} batch {batch}", *arrays, *(f"{found[f]['resident']:.0f}" for f in found)])
    header = ["memory, MB", "eager arrays", "planned", "eager resident", "graph resident", "torch resident"]
    return table(f"Memory of a training step; {threads} thread(s)", header, rows)


def captured_table(batches: Sequence[int] = (16, 256), dry: bool = False) -> str:
    """The table of replays on a GPU."""
    rows = []
    for batch in batches:
        names = ["miniflow.graph", "torch"]
        found = in_turns("graph.time_captured", names, 2, rounds=1 if dry else 3, batch=batch, dry=dry)
        ours, theirs = (found[name] for name in names)
        difference = require_equal(f"mlp batch {batch}", ours["losses"], theirs["losses"], 1e-4)
        times = [f"{found[name]['ms']:.4f}" for name in names]
        rows.append([f"mlp batch {batch}", *times, f"{ours['ms'] / theirs['ms']:.2f}", 1.1, f"{difference:.0e}"])
    header = ["training step", "nn.Graph ms", "torch CUDA graph ms", "ratio", "target", "losses differ by"]
    return table(f"Replay on a GPU, {REPLAYS} in a row, wall time", header, rows)
