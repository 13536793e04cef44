"""How long until the first training step is done, and how much memory training takes."""

from __future__ import annotations

import resource
import sys
import tempfile
import time

from benchmarks.harness import in_process, in_turns, table


def time_import(framework: str, threads: int) -> dict:
    """Seconds of the import, with Python's own modules and NumPy still to be loaded."""
    assert "numpy" not in sys.modules  # the harness loads it late
    start = time.perf_counter()
    __import__(framework)
    return {"seconds": time.perf_counter() - start}


def time_first_step(framework: str, threads: int, network: str) -> dict:
    """Seconds from before the import to the end of the first training step, batch 64."""
    start = time.perf_counter()
    from benchmarks.networks import training_step

    training_step(framework, threads, network, 64)().item()
    return {"seconds": time.perf_counter() - start}


def peak_memory(framework: str, threads: int, network: str) -> dict:
    """The largest resident size, in MB, of a process that does 20 training steps with batch 64."""
    from benchmarks.networks import training_step

    step = training_step(framework, threads, network, 64)
    for _ in range(20):
        step()
    scale = 1 if sys.platform == "darwin" else 1024  # ru_maxrss counts bytes there, KB elsewhere
    return {"MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6}


def report(threads: int = 2) -> str:
    """The table."""
    both = ["miniflow", "torch"]
    rows = []
    found = in_turns("startup.time_import", both, threads, rounds=5)
    rows.append(["import, s", *(f"{found[f]['seconds']:.2f}" for f in both)])
    for network in ("mlp", "lenet"):
        with tempfile.TemporaryDirectory() as cache:
            env = {"MINIFLOW_CACHE_DIR": cache}
            cold = in_process("startup.time_first_step", "miniflow", threads, env, network=network)["seconds"]
            found = in_turns("startup.time_first_step", both, threads, env=env, network=network)
        rows.append([f"{network}: import and first step, cold cache, s", f"{cold:.2f}", "none to fill"])
        rows.append([f"{network}: import and first step, warm, s", *(f"{found[f]['seconds']:.2f}" for f in both)])
        found = in_turns("startup.peak_memory", both, threads, network=network)
        rows.append([f"{network}: peak memory of 20 steps, MB", *(f"{found[f]['MB']:.0f}" for f in both)])
    return table(f"Start and memory, batch 64, {threads} threads, wall time", ["", *both], rows)
