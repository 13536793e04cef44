"""One training step of an MLP and of LeNet."""

from __future__ import annotations

from benchmarks.harness import in_turns, require_equal, seconds_per_call, table
from benchmarks.networks import training_step

CASES = [("mlp", 1), ("mlp", 16), ("mlp", 64), ("mlp", 256), ("lenet", 32), ("lenet", 64)]
LOSSES = 5  # compared between the frameworks
TOLERANCE = 1e-4


def time_step(framework: str, threads: int, network: str, batch: int) -> dict:
    """The time of a step in ms, and the losses of the first steps."""
    step = training_step(framework, threads, network, batch)
    losses = [step().item() for _ in range(LOSSES)]
    for _ in range(3):
        step()
    return {"ms": 1e3 * seconds_per_call(step, threads, budget=2.0), "losses": losses}


def report(threads: int, peers: list[str], cases: list[tuple[str, int]] = CASES) -> str:
    """The table for this number of threads."""
    rows = []
    for network, batch in cases:
        found = in_turns("training.time_step", ["miniflow", *peers], threads, network=network, batch=batch)
        ours, name = found["miniflow"], f"{network} batch {batch}"
        difference = max(require_equal(name, ours["losses"], found[peer]["losses"], TOLERANCE) for peer in peers)
        best = min(found[peer]["ms"] for peer in peers)
        times = [f"{found[peer]['ms']:.3f}" for peer in peers]
        rows.append([name, f"{ours['ms']:.3f}", *times, f"{ours['ms'] / best:.2f}", f"{difference:.0e}"])
    header = ["training step", "miniflow ms", *(f"{peer} ms" for peer in peers), "ratio", "losses differ by"]
    clock = "CPU time" if threads == 1 else "wall time"
    return table(f"Training step with SGD, momentum 0.9, eager; {threads} thread(s), {clock}", header, rows)
